//! Every way to connect to a single Redis: TLS with a private CA, an ACL user, a password file, a Unix socket.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::time::Duration;

use quota_client::wire::{Outcome, StateChange};
use testkit::quota::{Quota, StoreChoice};
use testkit::redis::Redis;
use testkit::wait::eventually_ok;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
const PASSWORD: &str = "correct-horse-battery-staple";

/// All permissions that quota-svc needs.
const RULES: &str = "resetchannels -@all +@read +@write +@scripting +@connection +time +info +wait";

/// A server that accepts only TLS and one user, limited to the prefix of the returned store.
async fn secured_redis() -> (Redis, StoreChoice) {
    let prefix = "secured:";
    let rules = format!("~{prefix}* {RULES}");
    let redis = Redis::options().appendonly().tls().user("quota", PASSWORD, &rules).start().await;
    fs::write(redis.dir().join("password"), format!("{PASSWORD}\n")).unwrap();
    fs::write(redis.dir().join("wrong"), "not-the-password\n").unwrap();
    let store = StoreChoice::Redis { url: redis.url(), prefix: prefix.to_owned() };
    (redis, store)
}

async fn check_works(quota: &Quota) {
    quota.wait_ready(WAIT_TIMEOUT).await;
    let (client, key) = (quota.client(), quota.new_key().await);
    assert_eq!(key.charge(&client, 2).await, [Outcome::Allowed; 2]);
    client.change_state(&key.key.id, None, StateChange::Deactivate).await.unwrap();
    assert_eq!(client.keys(&key.account).await.unwrap().keys.len(), 1);
    assert_eq!(client.list_accounts(None, 10).await.unwrap().total, 1);
    client.events(&key.key.id, None).await.unwrap();
    client.delete_account(&key.account, None).await.unwrap();
    assert_eq!(key.charge(&client, 1).await, [Outcome::UnknownKey]);
}

/// quota-svc is not ready, and its log has the reason without the password.
async fn check_not_ready(quota: &Quota, reason: &str) {
    eventually_ok(WAIT_TIMEOUT, format!("{reason:?} in the log"), async || {
        let logs = quota.service.logs();
        if logs.contains(reason) { Ok(()) } else { Err(logs) }
    })
    .await;
    eventually_ok(WAIT_TIMEOUT, "readiness is 503", async || match quota.readiness().await {
        (503, _) => Ok(()),
        (_, body) => Err(body),
    })
    .await;
    let logs = quota.service.logs();
    assert!(!logs.contains(PASSWORD) && !logs.contains("not-the-password"), "{logs}");
}

#[tokio::test]
async fn tls_with_private_ca_acl_user_and_password_file_works() {
    let (redis, store) = secured_redis().await;
    let (ca, password) = (redis.ca_file(), redis.dir().join("password"));
    let flags = ["--redis-username", "quota", "--redis-ca-file", ca.to_str().unwrap()];
    let flags = [&flags[..], &["--redis-password-file", password.to_str().unwrap()]].concat();
    check_works(&Quota::start_with(store, &flags).await).await;
}

#[tokio::test]
async fn changed_password_file_is_read_at_the_next_connect() {
    let redis = Redis::options().user("quota", PASSWORD, &format!("~* {RULES}")).start().await;
    let file = redis.dir().join("password");
    fs::write(&file, PASSWORD).unwrap();
    let flags = ["--redis-username", "quota", "--redis-password-file", file.to_str().unwrap()];
    let quota = Quota::start_with(StoreChoice::url(redis.url()), &flags).await;
    check_works(&quota).await;
    redis.cli(&["ACL", "SETUSER", "quota", "resetpass", ">the-next-password"]).await;
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    check_not_ready(&quota, "can't connect to the store").await;
    fs::write(&file, "the-next-password\n").unwrap();
    check_works(&quota).await;
}

#[tokio::test]
async fn untrusted_ca_or_wrong_password_is_logged() {
    let (redis, store) = secured_redis().await;
    let (ca, right, wrong) = (redis.ca_file(), redis.dir().join("password"), redis.dir().join("wrong"));
    let user = ["--redis-username", "quota", "--redis-password-file"];
    let without_ca = [&user[..], &[right.to_str().unwrap()]].concat();
    check_not_ready(&Quota::start_with(store.clone(), &without_ca).await, "certificate").await;
    let wrong_password =
        [&user[..], &[wrong.to_str().unwrap(), "--redis-ca-file", ca.to_str().unwrap()]].concat();
    check_not_ready(&Quota::start_with(store, &wrong_password).await, "can't connect to the store").await;
}

#[tokio::test]
async fn password_in_redis_url_works_and_is_not_logged() {
    let mut redis = Redis::options().password(PASSWORD).start().await;
    let url = redis.url().replace("redis://", &format!("redis://:{PASSWORD}@"));
    let quota = Quota::start_with(StoreChoice::url(url), &["--log-level", "debug"]).await;
    check_works(&quota).await;
    redis.stop();
    check_not_ready(&quota, "can't connect to the store").await;
}

#[tokio::test]
async fn redis_over_unix_socket_works() {
    let redis = Redis::options().appendonly().start().await;
    check_works(&Quota::start(StoreChoice::url(redis.unix_url())).await).await;
}
