//! Accounts and keys for a test, and what comes of charging them.

use std::sync::Arc;

use api_key::ApiKey;
use quota_client::wire::{
    Charge, ChargeRequest, ChargeResponse, CreatedKey, EventKind, Key, NewAccount, NewKey, Outcome, Scope,
};
use quota_client::{BatchConfig, Charger, ClientError, QuotaClient};

use super::Quota;

/// A key in an account of its own.
#[derive(Debug, Clone)]
pub struct TestKey {
    /// The key itself, which must never be seen anywhere else.
    pub secret: String,
    /// As it was listed when it was created.
    pub key: Key,
    /// What charges carry.
    pub sha256: [u8; 32],
}

impl TestKey {
    /// Creates a key with these properties in a new account with a random login.
    ///
    /// # Panics
    /// When quota-svc refuses.
    pub async fn create(client: &QuotaClient, new: &NewKey) -> Self {
        let login = format!("owner-{:016x}", getrandom::u64().expect("the system gives random numbers"));
        let account = client.create_account(&NewAccount { login, credential: None }).await;
        let account = account.expect("a new account").id;
        client.create_key(&account, new).await.expect("a new key").into()
    }

    /// `count` charges of this key.
    #[must_use]
    pub fn charges(&self, count: usize) -> ChargeRequest {
        let charge = Charge { key_sha256: Some(api_key::KeyDigest(self.sha256).to_hex()), demo: None };
        ChargeRequest { charges: vec![charge; count] }
    }

    /// Charges it `count` times in one call and gives the outcomes in order.
    ///
    /// # Panics
    /// When the call fails.
    pub async fn charge(&self, client: &QuotaClient, count: usize) -> Vec<Outcome> {
        let answer = client.charge(&self.charges(count)).await.expect("an answer of quota-svc");
        answer.verdicts.iter().map(|verdict| verdict.outcome).collect()
    }

    /// The key as it is now.
    ///
    /// # Panics
    /// When the call fails.
    pub async fn now(&self, client: &QuotaClient) -> Key {
        client.key(&self.key.id, None).await.expect("the key is there")
    }

    /// How many events of this kind the key has.
    ///
    /// # Panics
    /// When the call fails.
    pub async fn events(&self, client: &QuotaClient, kind: EventKind) -> usize {
        let events = client.events(&self.key.id, None).await.expect("the key is there").events;
        events.iter().filter(|event| event.kind == kind).count()
    }

    /// The name of something of this key in Redis: its record is `k`.
    #[must_use]
    pub fn redis_name(&self, prefix: &str, letter: &str) -> String {
        format!("{prefix}1:{{{}}}:{letter}", self.key.id)
    }
}

impl From<CreatedKey> for TestKey {
    fn from(CreatedKey { secret, key }: CreatedKey) -> Self {
        let sha256 = ApiKey::parse(&secret).expect("a new key is well-formed").digest().0;
        Self { secret, key, sha256 }
    }
}

impl Quota {
    /// A key of scope `full` in an account of its own.
    ///
    /// # Panics
    /// When quota-svc refuses.
    pub async fn new_key(&self) -> TestKey {
        let new = NewKey { name: "test".to_owned(), scope: Scope::Full, daily_limit: None };
        TestKey::create(&self.client(), &new).await
    }

    /// What lookup-svc charges with, under its own deadline of 400 ms.
    ///
    /// # Panics
    /// Never: the URL is well-formed.
    #[must_use]
    pub fn charger(&self) -> Charger {
        Charger::new(self.client(), BatchConfig::default(), Arc::new(()))
    }
}

/// The outcome of the first charge of a call, or why there is none, for [`crate::loadgen::Report::outcomes`].
#[must_use]
pub fn outcome_of(answer: &Result<ChargeResponse, ClientError>) -> String {
    match answer {
        Ok(answer) => {
            answer.verdicts.first().map_or_else(|| "none".to_owned(), |v| format!("{:?}", v.outcome))
        }
        Err(error) => format!("{error}"),
    }
}
