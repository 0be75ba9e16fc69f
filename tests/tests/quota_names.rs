//! What is left in Redis: only names of the table in names.rs, each with its bound or its expiry.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use e2e::quota::{Quota, StoreChoice, TestKey};
use e2e::redis::Redis;
use quota_client::QuotaClient;
use quota_client::wire::{NewAccount, NewKey, NewSession, Outcome, Rename, Scope};

const PATIENCE: Duration = Duration::from_secs(20);

async fn start(redis: &Redis) -> (StoreChoice, Quota) {
    let store = StoreChoice::from(redis);
    let quota = Quota::start_with(store.clone(), &["--burst-limit", "20", "--store-timeout", "5s"]).await;
    quota.wait_ready(PATIENCE).await;
    (store, quota)
}

async fn account(client: &QuotaClient, login: &str) -> String {
    client.create_account(&NewAccount { login: login.to_owned(), credential: None }).await.unwrap().id
}

fn new_key(name: &str) -> NewKey {
    NewKey { name: name.to_owned(), scope: Scope::Ip, daily_limit: None }
}

/// A run with everything in it: keys in every state, more events and sessions than are kept, the demo, strangers.
async fn use_everything(client: &QuotaClient) -> Vec<String> {
    let mut accounts = Vec::new();
    for owner in ["one", "two"] {
        let id = account(client, owner).await;
        let key = TestKey::from(client.create_key(&id, &new_key("first")).await.unwrap());
        assert_eq!(key.charge(client, 21).await[20], Outcome::BurstExceeded);
        for i in 0..110 {
            let name = Rename { name: format!("name {i}") };
            client.rename_key(&key.key.id, None, &name).await.unwrap();
        }
        let gone = client.create_key(&id, &new_key("gone")).await.unwrap();
        client.delete_key(&gone.key.id, None).await.unwrap();
        for i in 0..14_u8 {
            let session = NewSession { id_sha256: format!("{i:064x}"), ttl_seconds: 600 };
            client.create_session(&id, &session).await.unwrap();
        }
        accounts.push(id);
    }
    let demo = quota_client::wire::Charge { key_sha256: None, demo: Some(true) };
    let stranger = quota_client::wire::Charge { key_sha256: Some("ab".repeat(32)), demo: None };
    let batch = quota_client::wire::ChargeRequest { charges: vec![demo, stranger] };
    client.charge(&batch).await.unwrap();
    accounts
}

/// All names, each with its letter: type, what bounds it, its time to live.
async fn all_names(redis: &Redis) -> Vec<String> {
    let names = redis.cli(&["--scan"]).await;
    names.lines().map(str::to_owned).collect()
}

/// Type, greatest length (0: not asked) and whether it must expire, by the letter a name ends with.
fn table() -> BTreeMap<char, (&'static str, u32, bool)> {
    BTreeMap::from([
        ('k', ("string", 168 + 4 * 20, false)),
        ('m', ("hash", 5, false)),
        ('e', ("list", 100, false)),
        ('a', ("hash", 4, false)),
        ('p', ("hash", 10, false)),
        ('s', ("hash", 10, true)),
        ('i', ("set", 0, false)),
        ('d', ("string", 8, true)),
    ])
}

async fn check_name(redis: &Redis, prefix: &str, name: &str) {
    let rest = name.strip_prefix(&format!("{prefix}1:{{")).expect("prefix, version and tag");
    let (tag, letter) = rest.split_once("}:").expect("a tag and a letter");
    let letter: char = letter.parse().expect("one letter");
    let (kind, most, expires) = table().remove(&letter).unwrap_or_else(|| panic!("{name} is in no table"));
    assert!(tag == "demo" || tag.len() == 32 || (tag.len() == 2 && letter == 'i'), "{name}");
    assert_eq!(redis.cli(&["TYPE", name]).await, kind, "{name}");
    let length = match kind {
        "string" => "STRLEN",
        "hash" => "HLEN",
        "list" => "LLEN",
        _ => "SCARD",
    };
    let length: u32 = redis.cli(&[length, name]).await.parse().unwrap();
    assert!(most == 0 || length <= most, "{name} has {length}, at most {most}");
    let ttl: i64 = redis.cli(&["TTL", name]).await.parse().unwrap();
    assert_eq!(ttl > 0, expires, "{name} lives {ttl} s");
    assert!(ttl <= 172_800, "{name} lives {ttl} s");
}

#[tokio::test]
async fn every_name_is_in_the_table_and_bounded_or_expiring_and_deleting_leaves_nothing() {
    let redis = Redis::start().await;
    let (store, quota) = start(&redis).await;
    let client = quota.client();
    let accounts = use_everything(&client).await;
    let names = all_names(&redis).await;
    for name in &names {
        check_name(&redis, store.prefix(), name).await;
    }
    let letters: std::collections::BTreeSet<_> =
        names.iter().filter_map(|name| name.chars().last()).collect();
    assert_eq!(letters.into_iter().collect::<String>(), "adeikmps", "the run met every kind of name");
    for id in accounts {
        client.delete_account(&id).await.unwrap();
    }
    let left = all_names(&redis).await;
    assert_eq!(left, [format!("{}1:{{demo}}:d", store.prefix())], "only what expires by itself");
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

#[tokio::test]
async fn a_place_without_a_record_is_cleared_by_listing_once_it_is_a_minute_old() {
    let redis = Redis::start().await;
    let (store, quota) = start(&redis).await;
    let client = quota.client();
    let id = account(&client, "owner").await;
    let real = client.create_key(&id, &new_key("real")).await.unwrap().key.id;
    let places = format!("{}1:{{{id}}}:p", store.prefix());
    let (stale, fresh) = ("0".repeat(32), "1".repeat(32));
    redis.cli(&["HSET", &places, &stale, &(now_ms() - 61_000).to_string()]).await;
    redis.cli(&["HSET", &places, &fresh, &(now_ms() - 30_000).to_string()]).await;
    let listed = client.keys(&id).await.unwrap().keys;
    assert_eq!(listed.iter().map(|key| key.id.as_str()).collect::<Vec<_>>(), [real.as_str()]);
    let left = redis.cli(&["HKEYS", &places]).await;
    let mut left: Vec<_> = left.lines().collect();
    left.sort_unstable();
    let mut expected = [real.as_str(), fresh.as_str()];
    expected.sort_unstable();
    assert_eq!(left, expected, "the creation that may still be under way keeps its place");
}

#[tokio::test]
async fn stale_places_do_not_keep_an_account_from_its_tenth_key() {
    let redis = Redis::start().await;
    let (store, quota) = start(&redis).await;
    let client = quota.client();
    let id = account(&client, "owner").await;
    let places = format!("{}1:{{{id}}}:p", store.prefix());
    for i in 0..10 {
        let cut_short = format!("{i:032x}");
        redis.cli(&["HSET", &places, &cut_short, &(now_ms() - 120_000).to_string()]).await;
    }
    for i in 0..10 {
        client.create_key(&id, &new_key(&format!("key {i}"))).await.unwrap();
    }
    let refused = client.create_key(&id, &new_key("eleventh")).await.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (Some(409), Some("key_limit_reached")));
}
