//! Rows of accounts and key metadata: JSON, so that a later version can add fields.

use std::collections::BTreeMap;

use api_key::KeyDigest;
use serde::{Deserialize, Serialize};

use crate::domain::account::{Account, Login};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{KeyMeta, KeyName};

#[derive(Debug, Clone)]
pub struct StoredAccount {
    pub account: Account,
    /// SHA-256 of the session ID → expiry, ms.
    pub sessions: BTreeMap<String, i64>,
    pub keys: Vec<KeyId>,
}

#[derive(Serialize, Deserialize)]
struct AccountRow {
    login: String,
    created_at: i64,
    credential: Option<String>,
    credential_version: u32,
    sessions: BTreeMap<String, i64>,
    keys: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct KeyRow {
    account: String,
    name: String,
    hint: String,
    digest: String,
    created_at: i64,
}

impl StoredAccount {
    pub fn to_bytes(&self) -> Vec<u8> {
        let Account { login, created_at, credential, credential_version } = self.account.clone();
        let row = AccountRow {
            login: login.as_str().to_owned(),
            created_at,
            credential,
            credential_version,
            sessions: self.sessions.clone(),
            keys: self.keys.iter().map(KeyId::to_string).collect(),
        };
        serde_json::to_vec(&row).expect("strings and numbers serialize")
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let row: AccountRow = serde_json::from_slice(bytes).ok()?;
        let account = Account {
            login: Login::parse(&row.login).ok()?,
            created_at: row.created_at,
            credential: row.credential,
            credential_version: row.credential_version,
        };
        let keys = row.keys.iter().map(|id| KeyId::from_hex(id).ok()).collect::<Option<_>>()?;
        Some(Self { account, sessions: row.sessions, keys })
    }
}

pub fn meta_to_bytes(meta: &KeyMeta) -> Vec<u8> {
    let row = KeyRow {
        account: meta.account.to_string(),
        name: meta.name.as_str().to_owned(),
        hint: meta.hint.clone(),
        digest: meta.digest.to_hex(),
        created_at: meta.created_at,
    };
    serde_json::to_vec(&row).expect("strings and numbers serialize")
}

pub fn meta_from_bytes(bytes: &[u8]) -> Option<KeyMeta> {
    let row: KeyRow = serde_json::from_slice(bytes).ok()?;
    Some(KeyMeta {
        account: AccountId::from_hex(&row.account).ok()?,
        name: KeyName::parse(&row.name).ok()?,
        hint: row.hint,
        digest: KeyDigest::from_hex(&row.digest).ok()?,
        created_at: row.created_at,
    })
}
