//! A store with a manual clock, and helpers for the contract tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use api_key::ApiKey;
use quota_api::KeyChange;
use quota_api::{Actor, Limits, NewKey, NewSession, Outcome, Scope, SessionKind, SettingsChange, Verdict};
use quota_svc::accounts::Accounts;
use quota_svc::domain::account::Login;
use quota_svc::domain::id::{AccountId, KeyId};
use quota_svc::domain::time::Clock;
use quota_svc::domain::value::KeyDraft;
use quota_svc::domain::verdict::{ChargeGroup, Subject};
use quota_svc::store::embedded::EmbeddedStore;
use quota_svc::store::redis::RedisStore;
use quota_svc::store::{Store, StoreArgs, StoreError};

/// Noon of an arbitrary day in 2024, in Unix milliseconds.
pub const NOON: i64 = 20_000 * DAY + DAY / 2;
pub const DAY: i64 = 86_400_000;

pub struct Harness {
    pub store: Arc<Accounts>,
    pub limits: Limits,
    clock: Arc<AtomicI64>,
    /// Prefix of the Redis keys; `None` for the embedded store.
    pub prefix: Option<String>,
}

impl Harness {
    pub fn embedded() -> Self {
        Self::embedded_with(Limits::default())
    }

    pub fn embedded_with(limits: Limits) -> Self {
        Self::on_backend(limits, redb::backends::InMemoryBackend::new)
    }

    /// An embedded store on other storage than a file. The store calls `backend` again when it reopens itself.
    pub fn on_backend<B: redb::StorageBackend>(
        limits: Limits,
        backend: impl Fn() -> B + Send + Sync + 'static,
    ) -> Self {
        let clock = Arc::new(AtomicI64::new(NOON));
        let store = EmbeddedStore::with_backend(backend, limits, Clock::Manual(clock.clone()));
        Self {
            store: accounts(Arc::new(store.expect("the store opens")), limits),
            limits,
            clock,
            prefix: None,
        }
    }

    pub async fn redis(url: &str) -> Self {
        Self::redis_with(url, Limits::default()).await
    }

    pub async fn redis_with(url: &str, limits: Limits) -> Self {
        let clock = Arc::new(AtomicI64::new(NOON));
        Self::redis_replica(url, &format!("test-{}:", random()), limits, clock).await
    }

    /// A second store with other limits, on the same data and with the same clock.
    pub async fn other_replica(&self, url: &str, limits: Limits) -> Self {
        let prefix = self.prefix.as_deref().expect("the store is Redis");
        Self::redis_replica(url, prefix, limits, self.clock.clone()).await
    }

    async fn redis_replica(url: &str, prefix: &str, limits: Limits, clock: Arc<AtomicI64>) -> Self {
        let args = StoreArgs {
            key_prefix: prefix.to_owned(),
            // Long, because test machines can be slow. Timeouts are tested elsewhere.
            store_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            ..StoreArgs::default()
        };
        let store = RedisStore::start(url, &args, limits, Clock::Manual(clock.clone()));
        let store = Arc::new(store.expect("valid URL"));
        let connected = async || store.unavailable_reason().is_none().then_some(());
        testkit::wait::eventually(Duration::from_secs(10), "the store is connected", connected).await;
        Self { store: accounts(store, limits), limits, clock, prefix: Some(prefix.to_owned()) }
    }

    pub fn now(&self) -> i64 {
        self.clock.load(Ordering::SeqCst)
    }

    pub fn set_time(&self, now: i64) {
        self.clock.store(now, Ordering::SeqCst);
    }

    pub fn advance(&self, ms: i64) {
        self.clock.fetch_add(ms, Ordering::SeqCst);
    }

    /// Creates an account with a random login.
    pub async fn account(&self) -> AccountId {
        let login = Login::parse(&format!("user-{}", random())).expect("valid login");
        self.store.create_account(&login, None).await.expect("account is created");
        login.account_id()
    }

    /// Creates a key in a new account.
    pub async fn key(&self) -> KeyId {
        let account = self.account().await;
        self.key_in(account, Scope::Full, None).await.expect("key is created")
    }

    pub async fn key_in(
        &self,
        account: AccountId,
        scope: Scope,
        daily_limit: Option<u32>,
    ) -> Result<KeyId, StoreError> {
        let key = account.generate_key().expect("random bytes");
        let new = NewKey { daily_limit, ..NewKey::new("a key", scope) };
        self.store.create_key(account, draft(&key, new)).await.map(|key| key.meta.id())
    }

    pub async fn has_session(&self, account: AccountId, session: &str) -> bool {
        has_session(&self.store, account, session).await
    }

    /// Makes `count` charges in one call.
    pub async fn charge(&self, subject: Subject, count: u32) -> Vec<Verdict> {
        let outcomes = self.store.charge(&[ChargeGroup { subject, origin: None, count }]).await;
        assert_eq!(outcomes.len(), 1);
        (0..count).map(|nth| outcomes[0].verdict(nth, &self.limits)).collect()
    }

    pub async fn charge_key(&self, key: KeyId, count: u32) -> Vec<Verdict> {
        self.charge(Subject::Key(key), count).await
    }

    /// Makes one charge and returns its outcome.
    pub async fn outcome(&self, key: KeyId) -> Outcome {
        self.charge_key(key, 1).await[0].outcome()
    }

    /// Makes `count` charges in calls of 50 and returns how many had this `outcome`.
    pub async fn charge_and_count(&self, key: KeyId, count: u32, outcome: Outcome) -> u32 {
        let mut matching = 0;
        for start in (0..count).step_by(50) {
            let verdicts = self.charge_key(key, 50.min(count - start)).await;
            matching += verdicts.iter().filter(|verdict| verdict.outcome() == outcome).count() as u32;
        }
        matching
    }
}

/// With a long timeout, because test machines can be slow.
fn accounts(store: Arc<dyn Store>, limits: Limits) -> Arc<Accounts> {
    Arc::new(Accounts::new(store, limits, Duration::from_secs(10)))
}

/// A key that the owner creates.
pub fn draft(key: &ApiKey, new: NewKey) -> KeyDraft {
    KeyDraft { new, digest: key.digest(), hint: key.hint(), actor: Actor::Owner }
}

pub fn rename(name: &str) -> KeyChange {
    KeyChange::Settings(SettingsChange::rename(name))
}

pub fn new_session(id_sha256: &str, ttl_seconds: u32, expected: Option<&str>) -> NewSession {
    let (id_sha256, expected_credential) = (id_sha256.to_owned(), expected.map(str::to_owned));
    NewSession { kind: SessionKind::Session, id_sha256, ttl_seconds, expected_credential }
}

pub async fn has_session(store: &Accounts, account: AccountId, session: &str) -> bool {
    store.account(account).await.is_ok_and(|seen| seen.has_session(session, seen.now))
}

/// 16 random hexadecimal digits.
pub fn random() -> String {
    ApiKey::generate().expect("random bytes").digest().to_hex()[..16].to_owned()
}
