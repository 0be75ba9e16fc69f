//! quota-svc creates only the Redis keys of the table in `quota-svc/src/store/redis/redis_keys.rs`, each with the type,
//! maximum length and expiry that belong to it.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quota_client::QuotaClient;
use quota_client::wire::{Charge, NewAccount, NewKey, NewSession, Outcome, Scope, SettingsChange};
use testkit::quota::{Quota, StoreChoice, TestKey};
use testkit::redis::Redis;
use testkit::wait::eventually;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

async fn start(redis: &Redis) -> (StoreChoice, Quota) {
    let store = StoreChoice::from(redis);
    let quota = Quota::start_with(store.clone(), &["--burst-limit", "20", "--store-timeout", "5s"]).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    (store, quota)
}

async fn account(client: &QuotaClient, login: &str) -> String {
    client.create_account(&NewAccount { login: login.to_owned(), credential: None }).await.unwrap().id
}

fn new_key(name: &str) -> NewKey {
    NewKey::new(name, Scope::Ip)
}

/// Creates data of every kind: paused and deleted keys, more events and sessions than are stored, demo charges, and
/// charges of an unknown key. Returns the account IDs.
async fn use_everything(client: &QuotaClient) -> Vec<String> {
    let mut accounts = Vec::new();
    for owner in ["one", "two"] {
        let id = account(client, owner).await;
        let key = TestKey::new(client.create_key(&id, &new_key("first")).await.unwrap(), id.clone());
        assert_eq!(key.charge(client, 21).await[20], Outcome::BurstExceeded);
        for i in 0..110 {
            let name = SettingsChange::rename(&format!("name {i}"));
            client.change_key(&key.key.id, None, &name).await.unwrap();
        }
        let expiry = SettingsChange { expires_at: 4_000_000_000.into(), ..SettingsChange::default() };
        client.change_key(&key.key.id, None, &expiry).await.unwrap();
        let deleted = client.create_key(&id, &new_key("deleted")).await.unwrap();
        client.delete_key(&deleted.key.id, None).await.unwrap();
        for i in 0..14_u8 {
            let session =
                NewSession { id_sha256: format!("{i:064x}"), ttl_seconds: 600, expected_credential: None };
            client.create_session(&id, &session).await.unwrap();
        }
        accounts.push(id);
    }
    let batch = [Charge::Demo, Charge::Key { digest: api_key::KeyDigest([0xab; 32]), origin: None }];
    client.charge(&batch).await.unwrap();
    accounts
}

async fn all_redis_keys(redis: &Redis) -> Vec<String> {
    let redis_keys = redis.cli(&["--scan"]).await;
    redis_keys.lines().map(str::to_owned).collect()
}

/// Type, maximum length (0: unlimited) and whether it must expire, by the last letter of the Redis key.
fn table() -> BTreeMap<char, (&'static str, u32, bool)> {
    BTreeMap::from([
        ('k', ("string", 184 + 4 * 20, false)),
        ('m', ("string", 600, false)),
        ('e', ("list", 100, false)),
        ('a', ("hash", 4, false)),
        ('p', ("hash", 10, false)),
        ('s', ("hash", 10, true)),
        ('i', ("set", 0, false)),
        ('d', ("string", 8, true)),
        ('n', ("zset", 0, false)),
        ('x', ("zset", 0, false)),
    ])
}

async fn check_redis_key(redis: &Redis, prefix: &str, name: &str) {
    let rest = name.strip_prefix(&format!("{prefix}1:{{")).expect("starts with prefix, version and hash tag");
    let (tag, letter) = rest.split_once("}:").expect("has a hash tag and a letter");
    let letter: char = letter.parse().expect("ends with one letter");
    let (kind, max, expires) =
        table().remove(&letter).unwrap_or_else(|| panic!("{name} is not in the table"));
    assert!(
        ["demo", "outbox"].contains(&tag) || tag.len() == 32 || (tag.len() == 2 && letter == 'i'),
        "{name}"
    );
    assert_eq!(redis.cli(&["TYPE", name]).await, kind, "{name}");
    let length = match kind {
        "string" => "STRLEN",
        "hash" => "HLEN",
        "list" => "LLEN",
        "zset" => "ZCARD",
        _ => "SCARD",
    };
    let length: u32 = redis.cli(&[length, name]).await.parse().unwrap();
    assert!(max == 0 || length <= max, "{name} has length {length}, maximum {max}");
    let ttl: i64 = redis.cli(&["TTL", name]).await.parse().unwrap();
    assert_eq!(ttl > 0, expires, "{name} has a TTL of {ttl} s");
    assert!(ttl <= 172_800, "{name} has a TTL of {ttl} s");
}

#[tokio::test]
async fn redis_keys_match_the_table_and_are_removed_with_their_account() {
    let redis = Redis::start().await;
    let (store, quota) = start(&redis).await;
    let client = quota.client();
    let accounts = use_everything(&client).await;
    let announced = async || {
        let redis_keys = all_redis_keys(&redis).await;
        redis_keys.iter().any(|name| name.ends_with("{outbox}:n")).then_some(redis_keys)
    };
    let redis_keys = eventually(Duration::from_secs(10), "the pause is announced", announced).await;
    for name in &redis_keys {
        check_redis_key(&redis, store.prefix(), name).await;
    }
    let letters: std::collections::BTreeSet<_> =
        redis_keys.iter().filter_map(|name| name.chars().last()).collect();
    assert_eq!(letters.into_iter().collect::<String>(), "adeikmnpsx", "every kind of Redis key was created");
    for id in accounts {
        client.delete_account(&id, None).await.unwrap();
    }
    // Makes notices of announcements; none, because no account has a webhook.
    assert_eq!(client.claim_notices(1).await.unwrap(), []);
    let left = all_redis_keys(&redis).await;
    assert_eq!(
        left,
        [format!("{}1:{{demo}}:d", store.prefix())],
        "only the demo's counter is left; it expires"
    );
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

#[tokio::test]
async fn listing_removes_stale_reservations() {
    let redis = Redis::start().await;
    let (store, quota) = start(&redis).await;
    let client = quota.client();
    let id = account(&client, "owner").await;
    let real = client.create_key(&id, &new_key("real")).await.unwrap().key.id;
    let reservations = format!("{}1:{{{id}}}:p", store.prefix());
    let (stale, fresh) = ("0".repeat(32), "1".repeat(32));
    redis.cli(&["HSET", &reservations, &stale, &(now_ms() - 61_000).to_string()]).await;
    redis.cli(&["HSET", &reservations, &fresh, &(now_ms() - 30_000).to_string()]).await;
    let listed = client.keys(&id).await.unwrap().keys;
    assert_eq!(listed.iter().map(|key| key.id.as_str()).collect::<Vec<_>>(), [real.as_str()]);
    let left = redis.cli(&["HKEYS", &reservations]).await;
    let mut left: Vec<_> = left.lines().collect();
    left.sort_unstable();
    let mut expected = [real.as_str(), fresh.as_str()];
    expected.sort_unstable();
    assert_eq!(left, expected, "a creation that may still be in flight keeps its reservation");
}

#[tokio::test]
async fn stale_reservations_do_not_count_against_key_limit() {
    let redis = Redis::start().await;
    let (store, quota) = start(&redis).await;
    let client = quota.client();
    let id = account(&client, "owner").await;
    let reservations = format!("{}1:{{{id}}}:p", store.prefix());
    for i in 0..10 {
        let key_id = format!("{i:032x}");
        redis.cli(&["HSET", &reservations, &key_id, &(now_ms() - 120_000).to_string()]).await;
    }
    for i in 0..10 {
        client.create_key(&id, &new_key(&format!("key {i}"))).await.unwrap();
    }
    let error = client.create_key(&id, &new_key("eleventh")).await.unwrap_err();
    assert_eq!((error.status(), error.code()), (Some(409), Some("key_limit_reached")));
}
