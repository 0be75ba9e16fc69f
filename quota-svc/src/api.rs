//! The operations of the internal API, and the checks of a request before them.

mod accounts;
pub mod body_limits;
mod charges;
mod error;
mod guard;
mod keys;
mod notices;
mod overview;
mod transfer;

use std::sync::Arc;

pub use accounts::AccountsApi;
pub use charges::ChargesApi;
pub use error::examples;
pub use guard::Guard;
pub use keys::KeysApi;
pub use notices::NoticesApi;
pub use overview::OverviewApi;
use quota_api::Limits;
pub use transfer::TransferApi;

use crate::accounts::Accounts;
use crate::announcer::Announcer;
use crate::denial_cache::DenialCache;
use crate::domain::id::KeyId;
use crate::domain::verdict::Subject;
use crate::metrics::Metrics;
use crate::store::{Result, StoreError};

/// The `docs` field of errors: the OpenAPI document, which quota-svc itself serves.
pub(crate) const DOCS: &str = "/openapi.json";

pub struct Context {
    pub accounts: Arc<Accounts>,
    pub limits: Limits,
    pub metrics: Metrics,
    pub denial_cache: DenialCache,
    pub announcer: Announcer,
}

impl Context {
    /// Runs a change that takes several store calls to its end, even if the client disconnects in between: half a
    /// change would be left to the next reader.
    pub async fn complete<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        match tokio::spawn(change).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                // Handled like a panic of the request itself.
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(canceled) => Err(StoreError::Unavailable(canceled.into())),
            },
        }
    }

    /// Drops the cached denial of a changed key.
    pub fn invalidate(&self, key: KeyId) {
        self.denial_cache.invalidate(&Subject::Key(key));
    }

    /// Drops the cached denial of `key` after a change and returns the change's `result`. Does so even if that is an
    /// error, because the change may have been applied.
    pub fn invalidate_after<T>(&self, key: KeyId, result: Result<T>) -> Result<T> {
        self.invalidate(key);
        result
    }
}
