//! Who may call which operation. This is the only place that decides it.

use http::Method;
use quota_client::wire::{Account, Role};

use super::PREFIX;
use crate::accounts::AccountError;

/// What an operation with a session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads what the account owns.
    Read,
    /// Changes what the account owns.
    Change,
    /// Reads or changes what others own.
    Admin,
}

impl Access {
    pub fn of(method: &Method, path: &str) -> Self {
        let operation = path.strip_prefix(PREFIX).unwrap_or(path);
        match *method {
            _ if operation == "/admin" || operation.starts_with("/admin/") => Self::Admin,
            Method::GET | Method::HEAD => Self::Read,
            _ => Self::Change,
        }
    }

    pub fn check(self, account: &Account) -> Result<(), AccountError> {
        match (self, &account.suspension) {
            (Self::Read, _) => Ok(()),
            (_, Some(suspension)) => Err(AccountError::Suspended(suspension.reason.clone())),
            (Self::Admin, None) if account.role != Role::Admin => Err(AccountError::AdminRequired),
            (Self::Change | Self::Admin, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_follows_from_method_and_path() {
        for (method, path, access) in [
            (Method::GET, "/api/v1/keys", Access::Read),
            (Method::PATCH, "/api/v1/keys/1", Access::Change),
            (Method::GET, "/api/v1/admin/overview", Access::Admin),
            (Method::POST, "/api/v1/admin/accounts/1/changes", Access::Admin),
            (Method::GET, "/api/v1/administrators", Access::Read),
        ] {
            assert_eq!(Access::of(&method, path), access, "{method} {path}");
        }
    }
}
