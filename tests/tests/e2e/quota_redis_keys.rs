//! quota-svc creates only the Redis keys of the table in `quota-svc/src/store/redis/redis_keys.rs`, each with the type,
//! maximum length and expiry that belong to it.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quota_client::QuotaClient;
use quota_client::wire::{
    Charge, Contact, NewAccount, NewKey, NewSession, Outcome, Scope, SessionKind, SettingsChange, Webhook,
};
use testkit::quota::{Quota, StoreChoice, TestKey};
use testkit::redis::Redis;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

fn new_key(name: &str) -> NewKey {
    NewKey::new(name, Scope::Ip)
}

/// Creates data of every kind: webhooks, paused and deleted keys, more events and sessions than are stored, demo charges, and
/// charges of an unknown key. Returns the account IDs.
async fn use_everything(client: &QuotaClient) -> Vec<String> {
    let mut accounts = Vec::new();
    for owner in ["one", "two"] {
        let account = NewAccount { login: owner.to_owned(), credential: None };
        let id = client.create_account(&account).await.unwrap().id;
        let (url, secret) = ("https://hooks.example/x".to_owned(), "whsec_eA==".to_owned());
        let contact =
            Contact { webhook: Some(Webhook { url, secret, enabled: true, muted: [].into() }), mail: None };
        client.set_contact(&id, Contact::default(), contact).await.unwrap();
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
            let session = NewSession {
                kind: SessionKind::Session,
                id_sha256: format!("{i:064x}"),
                ttl_seconds: 600,
                expected_credential: None,
            };
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
        ('k', ("string", 200 + 4 * 20, false)),
        ('e', ("list", 100, false)),
        // The version, three parts and ten keys.
        ('a', ("hash", 14, false)),
        ('i', ("set", 0, false)),
        ('d', ("string", 8, true)),
        ('n', ("list", 1_001, false)),
        ('q', ("zset", 0, false)),
        ('x', ("zset", 0, false)),
    ])
}

async fn check_redis_key(redis: &Redis, prefix: &str, name: &str) {
    let rest = name.strip_prefix(&format!("{prefix}2:{{")).expect("starts with prefix, version and hash tag");
    let (tag, rest) = rest.split_once("}:").expect("has a hash tag");
    let (id, letter) = rest.rsplit_once(':').unwrap_or(("", rest));
    let letter: char = letter.parse().expect("ends with one letter");
    let (kind, max, expires) =
        table().remove(&letter).unwrap_or_else(|| panic!("{name} is not in the table"));
    let number = |text: &str| u8::from_str_radix(&text[..2], 16).unwrap();
    assert_eq!(
        (id.len(), tag == "demo"),
        (if "kea".contains(letter) { 32 } else { 0 }, letter == 'd'),
        "{name}"
    );
    assert!(id.is_empty() || number(tag) == number(id) % 64, "{name} is in the shard of its ID");
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
    let store = StoreChoice::from(&redis);
    let quota = Quota::start_with(store.clone(), &["--burst-limit", "20", "--store-timeout", "5s"]).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let client = quota.client();
    let accounts = use_everything(&client).await;
    let announced = all_redis_keys(&redis).await;
    for name in &announced {
        check_redis_key(&redis, store.prefix(), name).await;
    }
    assert_eq!(client.claim_notices(10).await.unwrap().len(), 2);
    let claimed = all_redis_keys(&redis).await;
    for name in &claimed {
        check_redis_key(&redis, store.prefix(), name).await;
    }
    let all = announced.iter().chain(&claimed);
    let letters: BTreeSet<_> = all.filter_map(|name| name.chars().last()).collect();
    assert_eq!(letters.into_iter().collect::<String>(), "adeiknqx", "every kind of Redis key was created");
    for id in accounts {
        client.delete_account(&id, None).await.unwrap();
    }
    let mut left = all_redis_keys(&redis).await;
    left.retain(|name| !name.ends_with(":n"));
    assert_eq!(
        left,
        [format!("{}2:{{demo}}:d", store.prefix())],
        "of the shards, only their lists of announcements are left; the demo's counter expires"
    );
}
