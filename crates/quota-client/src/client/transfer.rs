//! Calls for export and import, and the paging that exports and account lists share.

use http::Method;
use serde::de::DeserializeOwned;

use super::QuotaClient;
use crate::error::ClientError;
use quota_api::{ExportPage, ImportReport, ImportRequest};

impl QuotaClient {
    /// Exports a page of about `limit` accounts with their credentials and keys. `cursor` is the `next` of the
    /// previous page. Accounts and keys that can't be read are left out and named in `left_out`.
    pub async fn export(&self, cursor: Option<&str>, limit: u32) -> Result<ExportPage, ClientError> {
        self.page(&["export"], cursor, limit, &[("skip_unreadable", "true")]).await
    }

    /// Imports accounts and keys. Existing ones are not changed, so repeating an import is safe.
    pub async fn import(&self, accounts: &ImportRequest) -> Result<ImportReport, ClientError> {
        self.send_json(Method::POST, &["import"], &[], accounts).await
    }

    pub(super) async fn page<T: DeserializeOwned>(
        &self,
        path: &[&str],
        cursor: Option<&str>,
        limit: u32,
        more: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        let limit = limit.to_string();
        let mut query = [&[("limit", limit.as_str())], more].concat();
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        self.get(path, &query).await
    }
}
