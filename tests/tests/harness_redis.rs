//! The test servers do what tests rely on: keep data, come back, freeze, fail over, end with their test.

use std::time::Duration;

use e2e::cluster::RedisCluster;
use e2e::redis::Redis;
use e2e::sentinel::Sentinel;
use e2e::wait::eventually;

#[tokio::test]
async fn a_plain_server_answers_and_forgets_over_a_restart() {
    let mut redis = Redis::start().await;
    redis.cli(&["SET", "a", "1"]).await;
    assert_eq!(redis.cli(&["GET", "a"]).await, "1");
    assert!(redis.try_cli(&["INCRBY", "a", "word"]).await.is_err(), "an error answer is an error");
    redis.restart().await;
    assert_eq!(redis.cli(&["GET", "a"]).await, "");
}

#[tokio::test]
async fn an_appendonly_server_keeps_port_and_data_over_a_kill() {
    let mut redis = Redis::options().appendonly().start().await;
    let url = redis.url();
    redis.cli(&["SET", "a", "kept"]).await;
    redis.stop();
    assert!(tokio::net::TcpStream::connect(redis.addr()).await.is_err(), "refused while it is down");
    assert!(redis.try_cli(&["PING"]).await.is_err());
    redis.restart().await;
    assert_eq!(redis.cli(&["GET", "a"]).await, "kept");
    assert_eq!(redis.url(), url);
}

#[tokio::test]
async fn a_frozen_server_answers_nothing_until_it_is_thawed() {
    let redis = Redis::start().await;
    redis.freeze();
    let asked = tokio::time::timeout(Duration::from_millis(300), redis.try_cli(&["PING"])).await;
    assert!(asked.is_err(), "a frozen server answered: {asked:?}");
    redis.thaw();
    assert_eq!(redis.cli(&["PING"]).await, "PONG");
}

#[tokio::test]
async fn passwords_and_users_are_asked_for() {
    let with_password = Redis::options().password("sesame").start().await;
    assert!(inline(&with_password, "GET a").await.starts_with("-NOAUTH"));
    assert!(inline(&with_password, "AUTH sesame").await.starts_with("+OK"));
    let with_user = Redis::options().user("svc", "pw", "~ipl:* +@all").start().await;
    assert!(inline(&with_user, "GET a").await.starts_with("-NOAUTH"));
    assert!(inline(&with_user, "AUTH svc pw").await.starts_with("+OK"));
    assert_eq!(with_user.cli(&["ACL", "WHOAMI"]).await, "harness");
}

#[tokio::test]
async fn a_tls_server_shows_a_certificate_of_its_authority() {
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
async fn a_full_server_answers_oom() {
    let redis = Redis::options().maxmemory("1mb").start().await;
    let refused = redis.try_cli(&["SETRANGE", "big", "4000000", "x"]).await;
    let then = redis.try_cli(&["SET", "a", "1"]).await;
    let oom = |answer: &Result<String, String>| answer.as_ref().is_err_and(|e| e.contains("OOM"));
    assert!(oom(&refused) || oom(&then), "{refused:?}, {then:?}");
}

#[tokio::test]
async fn a_server_ends_with_its_test() {
    let redis = Redis::start().await;
    let proc = format!("/proc/{}", redis.pid());
    assert!(std::path::Path::new(&proc).exists());
    drop(redis);
    assert!(!std::path::Path::new(&proc).exists());
}

#[tokio::test]
async fn a_cluster_of_three_masters_comes_up_and_serves_every_slot() {
    let started = std::time::Instant::now();
    let cluster = RedisCluster::start(3, 0).await;
    eprintln!("3 masters up after {:?}", started.elapsed());
    for key in ["foo", "bar", "hello", "{tag}x"] {
        let master = cluster.master_of(key).await;
        cluster.nodes[master].cli(&["SET", key, "1"]).await;
        let other = (master + 1) % 3;
        let moved = cluster.nodes[other].try_cli(&["SET", key, "1"]).await.expect_err("another node's slot");
        assert!(moved.contains("MOVED"), "{moved}");
    }
}

#[tokio::test]
async fn a_cluster_replica_takes_over_from_a_killed_master() {
    let started = std::time::Instant::now();
    let mut cluster = RedisCluster::start(3, 1).await;
    eprintln!("3 masters with replicas up after {:?}", started.elapsed());
    let old = cluster.master_of("foo").await;
    cluster.nodes[old].cli(&["SET", "foo", "1"]).await;
    assert_eq!(cluster.nodes[old].cli(&["WAIT", "1", "5000"]).await, "1");
    cluster.nodes[old].stop();
    let new = eventually(Duration::from_secs(20), "another master", async || {
        let now = cluster.master_of("foo").await;
        (now != old).then_some(now)
    })
    .await;
    assert_eq!(new, old + 3, "the replica of that master");
    cluster.wait_ok().await;
    assert_eq!(cluster.nodes[new].cli(&["GET", "foo"]).await, "1");
}

#[tokio::test]
async fn a_sentinel_failover_is_visible() {
    let started = std::time::Instant::now();
    let mut set = Sentinel::start().await;
    eprintln!("Sentinel set up after {:?}", started.elapsed());
    assert_eq!(set.master().await, 0);
    set.servers[0].cli(&["SET", "a", "1"]).await;
    assert_eq!(set.servers[0].cli(&["WAIT", "1", "5000"]).await, "1");
    set.servers[0].stop();
    set.wait_master(1).await;
    assert_eq!(set.servers[1].cli(&["GET", "a"]).await, "1");
}

/// Sends one command over the port as a client without credentials and gives the first line of the answer.
async fn inline(redis: &Redis, command: &str) -> String {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let mut stream = tokio::net::TcpStream::connect(redis.addr()).await.expect("the server listens");
    stream.write_all(format!("{command}\r\n").as_bytes()).await.expect("the server reads");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await.expect("the server answers");
    line
}
