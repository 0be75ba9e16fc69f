//! lookup-svc, quota-svc and Redis with keys in it.

use std::time::Duration;

use e2e::redis::Redis;
use quota_svc::domain::limits::Limits;
use quota_svc::domain::time::Clock;
use quota_svc::store::redis::{ConfirmWrites, Credentials, RedisOptions, RedisStore};

use super::Variant;
use super::servers::Server;
use super::wrk::{Addresses, Keys};
use crate::seed;

const PREFIX: &str = "ipl:";

/// The chain; what is behind is dropped last.
pub struct Chain {
    lookup: Server,
    quota: Server,
    redis: Redis,
    keys: Keys,
    workers: usize,
}

impl Chain {
    /// Starts all of it with `keys` keys, of which wrk has a list of `lines`.
    pub async fn start(keys: usize, lines: usize, workers: usize, limits: &Limits) -> anyhow::Result<Self> {
        let redis = Redis::start().await;
        println!("seeding {keys} keys");
        let keys = Keys::write(&seed::keys(&store(&redis).await?, keys, limits).await?, lines)?;
        let (burst, daily, url) = (limits.burst.to_string(), limits.daily.to_string(), redis.url());
        let charges = ["--key-prefix", PREFIX, "--serve", "charges", "--redis-url", &url];
        let limits = ["--burst-limit", &burst, "--daily-limit", &daily];
        let quota = Server::service("quota-svc", workers, &[&charges[..], &limits].concat()).await?;
        let lookup = lookup(&quota, workers, &[]).await?;
        Ok(Self { lookup, quota, redis, keys, workers })
    }

    /// One more lookup-svc before the same quota-svc.
    pub async fn another_lookup(&self, flags: &[&str]) -> anyhow::Result<Server> {
        lookup(&self.quota, self.workers, flags).await
    }

    /// Its lookup-svc.
    pub fn lookup(&self) -> &Server {
        &self.lookup
    }

    /// The keys in its store.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// What wrk shall talk to, and from where.
    pub fn variant<'a>(
        &'a self,
        name: &'static str,
        lookup: &Server,
        addresses: &'a Addresses,
    ) -> Variant<'a> {
        let pids = vec![lookup.pid(), self.quota.pid(), self.redis.pid()];
        Variant { name, url: lookup.url("/api/v1/ip?scope=full"), pids, keys: &self.keys, addresses }
    }
}

/// With its built-in geo data unless told otherwise, and wrk as the trusted proxy that names the client.
async fn lookup(quota: &Server, workers: usize, flags: &[&str]) -> anyhow::Result<Server> {
    let url = quota.url("");
    let own = ["--quota-url", &url, "--trusted-proxies", "127.0.0.1"];
    Server::service("lookup-svc", workers, &[&own[..], flags].concat()).await
}

async fn store(redis: &Redis) -> anyhow::Result<RedisStore> {
    let patience = Duration::from_secs(30);
    let store = RedisStore::start(RedisOptions {
        url: redis.url(),
        credentials: Credentials::default(),
        key_prefix: PREFIX.to_owned(),
        store_timeout: patience,
        write_timeout: patience,
        confirm_writes: ConfirmWrites::Auto,
        limits: Limits::default(),
        clock: Clock::Store,
    })?;
    let up = async || store.now_from_server().await.ok();
    e2e::wait::eventually(patience, "the store is connected", up).await;
    Ok(store)
}
