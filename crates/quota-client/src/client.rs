//! [`QuotaClient`]: typed calls to quota-svc's internal API over one connection pool.

mod charge_calls;
mod transport;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Method};
use reqwest::{RequestBuilder, Url};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::charges::ChargeService;
use crate::error::{ClientError, Result, found};
use crate::token::QuotaToken;
use charge_calls::{ChargeCalls, ChargeTarget, parse_verdicts};
use quota_api::{
    Account, AccountChange, AccountDetails, AccountPage, Actor, BATCH_TYPE, Charge, ClaimedNotice, Command,
    CommandRequest, Contact, ContactStatus, CreatedKey, Credential, EventList, ExportPage, ImportReport,
    ImportRequest, KeyCommand, KeyList, NewAccount, NewKey, NewSession, NoticeResult, Overview, OwnedKey,
    Rotation, SetCredential, SetDailyLimit, SettingsChange, StateChange, Status, Usage, UsageCount, Verdict,
    encode_charges,
};

/// Maximum response size in bytes. The largest response is a page of an export.
const MAX_RESPONSE: usize = 16 << 20;

/// Timeout of the calls of operators' commands. Longer than every timeout of quota-svc, so that its own error message
/// arrives.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// How often [`QuotaClient::wait_for_store`] asks for the state of the store.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);

/// Query parameters.
type Query<'a> = &'a [(&'a str, &'a str)];

/// Client of quota-svc's internal API. Clones share the connections.
#[derive(Debug, Clone)]
pub struct QuotaClient {
    http: reqwest::Client,
    base: Arc<Url>,
    charges: ChargeTarget,
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
        Self::build(transport::api_root(base_url)?, transport::http_client(None)?, timeout)
    }

    /// Creates a client of the quota-svc that is reached through a Unix socket. Not for a [`crate::Charger`].
    pub fn over_socket(path: &Path, timeout: Duration) -> Result<Self> {
        // The host is only the `Host` header, which must be a loopback name.
        let base = transport::api_root("http://localhost")?;
        Self::build(base, transport::http_client(Some(path))?, timeout)
    }

    fn build(base: Url, http: reqwest::Client, timeout: Duration) -> Result<Self> {
        Ok(Self {
            http,
            charges: ChargeTarget::new(&base)?,
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
        let request = self.request(Method::POST, &["charges"], &[])?.header(CONTENT_TYPE, BATCH_TYPE);
        parse_verdicts(&self.send(request.body(encode_charges(charges))).await?)
    }

    /// Charges over connections of its own, with this client's token.
    pub fn charge_service(&self) -> Arc<dyn ChargeService> {
        Arc::new(ChargeCalls::new(self.charges.clone(), self.token.clone()))
    }

    /// Returns the state of quota-svc: whether its store can be used, and its limits.
    pub async fn status(&self) -> Result<Status> {
        self.get(&["status"], &[]).await
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

    /// Builds a request. `path` may contain untrusted IDs: an ID that could change the path is treated as not found.
    fn request(&self, method: Method, path: &[&str], query: Query<'_>) -> Result<RequestBuilder> {
        let is_plain =
            |part: &&str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') && !part.is_empty();
        if !path.iter().all(is_plain) {
            return Err(ClientError::not_found());
        }
        let mut url = Url::clone(&self.base);
        url.set_path(&format!("{}/{}", url.path(), path.join("/")));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut context = HeaderMap::new();
        if let Some(inject) = self.inject_context {
            inject(&mut context);
        }
        Ok(self.http.request(method, url).headers(context).timeout(self.time_for_call()?))
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
        self.send_and_parse(self.request(Method::GET, path, query)?).await
    }

    /// Gives a command. Its variant names the type of the response.
    async fn command<T: DeserializeOwned>(&self, command: Command) -> Result<T> {
        let request = CommandRequest { actor: self.actor.clone(), command };
        self.send_and_parse(self.request(Method::POST, &["commands"], &[])?.json(&request)).await
    }

    /// Changes a key. If `account` is given, it must be the key's account.
    async fn key_command<T: DeserializeOwned>(
        &self,
        id: &str,
        account: Option<&str>,
        change: KeyCommand,
    ) -> Result<T> {
        let (id, account) = (id.to_owned(), account.map(str::to_owned));
        self.command(Command::ChangeKey { id, account, change }).await
    }

    async fn send_and_parse<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T> {
        transport::parse(&self.send(request).await?)
    }

    /// Sends a request with the token, and once more if quota-svc rejects the token and the file has a new one.
    async fn send(&self, request: RequestBuilder) -> Result<Vec<u8>> {
        let Some(token) = &self.token else { return transport::send(request, MAX_RESPONSE).await };
        let (sent, repeated) = (token.header(), request.try_clone());
        let result = transport::send(request.header(AUTHORIZATION, &sent), MAX_RESPONSE).await;
        match repeated {
            Some(request) if is_unauthorized(&result) && token.has_replaced(&sent) => {
                transport::send(request.header(AUTHORIZATION, token.header()), MAX_RESPONSE).await
            }
            _ => result,
        }
    }

    /// Creates an account. Fails with `account_exists` if the login is taken.
    pub async fn create_account(&self, account: &NewAccount) -> Result<Account> {
        self.command(Command::CreateAccount(account.clone())).await
    }

    pub async fn find_account(&self, login: &str) -> Result<Option<Account>> {
        let page: AccountPage = self.get(&["accounts"], &[("login", login)]).await?;
        Ok(page.accounts.into_iter().next())
    }

    /// Lists a page of about `limit` accounts. `cursor` is the `next` of the previous page.
    pub async fn list_accounts(&self, cursor: Option<&str>, limit: u32) -> Result<AccountPage> {
        self.page("accounts", cursor, limit).await
    }

    /// Returns an account by its ID. Fails with `account_not_found` if there is none.
    pub async fn account(&self, id: &str) -> Result<Account> {
        Ok(self.account_details(id).await?.account)
    }

    async fn account_details(&self, id: &str) -> Result<AccountDetails> {
        self.get(&["accounts", id], &[]).await
    }

    /// Lists the account's events, newest first.
    pub async fn account_events(&self, id: &str) -> Result<EventList> {
        Ok(EventList { events: self.account_details(id).await?.events })
    }

    pub async fn contact(&self, account: &str) -> Result<ContactStatus> {
        Ok(self.account_details(account).await?.contact)
    }

    /// Deletes an account with its keys and sessions. Fails with `version_conflict` if the expected credential is outdated.
    pub async fn delete_account(&self, id: &str, expected: Option<&str>) -> Result<()> {
        let (account, expected_credential) = (id.to_owned(), expected.map(str::to_owned));
        self.command(Command::DeleteAccount { account, expected_credential }).await
    }

    pub async fn credential(&self, account: &str) -> Result<Credential> {
        self.get(&["accounts", account, "credential"], &[]).await
    }

    /// Replaces the credential and revokes all sessions except `keep_session`. Fails with `version_conflict` after a
    /// concurrent change.
    pub async fn set_credential(&self, account: &str, change: &SetCredential) -> Result<Credential> {
        self.command(Command::SetCredential { account: account.to_owned(), change: change.clone() }).await
    }

    /// Stores a session or a password link of an account. Returns `false` if a requested link was not added. Fails with
    /// `version_conflict` if `expected_credential` is outdated.
    pub async fn create_session(&self, account: &str, session: &NewSession) -> Result<bool> {
        self.command(Command::AddSession { account: account.to_owned(), session: session.clone() }).await
    }

    /// Returns the account of a session; `None` if the session or the account does not exist, or the session has expired.
    pub async fn session_account(&self, account: &str, id_sha256: &str) -> Result<Option<Account>> {
        found(self.get(&["accounts", account, "sessions", id_sha256], &[]).await)
    }

    /// Succeeds even if the session is no longer active.
    pub async fn delete_session(&self, account: &str, id_sha256: &str) -> Result<()> {
        let (account, session) = (account.to_owned(), id_sha256.to_owned());
        found(self.command(Command::RevokeSession { account, session }).await).map(|_: Option<()>| ())
    }

    /// Suspends, restores or signs out an account, or changes its role.
    pub async fn change_account(&self, id: &str, change: &AccountChange) -> Result<Account> {
        self.command(Command::ChangeAccount { account: id.to_owned(), change: change.clone() }).await
    }

    /// Replaces the contact. Fails with `contact_conflict` if it is not `expected` anymore.
    pub async fn set_contact(&self, account: &str, expected: Contact, contact: Contact) -> Result<()> {
        self.command(Command::SetContact { account: account.to_owned(), expected, contact }).await
    }

    pub async fn overview(&self) -> Result<Overview> {
        self.get(&["overview"], &[]).await
    }

    /// Counts the keys of a page of accounts. `cursor` is the `next` of the previous page.
    pub async fn count_keys(&self, cursor: Option<&str>) -> Result<UsageCount> {
        let query = cursor.map(|cursor| ("cursor", cursor));
        self.get(&["counts"], query.as_slice()).await
    }

    /// Exports a page of about `limit` accounts with their credentials and keys. `cursor` is the `next` of the
    /// previous page. Accounts and keys that can't be read are left out and named in `left_out`.
    pub async fn export(&self, cursor: Option<&str>, limit: u32) -> Result<ExportPage> {
        self.page("export", cursor, limit).await
    }

    /// Imports accounts and keys. Existing ones are not changed, so repeating an import is safe.
    pub async fn import(&self, accounts: &ImportRequest) -> Result<ImportReport> {
        self.command(Command::Import(accounts.clone())).await
    }

    /// Claims up to `limit` notices for delivery.
    pub async fn claim_notices(&self, limit: u32) -> Result<Vec<ClaimedNotice>> {
        self.command(Command::ClaimNotices { limit }).await
    }

    /// Reports the result of a delivery.
    pub async fn report_notice(&self, result: &NoticeResult) -> Result<()> {
        self.command(Command::FinishNotice(result.clone())).await
    }

    async fn page<T: DeserializeOwned>(&self, path: &str, cursor: Option<&str>, limit: u32) -> Result<T> {
        let limit = limit.to_string();
        let mut query = vec![("limit", &*limit)];
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        self.get(&[path], &query).await
    }
}

/// Keys. If `account` is given, calls for a key of another account fail with `key_not_found`.
impl QuotaClient {
    /// Lists the account's keys, oldest first.
    pub async fn keys(&self, account: &str) -> Result<KeyList> {
        self.get(&["accounts", account, "keys"], &[]).await
    }

    /// Creates a key. Fails with `key_limit_reached` if the account has 10 keys, and with `creation_limit_reached` if it has created
    /// 30 today, unless the operator acts.
    pub async fn create_key(&self, account: &str, key: &NewKey) -> Result<CreatedKey> {
        self.command(Command::CreateKey { account: account.to_owned(), key: key.clone() }).await
    }

    pub async fn key(&self, id: &str, account: Option<&str>) -> Result<OwnedKey> {
        self.get_of_key(&["keys", id], account).await
    }

    pub async fn usage(&self, id: &str, account: Option<&str>) -> Result<Usage> {
        self.get_of_key(&["keys", id, "usage"], account).await
    }

    /// Lists the key's events, newest first.
    pub async fn events(&self, id: &str, account: Option<&str>) -> Result<EventList> {
        self.get_of_key(&["keys", id, "events"], account).await
    }

    async fn get_of_key<T: DeserializeOwned>(&self, path: &[&str], account: Option<&str>) -> Result<T> {
        let query = account.map(|account| ("account", account));
        self.get(path, query.as_slice()).await
    }

    /// Replaces a key by a copy with a new secret. Fails with `key_replaced` if that was done before.
    pub async fn rotate_key(
        &self,
        id: &str,
        account: Option<&str>,
        rotation: &Rotation,
    ) -> Result<CreatedKey> {
        self.key_command(id, account, KeyCommand::Rotate(rotation.clone())).await
    }

    pub async fn change_key(
        &self,
        id: &str,
        account: Option<&str>,
        change: &SettingsChange,
    ) -> Result<OwnedKey> {
        self.key_command(id, account, KeyCommand::SetSettings(change.clone())).await
    }

    /// Resumes, deactivates or reactivates a key. Fails with `key_inactive` or `key_paused` if its state does not allow it.
    pub async fn change_state(
        &self,
        id: &str,
        account: Option<&str>,
        change: StateChange,
    ) -> Result<OwnedKey> {
        self.key_command(id, account, KeyCommand::SetState(change)).await
    }

    /// Sets a key's daily limit, or resets it to the default. For operators only: the key may belong to any account.
    pub async fn set_daily_limit(&self, id: &str, limit: &SetDailyLimit) -> Result<OwnedKey> {
        self.key_command(id, None, KeyCommand::SetDailyLimit(limit.clone())).await
    }

    /// Deletes a key. It no longer counts toward the account's limit of 10 keys.
    pub async fn delete_key(&self, id: &str, account: Option<&str>) -> Result<()> {
        self.key_command(id, account, KeyCommand::Delete).await
    }
}

fn is_unauthorized<T>(result: &Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.status() == Some(401))
}
