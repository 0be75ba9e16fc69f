//! The store's benchmark: charges beside plain pipelined INCR on the same server, turn by turn.

mod load;
mod report;
mod subject;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use e2e::redis::Redis;
use e2e::wait::eventually;
use quota_svc::domain::id::KeyId;
use quota_svc::domain::limits::Limits;
use quota_svc::domain::time::Clock;
use quota_svc::store::embedded::EmbeddedStore;
use quota_svc::store::redis::{ConfirmWrites, Credentials, RedisOptions, RedisStore};

use crate::gate::Gate;
use crate::{seed, usage};
use report::Round;
use subject::Subject;

/// By so much the embedded store's clock is put forward before each measurement: it is fast enough to use up every
/// key's burst limit within a few of them.
const BURST_WINDOW_MS: i64 = 60_000;

/// How many charges are outstanding.
const IN_FLIGHT: [usize; 3] = [1, 50, 500];

/// Charges per second beside plain pipelined INCR, on a Redis that this program starts itself.
#[derive(clap::Parser, Debug)]
#[command(name = "store-bench")]
pub struct Options {
    /// Seconds for each measurement
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// How often all variants are measured; the medians count
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// API keys in the store; many, or the burst limit is measured
    #[arg(long, default_value_t = 50_000)]
    pub keys: usize,
    /// Worker threads of the client; 1 leaves the other CPU of two to Redis
    #[arg(long, default_value_t = 1)]
    pub workers: usize,
    /// Fail where an aim is missed
    #[arg(long)]
    pub gate: bool,
}

/// Seeds, measures and prints the table; gives back the aims.
pub async fn run(options: &Options) -> anyhow::Result<Vec<Gate>> {
    let redis = Redis::start().await;
    let folder = tempfile::tempdir()?;
    println!("seeding {} keys into Redis and into the embedded store", options.keys);
    let clock = Arc::new(AtomicI64::new(Clock::Store.now()));
    let subjects = [
        Subject::incr(report::INCR, &redis.url(), options.keys).await?,
        Subject::incr(report::PIPELINES, &redis.url(), options.keys).await?,
        charges_on_redis(&redis, options.keys).await?,
        charges_embedded(folder.path(), options.keys, clock.clone()).await?,
    ];
    let mut rounds = Vec::new();
    for number in 1..=options.rounds {
        println!("round {number} of {}", options.rounds);
        for in_flight in IN_FLIGHT {
            for subject in &subjects {
                clock.fetch_add(BURST_WINDOW_MS, Ordering::Relaxed);
                rounds.push(measure(subject, &redis, in_flight, options.seconds).await?);
            }
        }
    }
    report::print(&rounds, &subjects.each_ref().map(Subject::name));
    Ok(report::gates(&rounds))
}

async fn charges_on_redis(redis: &Redis, keys: usize) -> anyhow::Result<Subject> {
    let store = RedisStore::start(RedisOptions {
        url: redis.url(),
        credentials: Credentials::default(),
        key_prefix: "ipl:".to_owned(),
        store_timeout: Duration::from_secs(5),
        write_timeout: Duration::from_secs(30),
        confirm_writes: ConfirmWrites::Auto,
        limits: Limits::default(),
        clock: Clock::Store,
    })?;
    let up = async || store.now_from_server().await.ok();
    eventually(Duration::from_secs(10), "the store is connected", up).await;
    let ids = seed::keys(&store, keys, &Limits::default())
        .await?
        .iter()
        .map(|key| KeyId::of(&key.digest()))
        .collect();
    Ok(Subject::charges(report::CHARGE, Box::new(store), ids))
}

async fn charges_embedded(folder: &Path, keys: usize, clock: Arc<AtomicI64>) -> anyhow::Result<Subject> {
    let store = EmbeddedStore::open(&folder.join("store.redb"), Limits::default(), Clock::Manual(clock))?;
    let ids = seed::keys(&store, keys, &Limits::default())
        .await?
        .iter()
        .map(|key| KeyId::of(&key.digest()))
        .collect();
    Ok(Subject::charges(report::EMBEDDED, Box::new(store), ids))
}

async fn measure(subject: &Subject, redis: &Redis, in_flight: usize, seconds: f64) -> anyhow::Result<Round> {
    let shape = subject.shape(in_flight);
    // Connections, script cache and allocator are warm before anything counts.
    load::run(subject, &shape, Duration::from_millis(200)).await?;
    let (server, client, started) = (server_micros(redis).await?, own_micros()?, Instant::now());
    let done = load::run(subject, &shape, Duration::from_secs_f64(seconds)).await?;
    let elapsed = started.elapsed().as_secs_f64();
    Ok(Round {
        name: subject.name(),
        in_flight,
        rate: done.count as f64 / elapsed,
        p50: done.percentile(50.0),
        p99: done.percentile(99.0),
        client: (own_micros()? - client) / done.count as f64,
        server: (server_micros(redis).await? - server) / done.count as f64,
    })
}

fn own_micros() -> anyhow::Result<f64> {
    usage::cpu_micros(std::process::id())
}

async fn server_micros(redis: &Redis) -> anyhow::Result<f64> {
    let mut micros = 0.0;
    for field in ["used_cpu_user", "used_cpu_sys"] {
        let seconds = redis.info(field).await.map_err(anyhow::Error::msg)?;
        micros += seconds.parse::<f64>().context("INFO cpu is in seconds")? * 1e6;
    }
    Ok(micros)
}
