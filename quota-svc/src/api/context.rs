//! State shared by the request handlers.

use std::sync::Arc;

use crate::charge_service::ChargeService;
use crate::domain::id::KeyId;
use crate::domain::limits::Limits;
use crate::store::{Store, StoreError};

pub struct Context {
    pub store: Arc<dyn Store>,
    pub charge_service: ChargeService,
    pub limits: Limits,
}

impl Context {
    /// Drops the cached denial of `key` after a change and returns the change's `result`. Does so even if that is an
    /// error, because the change may have been applied.
    pub fn invalidate_after<T>(&self, key: KeyId, result: Result<T, StoreError>) -> Result<T, StoreError> {
        self.charge_service.invalidate(key);
        result
    }
}
