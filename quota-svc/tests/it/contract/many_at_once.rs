//! 200 changes of one account at the same time, through four stores on the same data, as four processes have them. With the default
//! timeouts, each gets its result or the rejection of a rule.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use quota_api::{Actor, EventKind, Limits, NewKey, Outcome, Scope, StateChange};
use quota_api::{KeyChange, Rejection};
use quota_svc::accounts::Accounts;
use quota_svc::domain::account::Login;
use quota_svc::domain::id::{AccountId, KeyId};
use quota_svc::domain::time::Clock;
use quota_svc::domain::verdict::{ChargeGroup, Subject};
use quota_svc::store::embedded::EmbeddedStore;
use quota_svc::store::{StoreArgs, StoreError};
use redb::backends::InMemoryBackend;
use testkit::cluster::RedisCluster;
use testkit::redis::Redis;
use testkit::wait::eventually;

use super::harness::{draft, has_session, new_session, random};

const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
const PROCESSES: usize = 4;
const CHANGES: usize = 200;
const LIMITS: Limits = Limits { daily: 100, burst: 5, demo: 1 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Create,
    /// Of a key that stays, or of one that is deleted meanwhile.
    Rotate,
    Resume,
    SignIn,
    /// With an outdated credential.
    SignInOutdated,
    Delete,
}

/// An account with four keys.
struct Fixture {
    account: AccountId,
    paused: KeyId,
    rotated: KeyId,
    deleted: [KeyId; 2],
}

impl Fixture {
    async fn new(store: &Accounts) -> Self {
        let login = Login::parse(&format!("many-{}", random())).unwrap();
        let account = login.account_id();
        store.create_account(&login, Some("hash")).await.unwrap();
        let key = async || create(store, account).await.unwrap();
        let fixture =
            Self { account, paused: key().await, rotated: key().await, deleted: [key().await, key().await] };
        let group = ChargeGroup { subject: Subject::Key(fixture.paused), origin: None, count: 6 };
        eventually(WAIT_TIMEOUT, "the key is paused", async || {
            let outcome = store.charge(&[group]).await[0].verdict(0, &LIMITS).outcome();
            (outcome == Outcome::Paused).then_some(())
        })
        .await;
        fixture
    }

    /// Makes the `n`th change. Returns the key that it has created.
    async fn change(&self, store: &Accounts, n: usize) -> (Kind, Result<Option<KeyId>, StoreError>) {
        let account = self.account;
        // All kinds start at the same time. 83 has no factor in common with 200.
        match n * 83 % CHANGES {
            0..50 => (Kind::Create, create(store, account).await.map(Some)),
            n @ 50..90 => {
                let (secret, actor) = (account.generate_key().unwrap(), Actor::Owner);
                let key = if n % 2 == 0 { self.rotated } else { self.deleted[0] };
                let rotated = store.rotate_key(key, Some(account), &secret, 60, &actor).await;
                (Kind::Rotate, rotated.map(|key| Some(key.meta.id())))
            }
            90..130 => {
                let resume = KeyChange::State(StateChange::Resume);
                let resumed = store.change_key(self.paused, None, &resume, &Actor::Owner).await;
                (Kind::Resume, resumed.map(|_| None))
            }
            n @ 130..170 => {
                let (kind, expected) =
                    if n % 4 == 0 { (Kind::SignInOutdated, "outdated") } else { (Kind::SignIn, "hash") };
                let added = store.add_session(account, &new_session(&session(n), 600, Some(expected))).await;
                (kind, added.map(|_| None))
            }
            n => {
                let deleted = store.delete_key(self.deleted[n % 2], Some(account)).await;
                (Kind::Delete, deleted.map(|()| None))
            }
        }
    }
}

async fn create(store: &Accounts, account: AccountId) -> Result<KeyId, StoreError> {
    let key = account.generate_key().unwrap();
    let created = store.create_key(account, draft(&key, NewKey::new("a key", Scope::Full))).await?;
    Ok(created.meta.id())
}

/// SHA-256 of a session's ID.
fn session(n: usize) -> String {
    format!("{n:064x}")
}

/// Opens a store for each process, with the default timeouts.
async fn processes(url: String) -> Vec<Arc<Accounts>> {
    let key_prefix = format!("test-{}:", random());
    let args = StoreArgs { redis_url: Some(url.into()), key_prefix, ..StoreArgs::default() };
    let stores: Vec<_> = (0..PROCESSES).map(|_| Arc::new(Accounts::open(&args, LIMITS).unwrap())).collect();
    for store in &stores {
        let connected = async || store.unavailable_reason().is_none().then_some(());
        eventually(WAIT_TIMEOUT, "the store is connected", connected).await;
    }
    stores
}

async fn check(stores: Vec<Arc<Accounts>>) {
    let (first, last) = (&stores[0], &stores[stores.len() - 1]);
    let fixture = Arc::new(Fixture::new(first).await);
    let account = fixture.account;
    let started = Instant::now();
    let changes = (0..CHANGES).map(|n| {
        let (fixture, store) = (fixture.clone(), stores[n % stores.len()].clone());
        tokio::spawn(async move { fixture.change(&store, n).await })
    });
    let results = join_all(changes).await;
    println!("{CHANGES} changes in {:?}", started.elapsed());
    let (mut created, mut deletions) = (BTreeSet::new(), 0);
    for result in results {
        use Rejection::{CredentialConflict, KeyLimitReached, KeyNotFound, KeyReplaced};
        match result.unwrap() {
            (Kind::Create | Kind::Rotate, Ok(key)) => created.extend(key),
            (Kind::Create, Err(StoreError::Rejected(KeyLimitReached)))
            | (Kind::Rotate, Err(StoreError::Rejected(KeyReplaced | KeyNotFound)))
            | (Kind::Resume | Kind::SignIn, Ok(None))
            | (Kind::SignInOutdated, Err(StoreError::Rejected(CredentialConflict)))
            | (Kind::Delete, Err(StoreError::Rejected(KeyNotFound))) => {}
            (Kind::Delete, Ok(None)) => deletions += 1,
            (kind, result) => panic!("{kind:?}: {result:?}"),
        }
    }
    assert_eq!(deletions, 2, "each key is deleted once");
    // Creations were rejected, so there were ten keys once; and two were deleted. One key was rotated, and perhaps one of those.
    assert!((7..=9).contains(&created.len()), "{}", created.len());
    let keys = last.keys(account).await.unwrap().value;
    let expected = created.iter().copied().chain([fixture.paused, fixture.rotated]).collect();
    assert_eq!(keys.keys.iter().map(|key| key.meta.id()).collect::<BTreeSet<_>>(), expected);
    // The rotated key and its successor count as one.
    for _ in created.len()..9 {
        create(first, account).await.unwrap();
    }
    let eleventh = create(last, account).await;
    assert!(matches!(eleventh, Err(StoreError::Rejected(Rejection::KeyLimitReached))), "{eleventh:?}");

    let mut sessions = 0;
    for n in 0..CHANGES {
        sessions += usize::from(has_session(last, account, &session(n)).await);
    }
    assert_eq!(sessions, 10);
    let events = last.events(fixture.paused, None).await.unwrap();
    let count = |kind| events.iter().filter(|event| event.kind == kind).count();
    assert_eq!((count(EventKind::Paused), count(EventKind::Resumed)), (1, 1), "{events:?}");
}

/// In memory: one after another, the writes of an account take as long as a disk needs for some 50 transactions.
#[tokio::test(flavor = "multi_thread")]
async fn load_account_changed_200_times_at_once_keeps_its_limits_in_embedded_store() {
    let store = EmbeddedStore::with_backend(InMemoryBackend::new, LIMITS, Clock::Store).unwrap();
    check(vec![Arc::new(Accounts::new(Arc::new(store), LIMITS, StoreArgs::default().write_timeout))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn load_account_changed_200_times_at_once_keeps_its_limits_in_redis() {
    let redis = Redis::start().await;
    check(processes(redis.url()).await).await;
}

/// A confirmation takes up to a second.
#[tokio::test(flavor = "multi_thread")]
async fn load_account_changed_200_times_at_once_keeps_its_limits_in_valkey() {
    let Some(valkey) = Redis::valkey() else { return };
    let valkey = valkey.directive("appendfsync everysec").start().await;
    check(processes(valkey.url()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn load_account_changed_200_times_at_once_keeps_its_limits_in_a_cluster() {
    let cluster = RedisCluster::start(3, 0).await;
    check(processes(cluster.url()).await).await;
}
