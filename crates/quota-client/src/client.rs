//! [`QuotaClient`]: typed calls to quota-svc's internal API over one set of connections.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::Full;
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};
use url::{Position, Url};

use crate::charges::ChargeService;
use crate::connections::{Address, Call, Connections};
use crate::error::{ClientError, Result, found};
use crate::token::QuotaToken;
use quota_api::*;

/// Maximum response size in bytes. The largest response is a page of an export.
const MAX_RESPONSE: usize = 16 << 20;
/// Maximum size of the response to a charge; 256 verdicts need 6.25 KiB.
const MAX_VERDICTS: usize = 64 << 10;

/// Timeout of the calls of operators' commands. Longer than every timeout of quota-svc, so that its own error message
/// arrives.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// How often [`QuotaClient::wait_for_store`] asks for the state of the store.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);

/// Query parameters; those without a value are left out.
type Query<'a> = &'a [(&'a str, Option<&'a str>)];

/// ID of the account that must own a key. Calls for a key of another account fail with `key_not_found`.
type Owner<'a> = Option<&'a str>;

/// Client of quota-svc's internal API. Clones share the connections.
#[derive(Clone)]
pub struct QuotaClient {
    connections: Arc<Connections>,
    /// A charge, without its body.
    charge_head: Request<()>,
    /// URL of the API's root.
    base: Arc<Url>,
    timeout: Duration,
    token: Option<QuotaToken>,
    /// Who makes the changes.
    actor: Actor,
    inject_context: Option<fn(&mut HeaderMap)>,
    deadline: Option<fn() -> Option<Instant>>,
}

impl QuotaClient {
    /// Creates a client of the quota-svc at `base_url`, such as `http://127.0.0.1:8082`. `timeout` limits each call.
    pub fn new(base_url: &str, timeout: Duration) -> Result<Self> {
        let base = api_root(base_url)?;
        let host = base.host_str().ok_or_else(unusable)?.trim_matches(['[', ']']).to_owned();
        let address = Address::Tcp(host, base.port_or_known_default().unwrap_or(80));
        Self::build(base, address, timeout)
    }

    /// Creates a client of the quota-svc that is reached through a Unix socket.
    pub fn over_socket(path: &Path, timeout: Duration) -> Result<Self> {
        // The host is only the `Host` header, which must be a loopback name.
        Self::build(api_root("http://localhost")?, Address::Socket(path.to_owned()), timeout)
    }

    fn build(base: Url, address: Address, timeout: Duration) -> Result<Self> {
        let mut charges = base.clone();
        charges.set_path(&format!("{}/charges", base.path()));
        let mut charge_head = head(Method::POST, &charges)?;
        charge_head.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(BATCH_TYPE));
        Ok(Self {
            connections: Arc::new(Connections::new(address, MAX_RESPONSE)),
            charge_head,
            base: Arc::new(base),
            timeout,
            token: None,
            actor: Actor::Operator,
            inject_context: None,
            deadline: None,
        })
    }

    /// Sends this token with every request. Without it, quota-svc responds with 401.
    #[must_use]
    pub fn with_token(self, token: &QuotaToken) -> Self {
        Self { token: Some(token.clone()), ..self }
    }

    /// Names who makes the changes of this client, if it is not the operator. The events of the changed keys record it.
    #[must_use]
    pub fn acting_as(self, actor: Actor) -> Self {
        Self { actor, ..self }
    }

    /// Adds headers to each request, on behalf of the request that its caller handles: its ID and its trace context. Not to
    /// the charges of a [`crate::Charger`], which belong to several requests.
    #[must_use]
    pub fn with_context(self, inject: fn(&mut HeaderMap)) -> Self {
        Self { inject_context: Some(inject), ..self }
    }

    /// Ends each call at the deadline of the request that its caller handles, if `deadline` returns one. Not the charges
    /// of a [`crate::Charger`].
    #[must_use]
    pub fn with_deadline(self, deadline: fn() -> Option<Instant>) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// Charges a batch in one call. Services use [`crate::Charger`] instead.
    pub async fn charge(&self, charges: &[Charge]) -> Result<Vec<Verdict>> {
        parse_verdicts(&self.call(&["charges"], &[], Some((BATCH_TYPE, encode_charges(charges)))).await?)
    }

    /// Charges over connections of its own, with this client's token.
    pub fn charge_service(&self) -> Arc<dyn ChargeService> {
        let connections = Connections::new(self.connections.address.clone(), MAX_VERDICTS);
        Arc::new(ChargeCalls { connections, head: self.charge_head.clone(), token: self.token.clone() })
    }

    /// Waits until the store of quota-svc can be used, and passes each new reason why it can't to `report`.
    pub async fn wait_for_store(&self, report: impl Fn(&str)) {
        let mut reported = String::new();
        loop {
            let reason = match self.status().await {
                Ok(Status { store_unavailable: None, .. }) => return,
                Ok(Status { store_unavailable: Some(reason), .. }) => reason,
                Err(error) => error.to_string(),
            };
            if reason != reported {
                report(&reason);
                reported = reason;
            }
            sleep(STATUS_INTERVAL).await;
        }
    }

    /// Makes a call, with POST if it has a body and its type. `path` may contain untrusted IDs: an ID that could change the path is
    /// treated as not found.
    async fn call(
        &self,
        path: &[&str],
        query: Query<'_>,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Bytes> {
        let is_plain =
            |part: &&str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') && !part.is_empty();
        if !path.iter().all(is_plain) {
            return Err(ClientError::not_found());
        }
        let mut url = Url::clone(&self.base);
        url.set_path(&format!("{}/{}", url.path(), path.join("/")));
        for (name, value) in query.iter().filter_map(|(name, value)| Some((name, (*value)?))) {
            url.query_pairs_mut().append_pair(name, value);
        }
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let (content_type, body) = body.unzip();
        let mut request = head(method, &url)?.map(|()| Full::new(Bytes::from(body.unwrap_or_default())));
        if let Some(inject) = self.inject_context {
            inject(request.headers_mut());
        }
        let content_type = content_type.map(|value| (CONTENT_TYPE, HeaderValue::from_static(value)));
        request.headers_mut().extend(content_type);
        let call = self.connections.call(self.token.as_ref(), || request.clone());
        timeout(self.time_for_call()?, call).await.unwrap_or(Err(ClientError::TimedOut))
    }

    /// Fails if no time is left: a change must not be sent if nobody waits for its result.
    fn time_for_call(&self) -> Result<Duration> {
        let Some(deadline) = self.deadline.and_then(|deadline| deadline()) else { return Ok(self.timeout) };
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(ClientError::Unreachable("the deadline of the request has passed".into())),
            remaining => Ok(remaining.min(self.timeout)),
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str], query: Query<'_>) -> Result<T> {
        parse(&self.call(path, query, None).await?)
    }

    /// Gives a command. Its variant names the type of the response.
    async fn command<T: DeserializeOwned>(&self, command: Command) -> Result<T> {
        let request = CommandRequest { actor: self.actor.clone(), command };
        let body = serde_json::to_vec(&request).map_err(|error| ClientError::json(&error))?;
        parse(&self.call(&["commands"], &[], Some(("application/json", body))).await?)
    }

    pub async fn find_account(&self, login: &str) -> Result<Option<Account>> {
        let page: AccountPage = self.get(&["accounts"], &[("login", Some(login))]).await?;
        Ok(page.accounts.into_iter().next())
    }

    /// Returns an account by its ID. Fails with `account_not_found` if there is none.
    pub async fn account(&self, id: &str) -> Result<Account> {
        Ok(self.account_details(id).await?.account)
    }

    /// Lists the account's events, newest first.
    pub async fn account_events(&self, id: &str) -> Result<EventList> {
        Ok(EventList { events: self.account_details(id).await?.events })
    }

    pub async fn contact(&self, account: &str) -> Result<ContactStatus> {
        Ok(self.account_details(account).await?.contact)
    }

    /// Returns the account of a session; `None` if the session or the account does not exist, or the session has expired.
    pub async fn session_account(&self, account: &str, id_sha256: &str) -> Result<Option<Account>> {
        found(self.get(&["accounts", account, "sessions", id_sha256], &[]).await)
    }
}

/// Defines methods that read: each with its response, path and query.
macro_rules! reads {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $response:ty = $path:expr, $query:expr;)+) => {
        impl QuotaClient {
            $($(#[$doc])*
            pub async fn $name(&self, $($arg: $type),*) -> Result<$response> {
                self.get(&$path, &$query).await
            })+
        }
    };
}

reads! {
    /// Returns the state of quota-svc: whether its store can be used, and its limits.
    status() -> Status = ["status"], [];
    overview() -> Overview = ["overview"], [];
    /// Lists a page of about `limit` accounts. `cursor` is the `next` of the previous page.
    list_accounts(cursor: Option<&str>, limit: u32) -> AccountPage =
        ["accounts"], [("limit", Some(&*limit.to_string())), ("cursor", cursor)];
    /// Counts the keys of a page of accounts. `cursor` is the `next` of the previous page.
    count_keys(cursor: Option<&str>) -> UsageCount = ["counts"], [("cursor", cursor)];
    /// Exports a page of about `limit` accounts with their credentials and keys. `cursor` is the `next` of the previous page.
    /// Accounts and keys that can't be read are left out and named in `left_out`.
    export(cursor: Option<&str>, limit: u32) -> ExportPage =
        ["export"], [("limit", Some(&*limit.to_string())), ("cursor", cursor)];
    account_details(id: &str) -> AccountDetails = ["accounts", id], [];
    credential(account: &str) -> Credential = ["accounts", account, "credential"], [];
    /// Lists the account's keys, oldest first.
    keys(account: &str) -> KeyList = ["accounts", account, "keys"], [];
    key(id: &str, owner: Owner<'_>) -> OwnedKey = ["keys", id], [("account", owner)];
    usage(id: &str, owner: Owner<'_>) -> Usage = ["keys", id, "usage"], [("account", owner)];
    /// Lists the key's events, newest first.
    events(id: &str, owner: Owner<'_>) -> EventList = ["keys", id, "events"], [("account", owner)];
}

/// Defines methods that give a command: each with its response and the command.
macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $response:ty = $command:expr;)+) => {
        impl QuotaClient {
            $($(#[$doc])*
            pub async fn $name(&self, $($arg: $type),*) -> Result<$response> {
                self.command($command).await
            })+
        }
    };
}

commands! {
    /// Creates an account. Fails with `account_exists` if the login is taken.
    create_account(account: &NewAccount) -> Account = Command::CreateAccount(account.clone());
    /// Deletes an account with its keys and sessions. Fails with `version_conflict` if the expected credential is outdated.
    delete_account(id: &str, expected: Option<&str>) -> () =
        Command::DeleteAccount { account: id.to_owned(), expected_credential: expected.map(str::to_owned) };
    /// Suspends, restores or signs out an account, or changes its role.
    change_account(id: &str, change: &AccountChange) -> Account =
        Command::ChangeAccount { account: id.to_owned(), change: change.clone() };
    /// Replaces the credential and revokes all sessions except `keep_session`. Fails with `version_conflict` after a
    /// concurrent change.
    set_credential(account: &str, change: &SetCredential) -> Credential =
        Command::SetCredential { account: account.to_owned(), change: change.clone() };
    /// Replaces the contact. Fails with `contact_conflict` if it is not `expected` anymore.
    set_contact(account: &str, expected: Contact, contact: Contact) -> () =
        Command::SetContact { account: account.to_owned(), expected, contact };
    /// Stores a session or a password link of an account. Returns `false` if a requested link was not added. Fails with
    /// `version_conflict` if `expected_credential` is outdated.
    create_session(account: &str, session: &NewSession) -> bool =
        Command::AddSession { account: account.to_owned(), session: session.clone() };
    /// Succeeds even if the session is no longer active.
    delete_session(account: &str, id_sha256: &str) -> () =
        Command::RevokeSession { account: account.to_owned(), session: id_sha256.to_owned() };
    /// Creates a key. Fails with `key_limit_reached` if the account has 10 keys, and with `creation_limit_reached` if it has created
    /// 30 today, unless the operator acts.
    create_key(account: &str, key: &NewKey) -> CreatedKey =
        Command::CreateKey { account: account.to_owned(), key: key.clone() };
    /// Replaces a key by a copy with a new secret. Fails with `key_replaced` if that was done before.
    rotate_key(id: &str, owner: Owner<'_>, rotation: &Rotation) -> CreatedKey =
        Command::RotateKey { id: id.to_owned(), account: owner.map(str::to_owned), rotation: rotation.clone() };
    change_key(id: &str, owner: Owner<'_>, change: &SettingsChange) -> OwnedKey =
        change_of(id, owner, KeyChange::Settings(change.clone()));
    /// Resumes, deactivates or reactivates a key. Fails with `key_inactive` or `key_paused` if its state does not allow it.
    change_state(id: &str, owner: Owner<'_>, change: StateChange) -> OwnedKey =
        change_of(id, owner, KeyChange::State(change));
    /// Sets a key's daily limit, or resets it to the default. For operators only: the key may belong to any account.
    set_daily_limit(id: &str, limit: &SetDailyLimit) -> OwnedKey =
        change_of(id, None, KeyChange::DailyLimit(limit.daily_limit));
    /// Deletes a key. It no longer counts toward the account's limit of 10 keys.
    delete_key(id: &str, owner: Owner<'_>) -> () =
        Command::DeleteKey { id: id.to_owned(), account: owner.map(str::to_owned) };
    /// Imports accounts and keys. Existing ones are not changed, so repeating an import is safe.
    import(accounts: &ImportRequest) -> ImportReport = Command::Import(accounts.clone());
    /// Claims up to `limit` notices for delivery.
    claim_notices(limit: u32) -> Vec<ClaimedNotice> = Command::ClaimNotices { limit };
    /// Reports the result of a delivery.
    report_notice(result: &NoticeResult) -> () = Command::FinishNotice(result.clone());
}

fn change_of(id: &str, owner: Owner<'_>, change: KeyChange) -> Command {
    Command::ChangeKey { id: id.to_owned(), account: owner.map(str::to_owned), change }
}

/// Makes the calls of a [`crate::Charger`].
struct ChargeCalls {
    connections: Connections,
    head: Request<()>,
    token: Option<QuotaToken>,
}

impl ChargeService for ChargeCalls {
    fn charge(&self, charges: Vec<Charge>, trace: Option<HeaderMap>) -> BoxFuture<'_, Result<Vec<Verdict>>> {
        let body = Bytes::from(encode_charges(&charges));
        let request = move || {
            let mut request: Call = self.head.clone().map(|()| Full::new(body.clone()));
            request.headers_mut().extend(trace.clone().unwrap_or_default());
            request
        };
        async move { parse_verdicts(&self.connections.call(self.token.as_ref(), request).await?) }.boxed()
    }
}

fn unusable() -> ClientError {
    ClientError::BaseUrl("its host or path can't be used")
}

/// Returns the URL of the API root below `base_url`. Only plain HTTP: quota-svc listens on loopback.
fn api_root(base_url: &str) -> Result<Url> {
    let mut url = Url::parse(base_url).map_err(|_| ClientError::BaseUrl("it is not a URL"))?;
    if url.scheme() != "http" {
        return Err(ClientError::BaseUrl("it must start with http://"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(ClientError::BaseUrl("it must not have a query or a fragment"));
    }
    url.set_path(&format!("{}/internal/v1", url.path().trim_end_matches('/')));
    Ok(url)
}

/// A request without a body, to the host of this URL.
fn head(method: Method, url: &Url) -> Result<Request<()>> {
    let request = Request::builder().method(method).uri(&url[Position::BeforePath..]);
    let host = &url[Position::BeforeHost..Position::AfterPort];
    request.header(HOST, host).body(()).map_err(|_| unusable())
}

/// Parses a response. That of a change can be empty, which is parsed as `()`.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    // Validates UTF-8 once for the whole body; `from_slice` validates each string separately. For invalid UTF-8,
    // `from_slice` is called only to get its error message.
    let parsed = match str::from_utf8(body) {
        Ok("") => serde_json::from_str("null"),
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(body),
    };
    parsed.map_err(|error| ClientError::json(&error))
}

fn parse_verdicts(body: &[u8]) -> Result<Vec<Verdict>> {
    decode_verdicts(body).ok_or_else(|| ClientError::Protocol("malformed verdicts".to_owned()))
}
