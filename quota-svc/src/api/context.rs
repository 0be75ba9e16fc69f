//! What the handlers share: the store, charging, the limits.

use std::sync::Arc;

use crate::charging::Charging;
use crate::domain::id::KeyId;
use crate::domain::limits::Limits;
use crate::store::{Store, StoreError};

/// What the handlers share.
pub struct Context {
    /// Accounts and keys.
    pub store: Arc<dyn Store>,
    /// Charges.
    pub charging: Charging,
    /// The limits in force.
    pub limits: Limits,
}

impl Context {
    /// Hands a change's result on, and forgets what was known of the key either way: it may have been made.
    pub fn changed<T>(&self, key: KeyId, result: Result<T, StoreError>) -> Result<T, StoreError> {
        self.charging.changed(key);
        result
    }
}
