//! Every way to sign in to one Redis: TLS with an authority of one's own, an ACL user, a password file, a Unix socket.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::time::Duration;

use e2e::quota::{Quota, StoreChoice};
use e2e::redis::Redis;
use e2e::wait::eventually_ok;
use quota_client::wire::Outcome;

const PATIENCE: Duration = Duration::from_secs(20);
const PASSWORD: &str = "correct-horse-battery-staple";

/// All that quota-svc needs of Redis, on its own names only.
const RULES: &str = "resetchannels -@all +@read +@write +@scripting +@connection +time +info +wait";

/// A server that speaks TLS only and lets in one user, and the store as that user sees it.
async fn guarded_redis() -> (Redis, StoreChoice) {
    let prefix = "guarded:";
    let rules = format!("~{prefix}* {RULES}");
    let redis = Redis::options().appendonly().tls().user("quota", PASSWORD, &rules).start().await;
    fs::write(redis.dir().join("password"), format!("{PASSWORD}\n")).unwrap();
    fs::write(redis.dir().join("wrong"), "not-the-password\n").unwrap();
    let store = StoreChoice::Redis { url: redis.url(), prefix: prefix.to_owned() };
    (redis, store)
}

async fn check_works(quota: &Quota) {
    quota.wait_ready(PATIENCE).await;
    let (client, key) = (quota.client(), quota.new_key().await);
    assert_eq!(key.charge(&client, 2).await, [Outcome::Allowed; 2]);
    client.deactivate_key(&key.key.id, None).await.unwrap();
    assert_eq!(client.keys(&key.key.account).await.unwrap().keys.len(), 1);
    assert_eq!(client.list_accounts(None, 10).await.unwrap().total, 1);
    client.events(&key.key.id, None).await.unwrap();
    client.delete_account(&key.key.account).await.unwrap();
    assert_eq!(key.charge(&client, 1).await, [Outcome::UnknownKey]);
}

/// It is not ready, and the log says why without the password.
async fn check_refused(quota: &Quota, reason: &str) {
    eventually_ok(PATIENCE, format!("the log says {reason}"), async || {
        let logs = quota.service.logs();
        if logs.contains(reason) { Ok(()) } else { Err(logs) }
    })
    .await;
    eventually_ok(PATIENCE, "readiness says so", async || match quota.readiness().await {
        (503, _) => Ok(()),
        (_, why) => Err(why),
    })
    .await;
    let logs = quota.service.logs();
    assert!(!logs.contains(PASSWORD) && !logs.contains("not-the-password"), "{logs}");
}

#[tokio::test]
async fn tls_with_an_authority_of_ones_own_an_acl_user_and_a_password_file() {
    let (redis, store) = guarded_redis().await;
    let (ca, password) = (redis.ca_file(), redis.dir().join("password"));
    let flags = ["--redis-username", "quota", "--redis-ca-file", ca.to_str().unwrap()];
    let flags = [&flags[..], &["--redis-password-file", password.to_str().unwrap()]].concat();
    check_works(&Quota::start_with(store, &flags).await).await;
}

#[tokio::test]
async fn an_authority_that_is_not_trusted_and_a_wrong_password_are_refused_with_a_reason() {
    let (redis, store) = guarded_redis().await;
    let (ca, right, wrong) = (redis.ca_file(), redis.dir().join("password"), redis.dir().join("wrong"));
    let user = ["--redis-username", "quota", "--redis-password-file"];
    let untrusting = [&user[..], &[right.to_str().unwrap()]].concat();
    check_refused(&Quota::start_with(store.clone(), &untrusting).await, "certificate").await;
    let mistaken = [&user[..], &[wrong.to_str().unwrap(), "--redis-ca-file", ca.to_str().unwrap()]].concat();
    check_refused(&Quota::start_with(store, &mistaken).await, "the store can't be reached").await;
}

#[tokio::test]
async fn a_password_in_the_url_works_and_stays_out_of_the_log() {
    let mut redis = Redis::options().password(PASSWORD).start().await;
    let url = redis.url().replace("redis://", &format!("redis://:{PASSWORD}@"));
    let quota = Quota::start_with(StoreChoice::url(url), &["--log-level", "debug"]).await;
    check_works(&quota).await;
    redis.stop();
    check_refused(&quota, "the store can't be reached").await;
}

#[tokio::test]
async fn a_unix_socket() {
    let redis = Redis::options().appendonly().start().await;
    check_works(&Quota::start(StoreChoice::url(redis.unix_url())).await).await;
}
