//! Exports and imports accounts and keys.

use std::sync::Arc;

use poem_openapi::OpenApi;
use poem_openapi::param::Query;
use quota_api::{ExportPage, ImportReport, ImportRequest, LeftOut};
use service_kit::SerdeJson;

use super::Context;
use super::charges::Tag;
use super::error::{ApiError, RequestError, Result};
use crate::accounts::KeyListing;
use crate::domain::id::AccountId;
use crate::domain::key::UnreadableKey;
use crate::domain::transfer::{self, ImportAccount};

/// Maximum number of accounts per page of an export, and per import call.
const MAX_ACCOUNTS: usize = 200;

pub struct TransferApi(pub Arc<Context>);

#[OpenApi(tag = "Tag::Transfer")]
impl TransferApi {
    /// Export accounts and keys, page by page
    ///
    /// For backups and for moving to another store. The pages contain credentials: protect them like the store.
    #[oai(path = "/export", method = "get", operation_id = "exportAccounts")]
    async fn export(
        &self,
        /// `next` of the previous page.
        cursor: Query<Option<String>>,
        /// Approximate number of accounts per page. Default and maximum: 200.
        limit: Query<Option<u32>>,
        /// Leaves out accounts and keys that can't be read, and names them in `left_out`. Without it, they are an error.
        skip_unreadable: Query<Option<bool>>,
    ) -> Result<SerdeJson<ExportPage>> {
        let limit = limit.0.map_or(MAX_ACCOUNTS, |limit| limit as usize).clamp(1, MAX_ACCOUNTS);
        let page = self.0.accounts.page(cursor.0.as_deref(), limit).await?;
        let left_out_account = |id: &AccountId| LeftOut {
            account: id.to_string(),
            key: None,
            reason: "the account's data can't be read".to_owned(),
        };
        let mut left_out: Vec<_> = page.unreadable.iter().map(left_out_account).collect();
        let mut accounts = Vec::new();
        for value in page.accounts {
            let account = value.account.clone();
            let (id, listing) = (AccountId::of(&account.login).to_string(), KeyListing::of(value));
            let left_out_key = |UnreadableKey { id: key, reason, .. }: UnreadableKey| LeftOut {
                account: id.clone(),
                key: Some(key.to_string()),
                reason,
            };
            left_out.extend(listing.unreadable.into_iter().map(left_out_key));
            accounts.push(transfer::export(account, &listing.keys, page.now));
        }
        if let Some(first) = left_out.first()
            && skip_unreadable.0 != Some(true)
        {
            return Err(unreadable_error(first));
        }
        Ok(SerdeJson(ExportPage { accounts, total: page.total, next: page.next, left_out }))
    }

    /// Import accounts and keys
    ///
    /// Existing accounts and keys are not changed, so an interrupted import can be repeated.
    #[oai(path = "/import", method = "post", operation_id = "importAccounts")]
    async fn import(&self, import: SerdeJson<ImportRequest>) -> Result<SerdeJson<ImportReport>> {
        let lines = import.0.accounts;
        if lines.is_empty() || lines.len() > MAX_ACCOUNTS {
            let actual = lines.len();
            return Err(RequestError::BatchSize { max: MAX_ACCOUNTS, items: "accounts", actual }.into());
        }
        let now = self.0.accounts.now().await?;
        let checked = lines.iter().enumerate().map(|(index, line)| {
            ImportAccount::from_export(line, now).map_err(|reason| RequestError::Account(index, reason))
        });
        let accounts: Vec<_> = checked.collect::<Result<_, _>>()?;
        let ids: Vec<_> =
            accounts.iter().flat_map(|account| account.keys.iter().map(|key| key.meta.id())).collect();
        let store = self.0.accounts.clone();
        let report = self.0.complete(async move { store.import(&accounts).await }).await;
        // Even after an error, because some of the keys may have been written.
        for id in ids {
            self.0.invalidate(id);
        }
        Ok(SerdeJson(report?))
    }
}

/// The response without `skip_unreadable`, so that no client takes an incomplete export for a complete one.
fn unreadable_error(first: &LeftOut) -> ApiError {
    let LeftOut { account, key, reason } = first;
    ApiError::internal(match key {
        Some(key) => format!("key {key} of account {account} can't be exported: {reason}"),
        None => format!("account {account} can't be exported: {reason}"),
    })
}
