//! Export and import of accounts and keys.

use std::sync::Arc;

use futures_util::future::try_join_all;
use poem_openapi::OpenApi;
use poem_openapi::param::Query;
use quota_client::wire::{ExportPage, ExportedAccount, ImportReport, ImportRequest};
use service_kit::SerdeJson;

use super::charges::Tag;
use super::context::Context;
use super::error::ApiError;
use crate::domain::account::Account;
use crate::present;
use crate::store::StoreError;

/// The most accounts on a page of an export, and in an import.
const PAGE: usize = 200;

/// Export and import.
pub struct TransferApi(pub Arc<Context>);

#[OpenApi(tag = "Tag::Transfer")]
impl TransferApi {
    /// Export accounts and keys, page by page
    #[oai(path = "/export", method = "get", operation_id = "exportAccounts")]
    async fn export(
        &self,
        /// Where to go on: `next` of the page before.
        cursor: Query<Option<String>>,
        /// About how many accounts to show, at most 200.
        limit: Query<Option<u32>>,
    ) -> Result<SerdeJson<ExportPage>, ApiError> {
        let limit = limit.0.map_or(PAGE, |limit| limit as usize).clamp(1, PAGE);
        let page = self.0.store.accounts(cursor.0.as_deref(), limit).await?;
        let now = self.0.store.now().await?;
        let lines = page.items.into_iter().map(|account| self.export_one(account, now));
        let accounts = try_join_all(lines).await?.into_iter().flatten().collect();
        Ok(SerdeJson(ExportPage { accounts, total: page.total, next: page.next }))
    }

    /// Import accounts and keys
    ///
    /// What is there already stays as it is, so an import that was cut short can be done again.
    #[oai(path = "/import", method = "post", operation_id = "importAccounts")]
    async fn import(&self, import: SerdeJson<ImportRequest>) -> Result<SerdeJson<ImportReport>, ApiError> {
        let lines = import.0.accounts;
        if lines.is_empty() || lines.len() > PAGE {
            let message = format!("a call takes 1 to {PAGE} accounts, this one has {}", lines.len());
            return Err(ApiError::invalid("batch_too_large", message));
        }
        let now = self.0.store.now().await?;
        let checked = lines.iter().enumerate().map(|(index, line)| {
            let invalid = |why| ApiError::invalid("invalid_account", format!("accounts[{index}]: {why}"));
            present::imported(line, now).map_err(invalid)
        });
        let accounts: Vec<_> = checked.collect::<Result<_, _>>()?;
        let report = self.0.store.import(&accounts).await?;
        for key in accounts.iter().flat_map(|account| &account.keys) {
            self.0.charging.changed(key.meta.id());
        }
        Ok(SerdeJson(report))
    }
}

impl TransferApi {
    async fn export_one(&self, account: Account, now: i64) -> Result<Option<ExportedAccount>, StoreError> {
        match self.0.store.keys(account.id()).await {
            Ok(keys) => Ok(Some(present::exported(account, &keys, now))),
            // Deleted since it was listed.
            Err(StoreError::AccountNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
