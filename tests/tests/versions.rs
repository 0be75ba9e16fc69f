//! Two versions run side by side on one Redis, as during a rollout or a rollback: this one and that of commit c90440e.
//! Counts are exact, accounts, sessions and keys of one version work in the other, and no response is a 5xx.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "versions/binaries.rs"]
mod binaries;
#[path = "versions/pair.rs"]
mod pair;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pair::{PASSWORD, Pair, Version};
use quota_client::wire::Outcome;
use serde_json::{Value, json};
use testkit::lookup::{JsonResponse, WAIT_TIMEOUT};
use testkit::quota::{Quota, StoreChoice, TestKey};
use testkit::wait::eventually_ok;
use tokio::task::JoinSet;

/// Maximum time that a denial is cached, plus slack for a busy machine.
const DENIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Time in which the number of accounts corrects itself after an earlier version has created or deleted some.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread")]
async fn slow_two_versions_share_one_redis() {
    let old = binaries::earlier_version().await;
    let by_day = Pair::start(&old, &["--daily-limit", "500", "--burst-limit", "60000"]).await;
    daily_limit_is_exact(&by_day).await;
    burst_pauses_once(&Pair::start(&old, &[]).await).await;
    let pair = Pair::start(&old, &["--burst-limit", "20"]).await;
    for (creator, other) in pair.both_ways() {
        accounts_work_in_both(creator, other).await;
        key_slots_are_exact(creator, other).await;
        states_work_in_both(creator, other).await;
        deleted_account_is_gone_in_both(creator, other).await;
    }
    account_totals_are_equal(&pair).await;
    exports_are_equal(&pair).await;
    pair.old.check_logs();
    pair.new.check_logs();
}

/// Requests of one key: lookups and batches of charges, through both versions at the same time. Returns how many were
/// allowed.
async fn charge_through_both(pair: &Pair, key: &TestKey) -> usize {
    let mut clients = JoinSet::new();
    for version in [&pair.old, &pair.new].repeat(4) {
        let (client, key) = (version.quota.client(), key.clone());
        let lookup = version.lookup.ip_requests(&key.secret);
        clients.spawn(async move {
            let mut allowed = 0;
            for _ in 0..20 {
                let outcomes = key.charge(&client, 6).await;
                assert!(!outcomes.contains(&Outcome::Unavailable), "{outcomes:?}");
                allowed += outcomes.iter().filter(|outcome| **outcome == Outcome::Allowed).count();
                let response = JsonResponse::fetch(lookup()).await;
                assert!([200, 429].contains(&response.status), "{response:?}");
                allowed += usize::from(response.status == 200);
            }
            allowed
        });
    }
    clients.join_all().await.into_iter().sum()
}

/// Repeated if midnight UTC passes meanwhile, because the daily quota is then available twice.
async fn daily_limit_is_exact(pair: &Pair) {
    for version in [&pair.old, &pair.new] {
        loop {
            let (day, key) = (pair::utc_day(), version.sign_up().await.create_key(version).await);
            let allowed = charge_through_both(pair, &key).await;
            let counted = [&pair.old, &pair.new].map(|version| version.quota.client());
            let counted = [key.fetch(&counted[0]).await.used_today, key.fetch(&counted[1]).await.used_today];
            if pair::utc_day() == day {
                assert_eq!((allowed, counted), (500, [500; 2]), "key created by {}", version.name);
                break;
            }
        }
    }
}

async fn burst_pauses_once(pair: &Pair) {
    for creator in [&pair.old, &pair.new] {
        let mut owner = creator.sign_up().await;
        let key = owner.create_key(creator).await;
        assert_eq!(charge_through_both(pair, &key).await, 300, "the burst limit");
        for version in [&pair.old, &pair.new] {
            owner.go_to(version);
            let read = owner.get(&format!("/keys/{}", key.key.id)).await;
            assert_eq!(read.body["state"], "paused", "read by {}: {read:?}", version.name);
            let events = owner.get(&format!("/keys/{}/events", key.key.id)).await.body;
            let pauses =
                events["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "paused");
            assert_eq!(pauses.count(), 1, "read by {}: {events}", version.name);
        }
    }
}

/// An account created by one version: sign-in, sessions and a password change work in the other.
async fn accounts_work_in_both(creator: &Version, other: &Version) {
    let mut owner = creator.sign_up().await;
    let mut sign_ins = JoinSet::new();
    for version in [creator, other].repeat(3) {
        let visitor = owner.without_session(version);
        sign_ins.spawn(async move { visitor.sign_in(PASSWORD).await.unwrap() });
    }
    let mut sessions = sign_ins.join_all().await;
    for version in [creator, other] {
        for session in &mut sessions {
            session.go_to(version);
            assert_eq!(session.get("/account").await.status, 200, "session used in {}", version.name);
        }
    }
    owner.go_to(other);
    let change = json!({"current_password": PASSWORD, "new_password": "a second password"});
    assert_eq!(owner.put("/account/password", change).await.status, 204);
    for mut session in sessions {
        session.go_to(creator);
        assert_eq!(session.get("/account").await.status, 401, "session of before the change");
    }
    let visitor = owner.without_session(creator);
    assert_eq!(visitor.clone().sign_in(PASSWORD).await.unwrap_err(), 401);
    visitor.sign_in("a second password").await.unwrap();
    owner.go_to(creator);
    assert_eq!(owner.get("/account").await.status, 200, "session that changed the password");
}

/// Both versions create keys in one account at the same time: ten are created, and each works in both.
async fn key_slots_are_exact(creator: &Version, other: &Version) {
    let mut owner = creator.sign_up().await;
    let mut creations = JoinSet::new();
    for version in [creator, other].repeat(8) {
        let mut owner = owner.clone();
        owner.go_to(version);
        creations.spawn(async move { owner.try_create_key().await });
    }
    let (created, rejected): (Vec<_>, Vec<_>) =
        creations.join_all().await.into_iter().partition(Result::is_ok);
    let rejected: Vec<_> = rejected.into_iter().map(Result::unwrap_err).collect();
    assert_eq!((created.len(), rejected), (10, vec![409; 6]), "keys of one account");
    let mut keys = Vec::new();
    for created in created.into_iter().map(Result::unwrap) {
        keys.push(creator.read_key(&created).await);
    }
    let expected: BTreeSet<&str> = keys.iter().map(|key| key.key.id.as_str()).collect();
    for version in [creator, other] {
        owner.go_to(version);
        let list = owner.get("/keys").await.body;
        let listed = list["keys"].as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap());
        assert_eq!(listed.collect::<BTreeSet<_>>(), expected, "listed by {}", version.name);
        for key in &keys {
            assert_eq!(JsonResponse::fetch(version.lookup.get_ip(&key.secret)).await.status, 200);
        }
    }
    assert_eq!(owner.delete(&format!("/keys/{}", keys[0].key.id)).await.status, 204);
    lookup_becomes(creator, &keys[0], 401).await;
    owner.go_to(creator);
    owner.create_key(creator).await;
}

/// A key that one version pauses or deactivates is resumed or reactivated by the other.
async fn states_work_in_both(creator: &Version, other: &Version) {
    let mut owner = creator.sign_up().await;
    let key = owner.create_key(creator).await;
    for (first, second) in [(creator, other), (other, creator)] {
        let outcomes = key.charge(&first.quota.client(), 21).await;
        assert_eq!(outcomes[..20], [Outcome::Allowed; 20], "charged by {}", first.name);
        assert_eq!(outcomes[20], Outcome::BurstExceeded, "charged by {}", first.name);
        assert_eq!(key.charge(&second.quota.client(), 1).await, [Outcome::Paused]);
        owner.go_to(second);
        assert_eq!(owner.change_key(&key, "resume").await, "active");
        assert_eq!(key.charge(&second.quota.client(), 1).await, [Outcome::Allowed], "immediately");
        lookup_becomes(first, &key, 200).await;
        assert_eq!(owner.change_key(&key, "deactivate").await, "inactive");
        lookup_becomes(first, &key, 403).await;
        owner.go_to(first);
        assert_eq!(owner.change_key(&key, "reactivate").await, "active");
        lookup_becomes(second, &key, 200).await;
        // Empties the burst window for the next round.
        owner.change_key(&key, "deactivate").await;
        owner.change_key(&key, "reactivate").await;
    }
}

/// An account that one version deletes is gone in the other, and its login can be registered again.
async fn deleted_account_is_gone_in_both(creator: &Version, other: &Version) {
    let mut owner = creator.sign_up().await;
    let key = owner.create_key(creator).await;
    owner.go_to(other);
    assert_eq!(owner.post("/account/delete", json!({"password": PASSWORD})).await.status, 204);
    for version in [creator, other] {
        owner.go_to(version);
        assert_eq!(owner.get("/account").await.status, 401, "{}", version.name);
        lookup_becomes(version, &key, 401).await;
    }
    let again = owner.create_account().await;
    for version in [creator, other] {
        let mut again = again.without_session(version).sign_in(PASSWORD).await.unwrap();
        again.go_to(creator);
        assert_eq!(again.get("/keys").await.body, json!({"keys": []}));
    }
}

/// Requests may be denied from the cache for a short time. Waits until a lookup gets `status`, without a 5xx before.
async fn lookup_becomes(version: &Version, key: &TestKey, status: u16) {
    eventually_ok(DENIAL_TIMEOUT, format!("{} responds with {status}", version.name), async || {
        let response = JsonResponse::fetch(version.lookup.get_ip(&key.secret)).await;
        assert!(response.status < 500, "{}: {response:?}", version.name);
        if response.status == status { Ok(()) } else { Err(response.status) }
    })
    .await;
}

async fn account_totals_are_equal(pair: &Pair) {
    let total = async |version: &Version| version.quota.client().list_accounts(None, 1).await.unwrap().total;
    let expected = total(&pair.old).await;
    assert!(expected >= 6, "{expected} accounts");
    eventually_ok(TOTAL_TIMEOUT, format!("the new version counts {expected} accounts"), async || {
        let counted = total(&pair.new).await;
        if counted == expected { Ok(()) } else { Err(counted) }
    })
    .await;
}

/// The earlier version exports the same data as this one, and imports an export of this one.
async fn exports_are_equal(pair: &Pair) {
    let (old, new) = (pair.old.command(&["export"]).await, pair.new.command(&["export"]).await);
    let (old_accounts, new_accounts) = (by_login(&old), by_login(&new));
    assert_eq!(old_accounts.keys().collect::<Vec<_>>(), new_accounts.keys().collect::<Vec<_>>());
    for (login, account) in &old_accounts {
        assert!(contains(&new_accounts[login], account), "{account}\n{}", new_accounts[login]);
    }
    let empty = StoreChoice::url(pair.redis.url());
    let importer = Quota::start_version(pair.old.quota_program.to_str().unwrap(), empty, &[]).await;
    importer.wait_ready(WAIT_TIMEOUT).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &new).unwrap();
    pair.old.command_with(&importer, &["import", file.path().to_str().unwrap()]).await;
    let imported = importer.client().list_accounts(None, 1).await.unwrap().total;
    assert_eq!(imported, old_accounts.len() as u64, "accounts of the new version's export");
}

fn by_login(export: &str) -> BTreeMap<String, Value> {
    let lines = export.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|account| (account["login"].as_str().unwrap().to_owned(), account)).collect()
}

/// Whether `larger` has every field of `smaller` with the same value. A new version may add fields.
fn contains(larger: &Value, smaller: &Value) -> bool {
    match (larger, smaller) {
        (Value::Object(larger), Value::Object(smaller)) => {
            smaller.iter().all(|(name, value)| larger.get(name).is_some_and(|found| contains(found, value)))
        }
        (Value::Array(larger), Value::Array(smaller)) => {
            larger.len() == smaller.len() && larger.iter().zip(smaller).all(|(a, b)| contains(a, b))
        }
        _ => larger == smaller,
    }
}
