//! Creates accounts and keys for tests, and charges the keys.

use std::sync::Arc;

use api_key::{ApiKey, KeyDigest};
use quota_client::wire::{
    Charge, CreatedKey, EventKind, Key, NewAccount, NewKey, Outcome, RateLimit, Scope, Verdict,
};
use quota_client::{BatchConfig, Charger, ClientError, QuotaClient};

use super::Quota;
use crate::cluster::RedisCluster;
use crate::redis::Redis;

/// A key in its own account.
#[derive(Debug, Clone)]
pub struct TestKey {
    /// The API key in plain text.
    pub secret: String,
    /// ID of its account.
    pub account: String,
    /// The key as returned when it was created.
    pub key: Key,
    /// The digest by which it is charged.
    pub digest: KeyDigest,
}

impl TestKey {
    /// Creates a key in a new account with a random login.
    pub async fn create(client: &QuotaClient, new: &NewKey) -> Self {
        let login = format!("owner-{:016x}", getrandom::u64().expect("random numbers available"));
        let account = client.create_account(&NewAccount { login, credential: None }).await;
        let account = account.expect("new account").id;
        let created = client.create_key(&account, new).await.expect("new key");
        Self::new(created, account)
    }

    /// A key that was created in this account.
    #[must_use]
    pub fn new(CreatedKey { secret, key }: CreatedKey, account: String) -> Self {
        let digest = ApiKey::parse(&secret).expect("well-formed key").digest();
        Self { secret, account, key, digest }
    }

    /// A batch of `count` charges of this key.
    #[must_use]
    pub fn charges(&self, count: usize) -> Vec<Charge> {
        vec![Charge::Key { digest: self.digest, origin: None }; count]
    }

    /// Charges the key `count` times in one call and returns the outcomes in order.
    pub async fn charge(&self, client: &QuotaClient, count: usize) -> Vec<Outcome> {
        let verdicts = client.charge(&self.charges(count)).await.expect("response of quota-svc");
        verdicts.iter().map(|verdict| verdict.outcome()).collect()
    }

    /// Reads the current state of the key.
    pub async fn fetch(&self, client: &QuotaClient) -> Key {
        client.key(&self.key.id, None).await.expect("key exists").key
    }

    /// Number of events of this kind in the history of the key.
    pub async fn events(&self, client: &QuotaClient, kind: EventKind) -> usize {
        let events = client.events(&self.key.id, None).await.expect("key exists").events;
        events.iter().filter(|event| event.kind == kind).count()
    }

    /// The name of the record in Redis, which is on one of these servers.
    ///
    /// # Panics
    /// If it is on none of them.
    pub async fn record(&self, servers: &[Redis]) -> String {
        for server in servers {
            if let Some(name) = server.find(&format!("{}:k", self.key.id)).await {
                return name;
            }
        }
        panic!("no server has a record of key {}", self.key.id);
    }
}

impl Quota {
    /// Creates a key with scope `full` in a new account.
    pub async fn new_key(&self) -> TestKey {
        let new = NewKey::new("test", Scope::Full);
        TestKey::create(&self.client(), &new).await
    }

    /// Creates one key per master of a cluster with three masters, in the order of the masters.
    pub async fn key_on_each_master(&self, cluster: &RedisCluster) -> [TestKey; 3] {
        let mut keys = [const { None }; 3];
        while keys.iter().any(Option::is_none) {
            let key = self.new_key().await;
            let master = cluster.master_of(&key.record(&cluster.nodes).await).await;
            keys[master] = Some(key);
        }
        keys.map(|key| key.expect("every master has a key"))
    }

    /// The batching charger that lookup-svc uses, with its default deadline of 400 ms.
    #[must_use]
    pub fn charger(&self) -> Charger {
        Charger::new(self.client().charge_service(), BatchConfig::default(), Arc::new(()))
    }
}

/// The rate limit of a verdict, if it has one.
#[must_use]
pub const fn rate_limit(verdict: &Verdict) -> Option<RateLimit> {
    match verdict {
        Verdict::Allowed { rate_limit, .. } => Some(*rate_limit),
        Verdict::Paused(exceeded) | Verdict::BurstExceeded(exceeded) | Verdict::DailyExceeded(exceeded) => {
            Some(exceeded.rate_limit())
        }
        _ => None,
    }
}

/// The requests left, if the verdict has a rate limit.
#[must_use]
pub fn remaining(verdict: &Verdict) -> Option<u32> {
    rate_limit(verdict).map(|rate_limit| rate_limit.remaining)
}

/// The outcome of the first charge of a call, or the error, for [`crate::loadgen::Report::outcomes`].
#[must_use]
pub fn first_outcome(result: &Result<Vec<Verdict>, ClientError>) -> String {
    match result {
        Ok(verdicts) => verdicts.first().map_or_else(|| "none".to_owned(), |v| format!("{:?}", v.outcome())),
        Err(error) => format!("{error}"),
    }
}
