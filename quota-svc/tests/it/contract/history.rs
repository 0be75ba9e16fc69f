//! One random history on three stores: the embedded store, one Redis and a Cluster of three masters. Each result is the same, and so
//! is all that is stored at the end, with the numbers of claims. The versions of accounts, which each commit draws, are in none of it.
//!
//! `IP_LOOKUP_HISTORIES=100 cargo test -p quota-svc --release --test it history::` replays 100 histories. Its output names their
//! seeds; `IP_LOOKUP_HISTORY_SEED` repeats the choices of one, with other keys.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;

use api_key::ApiKey;
use quota_api::{
    AccountAction, AccountChange, Actor, ClaimedNotice, Contact, Delivery, ExportedAccount, KEYS_PER_ACCOUNT,
    Key, KeySettings, KeyState, Limits, NewKey, NewSession, NoticeResult, Scope, SessionKind, SetCredential,
    StateChange, origin_hash,
};
use quota_api::{KeyChange, Rejection};
use quota_svc::accounts::{Accounts, Seen};
use quota_svc::domain::account::Login;
use quota_svc::domain::id::{AccountId, KeyId};
use quota_svc::domain::key::{KeyMeta, StoredKey};
use quota_svc::domain::transfer::{ImportAccount, export};
use quota_svc::domain::verdict::{ChargeGroup, Subject};
use quota_svc::store::StoreError;
use testkit::cluster::RedisCluster;
use testkit::redis::Redis;

use super::harness::{DAY, Harness, draft, has_session, new_session, random};
use super::notices::{both_channels, webhook_contact};

const STEPS: usize = 2_000;
const LOGINS: usize = 20;
/// Some of the last keys drawn for an account were never created, or are deleted.
const RECENT_KEYS: usize = 10;
const LIMITS: Limits = Limits { daily: 40, burst: 12, demo: 30 };
const ALLOWED: &str = "https://a.example";
const DAY_SECONDS: u32 = 86_400;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % end
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}

/// The stores, and what results they had.
struct Stores {
    all: [Harness; 3],
    /// How often each rejection, outcome of a charge and other noteworthy result has occurred.
    seen: RefCell<BTreeMap<String, usize>>,
}

impl Stores {
    /// Runs a command on each store. Returns its result, which is the same; `None` if it is rejected.
    async fn each<T: Debug + PartialEq>(
        &self,
        what: &str,
        command: impl AsyncFn(&Accounts) -> Result<T, StoreError>,
    ) -> Option<T> {
        println!("{what}");
        let [embedded, redis, cluster] = &self.all;
        let results = tokio::join!(command(&embedded.store), command(&redis.store), command(&cluster.store));
        let decided = |result: Result<T, StoreError>| match result {
            Err(StoreError::Rejected(rejection)) => Err(rejection),
            result => Ok(result.unwrap()),
        };
        let result = decided(results.0);
        assert_eq!(result, decided(results.1), "embedded store and Redis: {what}");
        assert_eq!(result, decided(results.2), "embedded store and Cluster: {what}");
        let name = result.as_ref().err().map_or("none".to_owned(), |rejection| format!("{rejection:?}"));
        self.note(&name);
        result.ok()
    }

    fn note(&self, result: &str) {
        *self.seen.borrow_mut().entry(result.to_owned()).or_default() += 1;
    }

    fn now(&self) -> i64 {
        self.all[0].now()
    }
}

/// A key without the form of its burst window: a ring in Redis may still have arrivals that no longer count.
fn shown(key: Seen<StoredKey>) -> (KeyMeta, Key, Option<u32>) {
    let view = key.view(&LIMITS, key.now);
    (key.value.meta, view, key.value.record.daily_limit)
}

fn all_shown(keys: Vec<StoredKey>, now: i64) -> Vec<(KeyMeta, Key, Option<u32>)> {
    keys.into_iter().map(|value| shown(Seen { value, now })).collect()
}

struct History {
    stores: Stores,
    random: Random,
    logins: Vec<Login>,
    /// The keys drawn for each account, oldest first; at least one.
    keys: Vec<Vec<ApiKey>>,
    backups: Vec<ExportedAccount>,
    /// Whose results have not been reported.
    claims: Vec<ClaimedNotice>,
}

impl History {
    fn new(all: [Harness; 3], seed: u64) -> Self {
        let login = |n: usize| Login::parse(&format!("user-{n}")).unwrap();
        // In four shards, so an import can bring a key that another account has.
        let logins = (0..).map(login).filter(|login| login.account_id().shard() % 16 == 0);
        let logins: Vec<_> = logins.take(LOGINS).collect();
        let keys = logins.iter().map(|login| vec![login.account_id().generate_key().unwrap()]).collect();
        let stores = Stores { all, seen: RefCell::default() };
        Self { stores, random: Random(seed), logins, keys, backups: Vec::new(), claims: Vec::new() }
    }

    fn draw_key(&mut self, n: usize) -> ApiKey {
        let key = self.logins[n].account_id().generate_key().unwrap();
        self.keys[n].push(key.clone());
        key
    }

    /// Mostly one that the account has, often one that is paused or inactive.
    async fn any_key(&mut self, n: usize) -> KeyId {
        let listed = self.stores.all[0].store.keys(self.logins[n].account_id()).await;
        let mut keys = listed.map_or(Vec::new(), |listed| listed.value.keys);
        if self.random.below(3) == 0 {
            keys.retain(|key| key.record.state != KeyState::Active);
        }
        if !keys.is_empty() && self.random.below(8) > 0 {
            return keys[self.random.below(keys.len())].meta.id();
        }
        let recent = self.keys[n].len().min(RECENT_KEYS);
        KeyId::of(&self.keys[n][self.keys[n].len() - 1 - self.random.below(recent)].digest())
    }

    /// The last accounts have keys that expire within days. These are fewer than the expiry notices made at once, which stores may
    /// choose in different orders.
    fn expiry(&mut self, n: usize) -> u32 {
        let days = if n >= LOGINS - 3 { &[3, 8][..] } else { &[] };
        let seconds = [60, 3_600].into_iter().chain(days.iter().map(|days| days * DAY_SECONDS));
        let now = u32::try_from(self.stores.now() / 1000).unwrap();
        now + self.random.pick(&seconds.collect::<Vec<_>>())
    }

    async fn step(&mut self) {
        let n = self.random.below(LOGINS);
        let (login, key) = (self.logins[n].clone(), self.any_key(n).await);
        let (id, other) = (login.account_id(), self.random.pick(&self.logins).account_id());
        let owner =
            self.random.pick(&[None, None, None, None, Some(id), Some(id), Some(id), Some(id), Some(other)]);
        let actor = self.random.pick(&[Actor::Owner, Actor::Operator, Actor::Admin("root".to_owned())]);
        let credential = self.random.pick(&[None, None, Some("hash 1"), Some("hash 2")]);
        let (stores, now) = (&self.stores, self.stores.now());
        let account = async || stores.all[0].store.account(id).await.ok();
        match self.random.below(100) {
            0..=3 => {
                stores
                    .each("create account", async |store| store.create_account(&login, credential).await)
                    .await;
            }
            4 => {
                stores.each("delete account", async |store| store.delete_account(id, credential).await).await;
            }
            5..=7 => self.change_account(id, &actor).await,
            8..=10 => {
                let current = account().await.map_or(0, |seen| seen.account.credential_version);
                let change = SetCredential {
                    credential: format!("hash {}", self.random.below(3)),
                    expected_version: self.random.pick(&[current, current, current, 7]),
                    expected_credential: credential.map(str::to_owned),
                    keep_session: Some(session(self.random.below(15))),
                    keep_all_sessions: self.random.pick(&[None, Some(true)]),
                };
                self.stores
                    .each("set credential", async |store| store.set_credential(id, &change).await)
                    .await;
            }
            11..=14 => {
                let kinds = [SessionKind::Session, SessionKind::Link, SessionKind::RequestedLink];
                let (sha256, ttl) =
                    (session(self.random.below(15)), self.random.pick(&[60, 3_600, DAY_SECONDS]));
                let new =
                    NewSession { kind: self.random.pick(&kinds), ..new_session(&sha256, ttl, credential) };
                self.stores.each("add session", async |store| store.add_session(id, &new).await).await;
            }
            15..=17 => {
                let session = session(self.random.below(15));
                if self.random.below(4) == 0 {
                    self.stores
                        .each("revoke session", async |store| store.revoke_session(id, &session).await)
                        .await;
                }
                self.stores
                    .each("session", async |store| {
                        let is_active = has_session(store, id, &session).await;
                        is_active.then_some(()).ok_or(Rejection::SessionNotFound.into())
                    })
                    .await;
            }
            18..=21 => {
                let current = account().await.map_or(Contact::default(), |seen| seen.account.contact.clone());
                let expected = self.random.pick(&[current.clone(), current, webhook_contact()]);
                let contact = self.random.pick(&[Contact::default(), webhook_contact(), both_channels()]);
                let set = async |store: &Accounts| store.set_contact(id, &expected, &contact).await;
                self.stores.each("set contact", set).await;
            }
            22..=34 => self.create_key(n).await,
            35..=37 => self.rotate_key(n, &actor).await,
            38..=51 => self.change_key(n, key, owner, &actor).await,
            52..=53 => {
                stores.each("delete key", async |store| store.delete_key(key, owner).await).await;
            }
            54..=75 => self.charge().await,
            76..=77 => {
                let line = async |store: &Accounts| {
                    let (account, keys) = (store.account(id).await?, store.keys(id).await?);
                    Ok(export(account.value.account, &keys.keys, now))
                };
                self.backups.extend(stores.each("export", line).await);
            }
            78..=80 => self.import().await,
            81..=83 => self.claim_notices().await,
            84..=87 => self.finish_notice().await,
            88..=90 => self.read(id, key, owner).await,
            _ => {
                let ms = [1, 1_000, 29_999, 30_000, 59_999, 60_000, -500, 3_600_000, DAY / 2, DAY, 5 * DAY];
                let ms = self.random.pick(&ms);
                println!("wait {ms}");
                self.advance(ms);
            }
        }
    }

    fn advance(&self, ms: i64) {
        self.stores.all.iter().for_each(|store| store.advance(ms));
    }

    async fn change_account(&mut self, id: AccountId, actor: &Actor) {
        use AccountAction::{EndSessions, MakeAdmin, MakeOwner, PasswordLink, Restore, Suspend};
        let actions = [Suspend, Restore, Restore, EndSessions, MakeAdmin, MakeOwner, PasswordLink];
        let action = self.random.pick(&actions);
        let change = AccountChange { action, reason: (action == Suspend).then(|| "abuse".to_owned()) };
        let apply = async |store: &Accounts| Ok(store.change_account(id, &change, actor).await?);
        self.stores.each(&format!("{change:?}"), apply).await;
    }

    async fn create_key(&mut self, n: usize) {
        let scope = self.random.pick(&[Scope::Ip, Scope::Geo, Scope::Full]);
        let expires_at = (self.random.below(8) == 0).then(|| self.expiry(n));
        let allowed_origins = self.random.pick(&[vec![], vec![], vec![ALLOWED.to_owned()]]);
        let settings = KeySettings { expires_at, allowed_origins, ..KeySettings::new("a key", scope) };
        let new = NewKey { settings, daily_limit: self.random.pick(&[None, None, Some(3)]) };
        let draft = draft(&self.draw_key(n), new);
        let id = self.logins[n].account_id();
        let create = async |store: &Accounts| store.create_key(id, draft.clone()).await.map(shown);
        self.stores.each("create key", create).await;
    }

    /// Mostly of an account with the maximum number of keys, if there is one.
    async fn rotate_key(&mut self, n: usize, actor: &Actor) {
        let mut full = Vec::new();
        for (n, login) in self.logins.iter().enumerate() {
            let listed = self.stores.all[0].store.keys(login.account_id()).await;
            let keys = listed.map_or(Vec::new(), |listed| listed.value.keys);
            if keys.iter().filter(|key| key.meta.successor.is_none()).count() == KEYS_PER_ACCOUNT {
                full.push(n);
            }
        }
        let is_full = !full.is_empty() && self.random.below(4) > 0;
        let n = if is_full { self.random.pick(&full) } else { n };
        let (key, secret) = (self.any_key(n).await, self.draw_key(n));
        // See `expiry`.
        let overlap = self.random.pick(&[0, 60, DAY_SECONDS / 2]);
        let rotate =
            async |store: &Accounts| store.rotate_key(key, None, &secret, overlap, actor).await.map(shown);
        if self.stores.each("rotate key", rotate).await.is_some() && is_full {
            self.stores.note("rotated_at_limit");
        }
    }

    async fn change_key(&mut self, n: usize, key: KeyId, owner: Option<AccountId>, actor: &Actor) {
        let expiry = self.expiry(n);
        let settings = |json: &str| KeyChange::Settings(serde_json::from_str(json).unwrap());
        let change = match self.random.below(10) {
            0..=1 => KeyChange::State(StateChange::Resume),
            2..=3 => KeyChange::State(StateChange::Deactivate),
            4..=5 => KeyChange::State(StateChange::Reactivate),
            6 => KeyChange::DailyLimit(self.random.pick(&[None, Some(3), Some(10)])),
            7 => settings(&format!(r#"{{"name": "key {}", "expires_at": null}}"#, self.random.below(3))),
            8 => settings(&format!(r#"{{"expires_at": {expiry}}}"#)),
            _ => {
                let origins =
                    ["[]", r#"["https://a.example"]"#, r#"["https://a.example", "https://b.example"]"#];
                settings(&format!(r#"{{"allowed_origins": {}}}"#, self.random.pick(&origins)))
            }
        };
        let apply = async |store: &Accounts| store.change_key(key, owner, &change, actor).await.map(shown);
        self.stores.each(&format!("{change:?}"), apply).await;
    }

    /// A batch with up to four groups.
    async fn charge(&mut self) {
        let mut groups = Vec::new();
        let first = self.random.below(LOGINS);
        for nth in 0..=self.random.below(4) {
            // Of different accounts: announcements of the same time have no order.
            let n = (first + nth) % LOGINS;
            let is_demo = self.random.below(10) == 0;
            let subject = if is_demo { Subject::Demo } else { Subject::Key(self.any_key(n).await) };
            let origin = self.random.pick(&[None, Some(origin_hash(ALLOWED.as_bytes()))]);
            let origin = origin.filter(|_| !is_demo);
            groups.push(ChargeGroup { subject, origin, count: self.random.pick(&[1, 2, 5, 14]) });
        }
        let charge = async |store: &Accounts| Ok(store.charge(&groups).await);
        let outcomes = self.stores.each(&format!("{groups:?}"), charge).await.unwrap();
        self.advance(1);
        for (group, outcome) in groups.iter().zip(&outcomes) {
            for index in 0..group.count {
                self.stores.note(outcome.verdict(index, &LIMITS).outcome().as_str());
            }
        }
    }

    async fn import(&mut self) {
        if self.backups.is_empty() {
            return;
        }
        let now = self.stores.now();
        let mut accounts = Vec::new();
        for _ in 0..=self.random.below(2) {
            let mut line = self.random.pick(&self.backups);
            if self.random.below(2) == 0 {
                let shard = AccountId::of(&line.account.login).shard();
                let same = self.logins.iter().filter(|login| login.account_id().shard() == shard);
                line.account.login = self.random.pick(&same.collect::<Vec<_>>()).as_str().to_owned();
            }
            accounts.push(ImportAccount::from_export(&line, now).unwrap());
        }
        let import = async |store: &Accounts| store.import(&accounts).await;
        let report = self.stores.each("import", import).await.unwrap();
        if report.keys_refused > 0 {
            self.stores.note("refused_import");
        }
    }

    async fn claim_notices(&mut self) {
        let claim = async |store: &Accounts| {
            let mut claims = store.claim_notices(100).await?;
            // Accounts have no order.
            claims.notices.sort_by_key(|claimed| (claimed.account.clone(), claimed.channel));
            Ok(claims)
        };
        let claims = self.stores.each("claim notices", claim).await.unwrap();
        self.claims.extend(claims.notices);
    }

    async fn finish_notice(&mut self) {
        let Some(claimed) = self.claims.pop() else { return };
        let account = AccountId::from_hex(&claimed.account).unwrap();
        let delivered = Some(Delivery { at: self.stores.now(), error: None });
        let failed = Some(Delivery { at: self.stores.now(), error: Some("status 500".to_owned()) });
        let (retry_seconds, delivery) =
            self.random.pick(&[(None, None), (None, delivered), (None, failed.clone()), (Some(300), failed)]);
        let result = NoticeResult {
            account: claimed.account,
            channel: claimed.channel,
            claim: claimed.claim,
            retry_seconds,
            delivery,
        };
        let finish = async |store: &Accounts| store.finish_notice(account, &result).await;
        if self.stores.each(&format!("{result:?}"), finish).await.unwrap() {
            self.stores.note("finished_notice");
        }
    }

    async fn read(&mut self, id: AccountId, key: KeyId, owner: Option<AccountId>) {
        let list = async |store: &Accounts| {
            let seen = store.keys(id).await?;
            Ok(all_shown(seen.value.keys, seen.now))
        };
        let one = async |store: &Accounts| store.key(key, owner).await.map(shown);
        let account = async |store: &Accounts| {
            let value = store.account(id).await?.value;
            Ok((value.account, value.outbox.last_deliveries))
        };
        self.stores.each("list keys", list).await;
        self.stores.each("key", one).await;
        self.stores.each("account", account).await;
        self.stores.each("events", async |store| store.events(key, owner).await).await;
    }

    /// Compares all that is stored.
    async fn compare(&self) {
        let now = self.stores.now();
        let all = async |store: &Accounts| {
            let (mut accounts, mut cursor) = (BTreeMap::new(), None);
            loop {
                let page = store.page(cursor.as_deref(), 7).await?;
                assert!(page.unreadable.is_empty());
                for value in page.accounts {
                    let keys: Vec<StoredKey> = value.keys.into_values().map(Result::unwrap).collect();
                    let mut events = Vec::new();
                    for key in &keys {
                        events.push(store.events(key.meta.id(), None).await?);
                    }
                    let line = export(value.account, &keys, now);
                    let rest = (value.sessions, value.outbox, value.creations, all_shown(keys, now), events);
                    accounts.insert(line.account.login.clone(), (line, rest));
                }
                match page.next {
                    None => return Ok((accounts, page.total, store.demo_used().await?)),
                    next => cursor = next,
                }
            }
        };
        let (accounts, total, _) = self.stores.each("compare", all).await.unwrap();
        assert_eq!(accounts.len() as u64, total);
        let keys: usize = accounts.values().map(|(line, _)| line.keys.len()).sum();
        assert!(accounts.len() > 5 && keys > 20, "{} accounts, {keys} keys", accounts.len());
    }

    /// What occurs in each history: of the rarest some ten times. The others are printed only.
    fn check_coverage(&self) {
        let seen = self.stores.seen.borrow();
        println!("{seen:?}");
        let rejections = "AccountExists AccountNotFound KeyNotFound SessionNotFound KeyLimitReached CredentialConflict \
                          ContactConflict KeyReplaced";
        let results = "allowed unknown_key inactive expired wrong_origin suspended paused burst_exceeded \
                       daily_exceeded finished_notice refused_import rotated_at_limit";
        for name in rejections.split(' ').chain(results.split(' ')) {
            assert!(seen.contains_key(name), "no {name}");
        }
        assert!(seen["none"] > STEPS / 2, "most commands succeed");
    }
}

/// SHA-256 of a session's ID.
fn session(n: usize) -> String {
    format!("{n:064x}")
}

#[tokio::test(flavor = "multi_thread")]
async fn random_history_has_the_same_results_in_embedded_store_redis_and_cluster() {
    let (redis, cluster) = tokio::join!(Redis::start(), RedisCluster::start(3, 0));
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    for _ in 0..variable("IP_LOOKUP_HISTORIES").unwrap_or(1) {
        let seed = variable("IP_LOOKUP_HISTORY_SEED");
        let seed = seed.unwrap_or_else(|| u64::from_str_radix(&random(), 16).unwrap());
        println!("IP_LOOKUP_HISTORY_SEED={seed}");
        let on_redis = Harness::redis_with(&redis.url(), LIMITS).await;
        let on_cluster = Harness::redis_with(&cluster.url(), LIMITS).await;
        let mut history = History::new([Harness::embedded_with(LIMITS), on_redis, on_cluster], seed);
        for login in &history.logins {
            history
                .stores
                .each("create account", async |store| store.create_account(login, None).await)
                .await;
        }
        for step in 0..STEPS {
            print!("{step}: ");
            history.step().await;
        }
        history.compare().await;
        history.check_coverage();
    }
}
