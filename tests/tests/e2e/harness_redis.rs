//! The Redis test servers keep data, restart, freeze, fail over and stop with their test.

use std::time::Duration;

use testkit::cluster::RedisCluster;
use testkit::redis::Redis;
use testkit::sentinel::SentinelSet;
use testkit::wait::eventually;

#[tokio::test]
async fn plain_server_loses_data_on_restart() {
    let mut redis = Redis::start().await;
    redis.cli(&["SET", "a", "1"]).await;
    assert_eq!(redis.cli(&["GET", "a"]).await, "1");
    assert!(redis.try_cli(&["INCRBY", "a", "word"]).await.is_err(), "error reply becomes Err");
    redis.restart().await;
    assert_eq!(redis.cli(&["GET", "a"]).await, "");
}

#[tokio::test]
async fn appendonly_server_keeps_port_and_data_after_kill() {
    let mut redis = Redis::options().appendonly().start().await;
    let url = redis.url();
    redis.cli(&["SET", "a", "value"]).await;
    redis.stop();
    assert!(tokio::net::TcpStream::connect(redis.addr()).await.is_err(), "connection refused while stopped");
    assert!(redis.try_cli(&["PING"]).await.is_err());
    redis.restart().await;
    assert_eq!(redis.cli(&["GET", "a"]).await, "value");
    assert_eq!(redis.url(), url);
}

#[tokio::test]
async fn frozen_server_replies_only_after_thaw() {
    let redis = Redis::start().await;
    redis.freeze();
    let reply = tokio::time::timeout(Duration::from_millis(300), redis.try_cli(&["PING"])).await;
    assert!(reply.is_err(), "frozen server replied: {reply:?}");
    redis.thaw();
    assert_eq!(redis.cli(&["PING"]).await, "PONG");
}

#[tokio::test]
async fn password_and_user_are_required() {
    let with_password = Redis::options().password("sesame").start().await;
    assert!(send_inline(&with_password, "GET a").await.starts_with("-NOAUTH"));
    assert!(send_inline(&with_password, "AUTH sesame").await.starts_with("+OK"));
    let with_user = Redis::options().user("svc", "pw", "~ipl:* +@all").start().await;
    assert!(send_inline(&with_user, "GET a").await.starts_with("-NOAUTH"));
    assert!(send_inline(&with_user, "AUTH svc pw").await.starts_with("+OK"));
    assert_eq!(with_user.cli(&["ACL", "WHOAMI"]).await, "harness", "the harness has its own user");
}

#[tokio::test]
async fn tls_server_certificate_matches_its_ca_file() {
    let redis = Redis::options().tls().start().await;
    assert!(redis.url().starts_with("rediss://"));
    let port = redis.port().to_string();
    let ca = redis.ca_file();
    let mut over_tls = tokio::process::Command::new("redis-cli");
    over_tls.args(["-h", "127.0.0.1", "-p", &port, "--tls", "--cacert"]).arg(ca).arg("PING");
    let output = over_tls.output().await.expect("redis-cli runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "PONG", "{output:?}");
}

#[tokio::test]
async fn full_server_replies_oom() {
    let redis = Redis::options().maxmemory("1mb").start().await;
    let big_write = redis.try_cli(&["SETRANGE", "big", "4000000", "x"]).await;
    let small_write = redis.try_cli(&["SET", "a", "1"]).await;
    let oom = |reply: &Result<String, String>| reply.as_ref().is_err_and(|e| e.contains("OOM"));
    assert!(oom(&big_write) || oom(&small_write), "{big_write:?}, {small_write:?}");
}

#[tokio::test]
async fn dropped_server_is_killed() {
    let redis = Redis::start().await;
    let proc = format!("/proc/{}", redis.pid());
    assert!(std::path::Path::new(&proc).exists());
    drop(redis);
    assert!(!std::path::Path::new(&proc).exists());
}

#[tokio::test]
async fn cluster_of_three_masters_serves_every_slot() {
    let started = std::time::Instant::now();
    let cluster = RedisCluster::start(3, 0).await;
    eprintln!("3 masters up after {:?}", started.elapsed());
    for redis_key in ["foo", "bar", "hello", "{tag}x"] {
        let master = cluster.master_of(redis_key).await;
        cluster.nodes[master].cli(&["SET", redis_key, "1"]).await;
        let other = (master + 1) % 3;
        let moved =
            cluster.nodes[other].try_cli(&["SET", redis_key, "1"]).await.expect_err("slot of another node");
        assert!(moved.contains("MOVED"), "{moved}");
    }
}

#[tokio::test]
async fn cluster_replica_replaces_killed_master() {
    let started = std::time::Instant::now();
    let mut cluster = RedisCluster::start(3, 1).await;
    eprintln!("3 masters with replicas up after {:?}", started.elapsed());
    let old = cluster.master_of("foo").await;
    cluster.nodes[old].cli(&["SET", "foo", "1"]).await;
    assert_eq!(cluster.nodes[old].cli(&["WAIT", "1", "5000"]).await, "1");
    cluster.nodes[old].stop();
    let new = eventually(Duration::from_secs(20), "new master", async || {
        let current = cluster.master_of("foo").await;
        (current != old).then_some(current)
    })
    .await;
    assert_eq!(new, old + 3, "the replica of the killed master");
    cluster.wait_healthy().await;
    assert_eq!(cluster.nodes[new].cli(&["GET", "foo"]).await, "1");
}

#[tokio::test]
async fn sentinel_failover_changes_master() {
    let started = std::time::Instant::now();
    let mut set = SentinelSet::start().await;
    eprintln!("Sentinel set up after {:?}", started.elapsed());
    assert_eq!(set.master().await, 0);
    set.servers[0].cli(&["SET", "a", "1"]).await;
    assert_eq!(set.servers[0].cli(&["WAIT", "1", "5000"]).await, "1");
    set.servers[0].stop();
    set.wait_for_master(1).await;
    assert_eq!(set.servers[1].cli(&["GET", "a"]).await, "1");
}

/// Sends one inline command on a new, unauthenticated connection and returns the first line of the reply.
async fn send_inline(redis: &Redis, command: &str) -> String {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let mut stream = tokio::net::TcpStream::connect(redis.addr()).await.expect("server listens");
    stream.write_all(format!("{command}\r\n").as_bytes()).await.expect("server reads");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await.expect("server replies");
    line
}
