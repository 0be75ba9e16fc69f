//! The store benchmark: compares charges through quota-svc's stores with plain pipelined INCR, round by round.

mod load;
mod report;
mod variant;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use api_key::ApiKey;
use quota_client::wire::{KEYS_PER_ACCOUNT, Limits};
use quota_svc::accounts::Accounts;
use quota_svc::domain::id::KeyId;
use quota_svc::domain::time::Clock;
use quota_svc::store::StoreArgs;
use quota_svc::store::embedded::EmbeddedStore;
use quota_svc::store::redis::RedisStore;
use testkit::cluster::RedisCluster;
use testkit::redis::Redis;
use testkit::wait::eventually;

use crate::gate::Gate;
use crate::{seed, usage};
use report::Measurement;
use variant::Variant;

/// The embedded store's clock is advanced by this much before each measurement: the store is fast enough to exceed
/// every key's burst limit within a few measurements.
const BURST_WINDOW_MS: i64 = 60_000;

/// Numbers of charges in flight to measure with.
const IN_FLIGHT: [usize; 3] = [1, 50, 500];

/// Masters of the Cluster: the minimum with which the others can replace a failed one.
const MASTERS: usize = 3;

/// Compares the rate of charges through quota-svc's stores with the rate of plain pipelined INCR. Starts its own
/// redis-server and Redis Cluster and stops them afterward.
#[derive(clap::Parser, Debug)]
#[command(name = "store-bench")]
pub struct Options {
    /// Seconds per measurement
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Number of times to measure each variant; the medians are reported
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// API keys in the store; with too few, the burst limit denies charges and the run fails
    #[arg(long, default_value_t = 50_000)]
    pub keys: usize,
    /// Worker threads of this program; on two CPUs, 1 leaves the other CPU to Redis
    #[arg(long, default_value_t = 1)]
    pub workers: usize,
    /// Exit with an error if a bound is missed
    #[arg(long)]
    pub gate: bool,
}

/// Creates the keys, measures, and prints the table. Returns the gates.
pub async fn run(options: &Options) -> anyhow::Result<Vec<Gate>> {
    let redis = Redis::start().await;
    let cluster = start_cluster().await;
    let dir = tempfile::tempdir()?;
    println!("creating {} keys in Redis, in the Cluster and in the embedded store", options.keys);
    let clock = Arc::new(AtomicI64::new(Clock::Store.now()));
    let single = std::slice::from_ref(&redis);
    let variants = [
        Variant::incr(report::INCR, &redis, options.keys).await?,
        Variant::incr(report::INCR_PIPELINES, &redis, options.keys).await?,
        charge_redis(report::CHARGE_REDIS, &redis.url(), single, options.keys).await?,
        charge_redis(report::CHARGE_CLUSTER, &cluster.url(), &cluster.nodes, options.keys).await?,
        charge_embedded(dir.path(), options.keys, clock.clone()).await?,
    ];
    let mut measurements = Vec::new();
    for round in 1..=options.rounds {
        println!("round {round} of {}", options.rounds);
        for in_flight in IN_FLIGHT {
            for variant in &variants {
                clock.fetch_add(BURST_WINDOW_MS, Ordering::Relaxed);
                measurements.push(measure(variant, in_flight, options.seconds).await?);
            }
        }
    }
    report::print(&measurements, &variants.each_ref().map(Variant::name));
    Ok(report::gates(&measurements))
}

/// Starts the masters. Their append-only files are turned off, because the single server has none.
pub(crate) async fn start_cluster() -> RedisCluster {
    let cluster = RedisCluster::start(MASTERS, 0).await;
    for node in &cluster.nodes {
        node.cli(&["CONFIG", "SET", "appendonly", "no"]).await;
    }
    cluster
}

async fn charge_redis<'a>(
    name: &'static str,
    url: &str,
    servers: &'a [Redis],
    keys: usize,
) -> anyhow::Result<Variant<'a>> {
    let args = StoreArgs {
        store_timeout: Duration::from_secs(5),
        write_timeout: Duration::from_secs(30),
        ..StoreArgs::default()
    };
    let store = RedisStore::start(url, &args, Limits::default(), Clock::Store)?;
    let store = Accounts::new(Arc::new(store), Limits::default(), args.write_timeout);
    let connected = async || store.now().await.ok();
    eventually(Duration::from_secs(10), "the store is connected", connected).await;
    let ids = create_keys(&store, keys).await?;
    Ok(Variant::charges(name, store, ids, servers))
}

async fn charge_embedded(dir: &Path, keys: usize, clock: Arc<AtomicI64>) -> anyhow::Result<Variant<'static>> {
    let store = EmbeddedStore::open(&dir.join("store.redb"), Limits::default(), Clock::Manual(clock))?;
    let store = Accounts::new(Arc::new(store), Limits::default(), Duration::from_secs(30));
    let ids = create_keys(&store, keys).await?;
    Ok(Variant::charges(report::CHARGE_EMBEDDED, store, ids, &[]))
}

async fn create_keys(store: &Accounts, keys: usize) -> anyhow::Result<Vec<KeyId>> {
    let mut ids = Vec::new();
    let add = |key: &ApiKey| {
        ids.push(KeyId::of(&key.digest()));
        Ok(())
    };
    seed::keys(store, keys, KEYS_PER_ACCOUNT, &Limits::default(), add).await?;
    Ok(ids)
}

async fn measure(variant: &Variant<'_>, in_flight: usize, seconds: f64) -> anyhow::Result<Measurement> {
    let plan = load::BatchPlan::new(variant, in_flight);
    // Warms up connections, script cache and allocator.
    load::run(variant, &plan, Duration::from_millis(200)).await?;
    let (redis_cpu, client_cpu, started) =
        (redis_cpu_micros(variant.servers()).await?, own_cpu_micros()?, Instant::now());
    let result = load::run(variant, &plan, Duration::from_secs_f64(seconds)).await?;
    let elapsed = started.elapsed().as_secs_f64();
    let count = result.count as f64;
    Ok(Measurement {
        variant: variant.name(),
        in_flight,
        rate: count / elapsed,
        p50: result.percentile(50.0),
        p99: result.percentile(99.0),
        client_cpu: (own_cpu_micros()? - client_cpu) / count,
        redis_cpu: (redis_cpu_micros(variant.servers()).await? - redis_cpu) / count,
    })
}

fn own_cpu_micros() -> anyhow::Result<f64> {
    usage::cpu_micros(std::process::id())
}

/// CPU time of all these servers so far.
async fn redis_cpu_micros(servers: &[Redis]) -> anyhow::Result<f64> {
    let mut micros = 0.0;
    for server in servers {
        for field in ["used_cpu_user", "used_cpu_sys"] {
            let seconds = server.info(field).await.map_err(anyhow::Error::msg)?;
            micros +=
                seconds.parse::<f64>().context("INFO cpu has a value that is not a number of seconds")? * 1e6;
        }
    }
    Ok(micros)
}
