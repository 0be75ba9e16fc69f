//! Commands: checks what each one contains, and makes the change.

use std::sync::Arc;

use api_key::{ApiKey, KeyDigest};
use poem::Response;
use quota_api::{
    Actor, Command, CommandRequest, CreatedKey, Credential, DEFAULT_OVERLAP, ImportReport, ImportRequest,
    KeyCommand, MAX_OVERLAP, NewAccount, NewKey,
};

use super::Context;
use super::error::{ApiError, RequestError, Result};
use super::reads::{account_id, key_ids, owned_key, reply, view};
use crate::accounts::Seen;
use crate::domain::account::{Login, MAX_CREDENTIAL, MAX_SESSION_TTL, checked_change, contact_fits};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{KeyChange, StoredKey};
use crate::domain::notice::Queue;
use crate::domain::transfer::ImportAccount;
use crate::domain::value::KeyDraft;
use crate::store::StoreError;

/// Maximum number of accounts per import.
const MAX_IMPORT: usize = 200;
/// Maximum number of notices per claim.
const MAX_CLAIMS: u32 = 100;

impl Context {
    /// Runs the command in a body to its end, even if the client disconnects: some take several commits.
    pub async fn command(self: &Arc<Self>, body: &[u8]) -> Result<Response> {
        let request = serde_json::from_slice(body).map_err(RequestError::Command)?;
        let context = self.clone();
        match tokio::spawn(async move { context.run(request).await }).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                // Handled like a panic of the request itself.
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(canceled) => Err(StoreError::Unavailable(canceled.into()).into()),
            },
        }
    }

    async fn run(&self, CommandRequest { actor, command }: CommandRequest) -> Result<Response> {
        let accounts = &self.accounts;
        Ok(match command {
            Command::CreateAccount(NewAccount { login, credential }) => {
                let login = Login::parse(&login).map_err(RequestError::Login)?;
                credential.as_deref().map_or(Ok(()), check_credential)?;
                reply(view(accounts.create_account(&login, credential.as_deref()).await?))
            }
            Command::DeleteAccount { account, expected_credential } => {
                reply(accounts.delete_account(account_id(&account)?, expected_credential.as_deref()).await?)
            }
            Command::ChangeAccount { account, change } => {
                let change = checked_change(&change).ok_or(RequestError::Reason)?;
                reply(view(accounts.change_account(account_id(&account)?, &change, &actor).await?))
            }
            Command::SetCredential { account, change } => {
                check_credential(&change.credential)?;
                let version = accounts.set_credential(account_id(&account)?, &change).await?;
                reply(Credential { credential: Some(change.credential), version })
            }
            Command::SetContact { account, expected, contact } => {
                if !contact_fits(&contact) {
                    return Err(RequestError::Contact.into());
                }
                reply(accounts.set_contact(account_id(&account)?, &expected, &contact).await?)
            }
            Command::AddSession { account, session } => {
                KeyDigest::from_hex(&session.id_sha256).map_err(RequestError::Session)?;
                if !(1..=MAX_SESSION_TTL).contains(&session.ttl_seconds) {
                    return Err(RequestError::SessionTtl.into());
                }
                reply(accounts.add_session(account_id(&account)?, &session).await?)
            }
            Command::RevokeSession { account, session } => {
                reply(accounts.revoke_session(account_id(&account)?, &session).await?)
            }
            Command::CreateKey { account, key: NewKey { settings, daily_limit } } => {
                check_limit(daily_limit)?;
                let settings = settings.checked().map_err(RequestError::Settings)?;
                let account = account_id(&account)?;
                let secret = account.generate_key().map_err(ApiError::internal)?;
                let (new, digest) = (NewKey { settings, daily_limit }, secret.digest());
                let draft = KeyDraft { new, digest, hint: secret.hint(), actor };
                reply(self.created(&secret, &accounts.create_key(account, draft).await?))
            }
            Command::ChangeKey { id, account, change } => {
                let (id, owner) = key_ids(&id, account.as_deref())?;
                return self.change_key(id, owner, change, &actor).await;
            }
            Command::Import(ImportRequest { accounts }) => reply(self.import(&accounts).await?),
            Command::ClaimNotices { limit } => {
                let claims = accounts.claim_notices(limit.clamp(1, MAX_CLAIMS) as usize).await?;
                self.metrics.record_dropped_notices(claims.dropped);
                reply(claims.notices)
            }
            Command::FinishNotice(result) => {
                let queue = Queue { account: account_id(&result.account)?, channel: result.channel };
                accounts.finish_notice(queue, result).await?;
                reply(())
            }
        })
    }

    async fn change_key(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        change: KeyCommand,
        actor: &Actor,
    ) -> Result<Response> {
        let change = match change {
            KeyCommand::SetState(change) => KeyChange::State(change),
            KeyCommand::SetSettings(change) => {
                KeyChange::Settings(change.checked().map_err(RequestError::Settings)?)
            }
            KeyCommand::SetDailyLimit(limit) => {
                check_limit(limit.daily_limit)?;
                KeyChange::DailyLimit(limit.daily_limit)
            }
            KeyCommand::Rotate(rotation) => {
                let overlap = rotation.overlap.unwrap_or(DEFAULT_OVERLAP);
                if overlap > MAX_OVERLAP {
                    return Err(RequestError::Overlap.into());
                }
                let secret = id.generate_key().map_err(ApiError::internal)?;
                let copy = self.accounts.rotate_key(id, owner, &secret, overlap, actor).await?;
                return Ok(reply(self.created(&secret, &copy)));
            }
            KeyCommand::Delete => return Ok(reply(self.accounts.delete_key(id, owner).await?)),
        };
        let key = self.accounts.change_key(id, owner, &change, actor).await?;
        Ok(reply(owned_key(&key, &self.limits)))
    }

    fn created(&self, secret: &ApiKey, key: &Seen<StoredKey>) -> CreatedKey {
        CreatedKey { secret: secret.expose().to_owned(), key: key.view(&self.limits, key.now) }
    }

    async fn import(&self, lines: &[quota_api::ExportedAccount]) -> Result<ImportReport> {
        if lines.is_empty() || lines.len() > MAX_IMPORT {
            let actual = lines.len();
            return Err(RequestError::BatchSize { max: MAX_IMPORT, items: "accounts", actual }.into());
        }
        let now = self.accounts.now().await?;
        let checked = lines.iter().enumerate().map(|(index, line)| {
            ImportAccount::from_export(line, now).map_err(|reason| RequestError::Account(index, reason))
        });
        let accounts: Vec<_> = checked.collect::<Result<_, _>>()?;
        Ok(self.accounts.import(&accounts).await?)
    }
}

fn check_credential(credential: &str) -> Result<(), RequestError> {
    match credential.is_empty() || credential.len() > MAX_CREDENTIAL {
        true => Err(RequestError::Credential),
        false => Ok(()),
    }
}

fn check_limit(limit: Option<u32>) -> Result<(), RequestError> {
    if limit == Some(0) { Err(RequestError::DailyLimit) } else { Ok(()) }
}
