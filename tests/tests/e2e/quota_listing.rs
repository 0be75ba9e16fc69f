//! Listing accounts in a large store: pages are bounded, and so is the work for the number of accounts.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::time::Duration;

use quota_client::wire::NewAccount;
use quota_svc::domain::id::AccountId;
use testkit::quota::Quota;
use testkit::redis::Redis;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
const ACCOUNTS: usize = 3_000;
/// `SSCAN` returns whole buckets of a hash table, so a page may be slightly longer than its limit.
const SLACK: usize = 32;

/// Fills one of the 64 shards, as a store of 192,000 accounts would.
async fn fill_shard(redis: &Redis, quota: &Quota) {
    let logins = (0..).map(|n| format!("user-{n}")).filter(|login| AccountId::of(login).shard() == 0);
    let logins: Vec<_> = logins.take(ACCOUNTS).collect();
    let first = NewAccount { login: logins[0].clone(), credential: None };
    quota.client().create_account(&first).await.unwrap();
    let index = redis.find(":i").await.unwrap();
    let script = "for i = 1, #ARGV, 2 do
        redis.call('SADD', KEYS[1], ARGV[i])
        local account = '{\"login\":\"' .. ARGV[i + 1] .. '\",\"created_at\":1}'
        redis.call('HSET', string.sub(KEYS[1], 1, -2) .. ARGV[i] .. ':a', 'v', '12345678', 'account', account)
      end";
    let accounts = logins.into_iter().flat_map(|login| [AccountId::of(&login).to_string(), login]);
    let accounts: Vec<_> = accounts.collect();
    let command = ["EVAL", script, "1", &index].into_iter().chain(accounts.iter().map(String::as_str));
    redis.cli(&command.collect::<Vec<_>>()).await;
}

async fn commands(redis: &Redis) -> u64 {
    redis.info("total_commands_processed").await.unwrap().parse().unwrap()
}

async fn check_listing(quota: &Quota, limit: u32, max: usize) {
    let (mut logins, mut cursor) = (BTreeSet::new(), None::<String>);
    loop {
        let page = quota.client().list_accounts(cursor.as_deref(), limit).await.unwrap();
        assert_eq!(page.total, ACCOUNTS as u64);
        assert!(page.accounts.len() <= max, "{} accounts on a page", page.accounts.len());
        logins.extend(page.accounts.into_iter().map(|account| account.login));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(logins.len(), ACCOUNTS);
}

#[tokio::test]
async fn pages_of_a_large_store_are_bounded() {
    let redis = Redis::start().await;
    let quota = Quota::start(&redis).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    fill_shard(&redis, &quota).await;
    check_listing(&quota, 200, 200 + SLACK).await;
    let export = quota.client().export(None, 200).await.unwrap();
    assert!(export.accounts.len() <= 200 + SLACK && export.next.is_some(), "{}", export.accounts.len());
    // What a sign-up asks for.
    let before = commands(&redis).await;
    assert_eq!(quota.client().list_accounts(None, 1).await.unwrap().total, ACCOUNTS as u64);
    let used = commands(&redis).await - before;
    assert!(used < 64 + 4 * SLACK as u64 + 100, "{used} commands");
}
