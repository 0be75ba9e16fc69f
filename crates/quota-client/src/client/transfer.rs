//! Export and import, and the pages that listings come in.

use http::Method;
use serde::de::DeserializeOwned;

use super::QuotaClient;
use crate::error::ClientError;
use crate::wire::{ExportPage, ImportReport, ImportRequest};

impl QuotaClient {
    /// A page of at most `limit` accounts with all that belongs to them.
    pub async fn export(&self, cursor: Option<&str>, limit: u32) -> Result<ExportPage, ClientError> {
        self.page(&["export"], cursor, limit).await
    }

    /// Adds accounts and keys; what exists already stays as it is, so an import may be repeated.
    pub async fn import(&self, accounts: &ImportRequest) -> Result<ImportReport, ClientError> {
        self.send(Method::POST, &["import"], &[], accounts).await
    }

    pub(super) async fn page<T: DeserializeOwned>(
        &self,
        path: &[&str],
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<T, ClientError> {
        let limit = limit.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        self.get(path, &query).await
    }
}
