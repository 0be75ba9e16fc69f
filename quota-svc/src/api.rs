//! The operations of the internal API: reads and commands. [`router`](crate::router) lists them.

mod charges;
mod error;

use std::sync::Arc;

use api_key::{ApiKey, KeyDigest};
pub use error::ApiError;
use error::Result;
use poem::{IntoResponse, Response};
use quota_api::{
    Account, AccountDetails, AccountPage, Command, CommandRequest, ContactStatus, CreatedKey, Credential,
    DEFAULT_OVERLAP, EventList, ExportPage, ExportedAccount, ImportReport, ImportRequest, KeyChange, KeyList,
    KeyState, LeftOut, Limits, MAX_OVERLAP, NewAccount, NewKey, Overview, OwnedKey, Rejection, SettingsError,
    Status, StoredAccount, Usage, UsageCount,
};
use serde::{Deserialize, Serialize};
use service_kit::SerdeJson;

use crate::accounts::{Accounts, KeyListing, Seen};
use crate::domain::account::{
    Login, MAX_CONTACT, MAX_CREDENTIAL, MAX_REASON, MAX_SESSION_TTL, checked_change, contact_fits,
};
use crate::domain::event;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::StoredKey;
use crate::domain::time::day_of;
use crate::domain::transfer::{self, ImportAccount};
use crate::domain::value::KeyDraft;
use crate::metrics::Metrics;
use crate::store::{Store, StoreError};

/// For the `docs` field of errors: the internal API has no documentation for its clients, which are our own.
pub const NO_DOCS: &str = "";

/// Maximum number of accounts per page of a list.
const MAX_PAGE: u32 = 500;
/// Maximum number of accounts per page of an export.
const MAX_EXPORT: u32 = 200;
/// Accounts per page of a count: few enough for a fast response, because all their keys are read.
const COUNT_PAGE: usize = 100;
const LIMIT_TOO_LOW: &str = "a daily limit must be at least 1";
/// Maximum number of accounts per import.
const MAX_IMPORT: usize = 200;
/// Maximum number of notices per claim.
const MAX_CLAIMS: u32 = 100;

pub struct Context {
    pub accounts: Arc<Accounts>,
    pub limits: Limits,
    pub metrics: Metrics,
}

/// The query of a read.
#[derive(Deserialize)]
pub struct Query {
    /// Of a page: `next` of the previous one.
    cursor: Option<String>,
    /// Of a page: approximate number of accounts.
    limit: Option<u32>,
    /// Of a list of accounts: only the one with this login.
    login: Option<String>,
    /// Of a key: ID of the account that must own it.
    account: Option<String>,
}

impl Query {
    fn limit(&self, max: u32) -> usize {
        self.limit.unwrap_or(max).clamp(1, max) as usize
    }
}

/// Reads.
impl Context {
    pub fn status(&self) -> Status {
        Status { store_unavailable: self.accounts.unavailable_reason(), limits: self.limits }
    }

    /// The state of the service in numbers. Takes about the same time in a store of any size.
    pub async fn overview(&self) -> Result<Overview> {
        let store: &dyn Store = &**self.accounts;
        let (ids, demo_used) = tokio::try_join!(store.accounts(None, 1), store.demo_used())?;
        Ok(Overview {
            accounts: ids.total,
            demo_used,
            demo_limit: self.limits.demo,
            store: store.kind().to_owned(),
            store_problem: store.unsafe_settings(),
        })
    }

    /// A page of all accounts. It can be slightly larger or smaller than the limit. The last one has no `next`.
    pub async fn list_accounts(&self, query: Query) -> Result<AccountPage> {
        if let Some(login) = query.login {
            return self.find_account(&login).await;
        }
        let page = self.accounts.page(query.cursor.as_deref(), query.limit(MAX_PAGE)).await?;
        let accounts = page.accounts.into_iter().map(|value| view(value.account)).collect();
        let unreadable = page.unreadable.iter().map(AccountId::to_string).collect();
        Ok(AccountPage { accounts, total: page.total, next: page.next, unreadable })
    }

    async fn find_account(&self, login: &str) -> Result<AccountPage> {
        let login = parse_login(login)?;
        let accounts = match self.accounts.account(login.account_id()).await {
            Ok(seen) => vec![view(seen.value.account)],
            Err(StoreError::Rejected(Rejection::AccountNotFound)) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(AccountPage { total: accounts.len() as u64, accounts, next: None, unreadable: Vec::new() })
    }

    /// An account with its contact, the results of the last deliveries, and what admins and the operator did with it in the
    /// last 31 days, newest first.
    pub async fn account(&self, id: &str) -> Result<AccountDetails> {
        let Seen { value, now } = self.accounts.account(account_id(id)?).await?;
        let mut account = value.account;
        let (contact, mut events) = (account.contact.clone(), std::mem::take(&mut account.standing.events));
        events.retain(|event| event::is_current(event, now));
        let contact = ContactStatus { contact, last_deliveries: value.outbox.last_deliveries };
        Ok(AccountDetails { account: view(account), contact, events })
    }

    /// An account's credential, with its version, which a change must name to detect a concurrent one.
    pub async fn credential(&self, id: &str) -> Result<Credential> {
        let account = self.accounts.account(account_id(id)?).await?.value.account;
        Ok(Credential { credential: account.credential, version: account.credential_version })
    }

    /// The account of an active session.
    pub async fn session(&self, id: &str, session: &str) -> Result<Account> {
        let Seen { value, now } = self.accounts.account(account_id(id)?).await?;
        match value.has_session(session, now) {
            true => Ok(view(value.account)),
            false => Err(Rejection::SessionNotFound.into()),
        }
    }

    /// An account's keys. Those that can't be read are listed separately.
    pub async fn keys(&self, id: &str) -> Result<KeyList> {
        let Seen { value: listing, now } = self.accounts.keys(account_id(id)?).await?;
        let keys = listing.keys.iter().map(|key| key.view(&self.limits, now)).collect();
        Ok(KeyList { keys, unreadable: listing.unreadable })
    }

    pub async fn key(&self, id: &str, query: Query) -> Result<OwnedKey> {
        let (id, owner) = key_ids(id, query.account.as_deref())?;
        Ok(self.owned(&self.accounts.key(id, owner).await?))
    }

    /// The key's allowed requests of the last 31 days.
    pub async fn usage(&self, id: &str, query: Query) -> Result<Usage> {
        let (id, owner) = key_ids(id, query.account.as_deref())?;
        let key = self.accounts.key(id, owner).await?;
        Ok(Usage { days: key.record.usage(key.now) })
    }

    /// The key's history of the last 31 days, newest first.
    pub async fn events(&self, id: &str, query: Query) -> Result<EventList> {
        let (id, owner) = key_ids(id, query.account.as_deref())?;
        Ok(EventList { events: self.accounts.events(id, owner).await? })
    }

    /// The keys of a page of accounts, counted. The counts of all pages together are those of the service.
    pub async fn count_keys(&self, query: Query) -> Result<UsageCount> {
        let page = self.accounts.page(query.cursor.as_deref(), COUNT_PAGE).await?;
        let accounts = page.accounts.len() + page.unreadable.len();
        let mut count = UsageCount { accounts: accounts as u64, next: page.next, ..UsageCount::default() };
        let today = day_of(page.now);
        for value in page.accounts {
            count.suspended += u64::from(value.account.standing.suspension.is_some());
            for key in value.keys.into_values() {
                let Ok(key) = key else {
                    count.unreadable += 1;
                    continue;
                };
                match key.record.state {
                    KeyState::Active => count.active += 1,
                    KeyState::Paused => count.paused += 1,
                    KeyState::Inactive => count.inactive += 1,
                }
                count.requests_today += u64::from(key.record.used_on(today, today));
            }
        }
        Ok(count)
    }

    /// A page of all accounts with their credentials and keys. What can't be read is named in `left_out`.
    pub async fn export(&self, query: Query) -> Result<ExportPage> {
        let page = self.accounts.page(query.cursor.as_deref(), query.limit(MAX_EXPORT)).await?;
        let leave_out = |id: AccountId, key, reason| LeftOut { account: id.to_string(), key, reason };
        let unreadable = "the account's data can't be read";
        let unreadable = page.unreadable.iter().map(|id| leave_out(*id, None, unreadable.to_owned()));
        let (mut accounts, mut left_out) = (Vec::new(), unreadable.collect::<Vec<_>>());
        for value in page.accounts {
            let (id, account, listing) = (value.id(), value.account.clone(), KeyListing::of(value));
            let keys = listing.unreadable.into_iter();
            left_out.extend(keys.map(|key| leave_out(id, Some(key.id), key.reason)));
            accounts.push(transfer::export(account, &listing.keys, page.now));
        }
        Ok(ExportPage { accounts, total: page.total, next: page.next, left_out })
    }
}

/// Commands.
impl Context {
    /// Runs the command in a body to its end, even if the client disconnects: some take several commits.
    pub async fn command(self: &Arc<Self>, body: &[u8]) -> Result<Response> {
        let request = serde_json::from_slice(body)
            .map_err(|error| ApiError::invalid("bad_request", format!("not a valid command: {error}")))?;
        let context = self.clone();
        match tokio::spawn(async move { context.run(request).await }).await {
            Ok(result) => result,
            // Handled like a panic of the request itself.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    async fn run(&self, CommandRequest { actor, command }: CommandRequest) -> Result<Response> {
        let accounts = &self.accounts;
        Ok(match command {
            Command::CreateAccount(NewAccount { login, credential }) => {
                let login = parse_login(&login)?;
                credential.as_deref().map_or(Ok(()), check_credential)?;
                reply(view(accounts.create_account(&login, credential.as_deref()).await?))
            }
            Command::DeleteAccount { account, expected_credential } => {
                reply(accounts.delete_account(account_id(&account)?, expected_credential.as_deref()).await?)
            }
            Command::ChangeAccount { account, change } => {
                let change = checked_change(&change).ok_or_else(|| {
                    let message = format!(
                        "a suspension needs a reason of 1 to {MAX_REASON} characters, without invisible characters; no \
                         other change takes a reason"
                    );
                    ApiError::invalid("invalid_reason", message)
                })?;
                reply(view(accounts.change_account(account_id(&account)?, &change, &actor).await?))
            }
            Command::SetCredential { account, change } => {
                check_credential(&change.credential)?;
                let version = accounts.set_credential(account_id(&account)?, &change).await?;
                reply(Credential { credential: Some(change.credential), version })
            }
            Command::SetContact { account, expected, contact } => {
                let message = format!("a contact must be at most {MAX_CONTACT} bytes of JSON");
                check(contact_fits(&contact), "invalid_contact", message)?;
                reply(accounts.set_contact(account_id(&account)?, &expected, &contact).await?)
            }
            Command::AddSession { account, session } => {
                let id = KeyDigest::from_hex(&session.id_sha256);
                id.map_err(|error| ApiError::invalid("invalid_session", error))?;
                let message = format!("ttl_seconds must be 1 to {MAX_SESSION_TTL}");
                check((1..=MAX_SESSION_TTL).contains(&session.ttl_seconds), "invalid_session", message)?;
                reply(accounts.add_session(account_id(&account)?, &session).await?)
            }
            Command::RevokeSession { account, session } => {
                reply(accounts.revoke_session(account_id(&account)?, &session).await?)
            }
            Command::CreateKey { account, key: NewKey { settings, daily_limit } } => {
                check(daily_limit != Some(0), "invalid_limit", LIMIT_TOO_LOW)?;
                let settings = settings.checked().map_err(invalid_settings)?;
                let account = account_id(&account)?;
                let secret = account.generate_key().map_err(ApiError::internal)?;
                let new = NewKey { settings, daily_limit };
                let draft = KeyDraft { new, digest: secret.digest(), hint: secret.hint(), actor };
                reply(self.created(&secret, &accounts.create_key(account, draft).await?))
            }
            Command::ChangeKey { id, account, mut change } => {
                let (id, owner) = key_ids(&id, account.as_deref())?;
                if let KeyChange::Settings(settings) = &mut change {
                    *settings = settings.clone().checked().map_err(invalid_settings)?;
                }
                check(change != KeyChange::DailyLimit(Some(0)), "invalid_limit", LIMIT_TOO_LOW)?;
                reply(self.owned(&accounts.change_key(id, owner, &change, &actor).await?))
            }
            Command::RotateKey { id, account, rotation } => {
                let (id, owner) = key_ids(&id, account.as_deref())?;
                let overlap = rotation.overlap.unwrap_or(DEFAULT_OVERLAP);
                let message = format!("an overlap must be at most {MAX_OVERLAP} seconds (7 days)");
                check(overlap <= MAX_OVERLAP, "invalid_overlap", message)?;
                let secret = id.generate_key().map_err(ApiError::internal)?;
                reply(self.created(&secret, &accounts.rotate_key(id, owner, &secret, overlap, &actor).await?))
            }
            Command::DeleteKey { id, account } => {
                let (id, owner) = key_ids(&id, account.as_deref())?;
                reply(accounts.delete_key(id, owner).await?)
            }
            Command::Import(ImportRequest { accounts }) => reply(self.import(&accounts).await?),
            Command::ClaimNotices { limit } => {
                let claims = accounts.claim_notices(limit.clamp(1, MAX_CLAIMS) as usize).await?;
                self.metrics.record_dropped_notices(claims.dropped);
                reply(claims.notices)
            }
            Command::FinishNotice(result) => {
                accounts.finish_notice(account_id(&result.account)?, &result).await?;
                reply(())
            }
        })
    }

    fn created(&self, secret: &ApiKey, key: &Seen<StoredKey>) -> CreatedKey {
        CreatedKey { secret: secret.expose().to_owned(), key: key.view(&self.limits, key.now) }
    }

    fn owned(&self, key: &Seen<StoredKey>) -> OwnedKey {
        OwnedKey { account: key.meta.account.to_string(), key: key.view(&self.limits, key.now) }
    }

    async fn import(&self, lines: &[ExportedAccount]) -> Result<ImportReport> {
        check_count(lines.len(), MAX_IMPORT, "accounts")?;
        let now = self.accounts.now().await?;
        let checked = lines.iter().enumerate().map(|(index, line)| {
            let invalid =
                |reason| ApiError::invalid("invalid_account", format!("accounts[{index}]: {reason}"));
            ImportAccount::from_export(line, now).map_err(invalid)
        });
        let accounts: Vec<_> = checked.collect::<Result<_>>()?;
        Ok(self.accounts.import(&accounts).await?)
    }
}

fn check(is_valid: bool, code: &'static str, message: impl ToString) -> Result<()> {
    if is_valid { Ok(()) } else { Err(ApiError::invalid(code, message)) }
}

fn check_credential(text: &str) -> Result<()> {
    let message = format!("a credential must be 1 to {MAX_CREDENTIAL} bytes long");
    check((1..=MAX_CREDENTIAL).contains(&text.len()), "invalid_credential", message)
}

/// Checks the number of items in a call.
fn check_count(actual: usize, max: usize, items: &str) -> Result<()> {
    if (1..=max).contains(&actual) {
        return Ok(());
    }
    let message = format!("a call must have 1 to {max} {items}; this one has {actual}");
    Err(ApiError::invalid("batch_too_large", message))
}

fn parse_login(text: &str) -> Result<Login> {
    Login::parse(text).map_err(|error| ApiError::invalid("invalid_login", error))
}

fn invalid_settings(error: SettingsError) -> ApiError {
    ApiError::invalid(error.as_str(), error)
}

pub fn reply(body: impl Serialize + Send) -> Response {
    SerdeJson(body).into_response()
}

/// Parses an account's ID. A malformed one gets 404, like an unknown one.
fn account_id(text: &str) -> Result<AccountId> {
    AccountId::from_hex(text).map_err(|_| Rejection::AccountNotFound.into())
}

/// Parses a key's ID, and that of the account that must own it, if it is given. A malformed one gets 404, like an unknown one.
fn key_ids(key: &str, owner: Option<&str>) -> Result<(KeyId, Option<AccountId>)> {
    let key = KeyId::from_hex(key).map_err(|_| Rejection::KeyNotFound)?;
    let owner = owner.map(AccountId::from_hex).transpose();
    Ok((key, owner.map_err(|_| Rejection::KeyNotFound)?))
}

fn view(account: StoredAccount) -> Account {
    let StoredAccount { login, created_at, credential_version, standing, .. } = account;
    let id = AccountId::of(&login).to_string();
    let (role, suspension) = (standing.role, standing.suspension);
    Account { id, login, created_at, credential_version, role, suspension }
}
