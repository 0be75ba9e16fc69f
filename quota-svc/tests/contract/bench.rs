//! A store with a clock in our hands, and the verbs the behaviours are written in.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use api_key::ApiKey;
use quota_client::wire::{Outcome, Scope, Verdict};
use quota_svc::domain::account::Login;
use quota_svc::domain::id::{AccountId, KeyId};
use quota_svc::domain::key::KeyName;
use quota_svc::domain::limits::Limits;
use quota_svc::domain::time::Clock;
use quota_svc::domain::verdict::{Entry, Subject};
use quota_svc::store::embedded::EmbeddedStore;
use quota_svc::store::redis::{ConfirmWrites, Credentials, RedisOptions, RedisStore};
use quota_svc::store::{KeyDraft, Store, StoreError};

/// Noon of a day far from any other test's.
pub const NOON: i64 = 20_000 * DAY + DAY / 2;
pub const DAY: i64 = 86_400_000;

pub struct Bench {
    pub store: Arc<dyn Store>,
    pub limits: Limits,
    clock: Arc<AtomicI64>,
}

impl Bench {
    pub fn embedded() -> Self {
        Self::embedded_with(Limits::default())
    }

    pub fn embedded_with(limits: Limits) -> Self {
        let clock = Arc::new(AtomicI64::new(NOON));
        let store = EmbeddedStore::in_memory(limits, Clock::Manual(clock.clone())).expect("memory is there");
        Self { store: Arc::new(store), limits, clock }
    }

    pub async fn redis(url: &str) -> Self {
        Self::redis_with(url, Limits::default()).await
    }

    pub async fn redis_with(url: &str, limits: Limits) -> Self {
        let clock = Arc::new(AtomicI64::new(NOON));
        let options = RedisOptions {
            url: url.to_owned(),
            credentials: Credentials::default(),
            key_prefix: format!("test-{}:", random()),
            // Busy test machines are slow; deadlines have tests of their own.
            store_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            confirm_writes: ConfirmWrites::Auto,
            limits,
            clock: Clock::Manual(clock.clone()),
        };
        let store = Arc::new(RedisStore::start(options).expect("the URL is right"));
        let up = async || store.trouble().is_none().then_some(());
        e2e::wait::eventually(Duration::from_secs(10), "the store to be connected", up).await;
        Self { store, limits, clock }
    }

    pub fn now(&self) -> i64 {
        self.clock.load(Ordering::SeqCst)
    }

    pub fn set_time(&self, now: i64) {
        self.clock.store(now, Ordering::SeqCst);
    }

    pub fn step(&self, by: i64) {
        self.clock.fetch_add(by, Ordering::SeqCst);
    }

    pub async fn account(&self) -> AccountId {
        let login = Login::parse(&format!("user-{}", random())).expect("a login");
        self.store.create_account(&login, None).await.expect("a new account").id()
    }

    /// A key of a new account.
    pub async fn key(&self) -> KeyId {
        let account = self.account().await;
        self.key_in(account, Scope::Full, None).await.expect("a new key")
    }

    pub async fn key_in(
        &self,
        account: AccountId,
        scope: Scope,
        daily_limit: Option<u32>,
    ) -> Result<KeyId, StoreError> {
        let key = ApiKey::generate().expect("randomness");
        let name = KeyName::parse("a key").expect("a name");
        let draft = KeyDraft { name, digest: key.digest(), hint: key.hint(), scope, daily_limit };
        self.store.create_key(account, draft).await.map(|key| key.meta.id())
    }

    /// `count` charges in one call.
    pub async fn charge(&self, subject: Subject, count: u32) -> Vec<Verdict> {
        let judged = self.store.charge(&[Entry { subject, count }]).await;
        assert_eq!(judged.len(), 1);
        (0..count).map(|nth| judged[0].verdict(nth, &self.limits)).collect()
    }

    pub async fn charge_key(&self, key: KeyId, count: u32) -> Vec<Verdict> {
        self.charge(Subject::Key(key), count).await
    }

    /// One charge.
    pub async fn outcome(&self, key: KeyId) -> Outcome {
        self.charge_key(key, 1).await[0].outcome
    }

    /// How many of `count` charges, made in calls of 50, came out as `outcome`.
    pub async fn count(&self, key: KeyId, count: u32, outcome: Outcome) -> u32 {
        let mut seen = 0;
        for start in (0..count).step_by(50) {
            let verdicts = self.charge_key(key, 50.min(count - start)).await;
            seen += verdicts.iter().filter(|verdict| verdict.outcome == outcome).count() as u32;
        }
        seen
    }
}

/// 16 random hexadecimal digits.
pub fn random() -> String {
    ApiKey::generate().expect("randomness").digest().to_hex()[..16].to_owned()
}
