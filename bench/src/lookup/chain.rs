//! The chain: lookup-svc, quota-svc and a Redis server or Cluster filled with API keys.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quota_client::wire::Limits;
use quota_svc::accounts::Accounts;
use quota_svc::store::StoreArgs;
use tempfile::NamedTempFile;
use testkit::mmdb::sample;
use testkit::redis::Redis;

use super::Variant;
use super::servers::Server;
use super::wrk::{AddressFile, KeyFile};

/// What wrk requests.
pub const LOOKUP: &str = "/api/v1/ip?scope=full";
const KEY_PREFIX: &str = "ipl:";
const STORE_TIMEOUT: Duration = Duration::from_secs(30);

/// The running processes. The fields are dropped in order, so each process is stopped before those that it calls.
pub struct Chain {
    lookup: Server,
    quota: Server,
    /// One server, or the masters of a Cluster.
    redis: Vec<Redis>,
    redis_url: String,
    keys: KeyFile,
    programs: Programs,
    /// The geo data of every lookup-svc without its own.
    sample: NamedTempFile,
}

/// The services to start.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The directory of the programs, as an absolute path; `None` for the directory of this program.
    pub dir: Option<PathBuf>,
    /// Worker threads per service.
    pub workers: usize,
}

impl Programs {
    pub async fn start(&self, name: &str, flags: &[&str]) -> anyhow::Result<Server> {
        Server::service(&self.path(name).to_string_lossy(), self.workers, flags).await
    }

    /// The path of a program, for [`programs::path`](super::programs::path).
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.as_deref().unwrap_or(Path::new("")).join(name)
    }
}

impl Chain {
    /// Starts everything and creates `keys` keys. wrk gets a list of `lines` lines with one key each, which repeats the
    /// keys if there are fewer keys than lines.
    pub async fn start(
        keys: usize,
        lines: usize,
        programs: Programs,
        limits: &Limits,
    ) -> anyhow::Result<Self> {
        let redis = Redis::start().await;
        Self::start_on(redis.url(), vec![redis], keys, lines, programs, limits).await
    }

    /// Like [`Self::start`], on these empty servers.
    pub async fn start_on(
        redis_url: String,
        redis: Vec<Redis>,
        keys: usize,
        lines: usize,
        programs: Programs,
        limits: &Limits,
    ) -> anyhow::Result<Self> {
        println!("creating {keys} keys");
        let started = Instant::now();
        let store = connect_store(&redis_url).await?;
        let keys = KeyFile::create(&store, keys, lines, limits).await?;
        println!("created in {:.1} s", started.elapsed().as_secs_f64());
        let quota = start_quota(&redis_url, &programs, limits).await?;
        let sample = sample::file();
        let lookup = start_lookup(&quota, &programs, &["--geo-db", &sample.path().to_string_lossy()]).await?;
        Ok(Self { lookup, quota, redis, redis_url, keys, programs, sample })
    }

    /// Starts another lookup-svc that uses the same quota-svc and geo data, unless `flags` name other data.
    pub async fn start_lookup(&self, flags: &[&str]) -> anyhow::Result<Server> {
        let sample = self.sample.path().to_string_lossy();
        let geo: &[&str] = if flags.contains(&"--geo-db") { &[] } else { &["--geo-db", &sample] };
        start_lookup(&self.quota, &self.programs, &[geo, flags].concat()).await
    }

    /// Starts another lookup-svc with a quota-svc of its own, which has the default limits, on the same Redis.
    pub async fn start_pair(&self, flags: &[&str]) -> anyhow::Result<[Server; 2]> {
        let quota = start_quota(&self.redis_url, &self.programs, &Limits::default()).await?;
        Ok([start_lookup(&quota, &self.programs, flags).await?, quota])
    }

    pub fn redis(&self) -> &Redis {
        &self.redis[0]
    }

    pub fn lookup(&self) -> &Server {
        &self.lookup
    }

    pub fn keys(&self) -> &KeyFile {
        &self.keys
    }

    /// A variant that sends requests to `lookup`, with client addresses from `addresses`.
    pub fn variant<'a>(
        &'a self,
        name: &'static str,
        lookup: &Server,
        addresses: &'a AddressFile,
    ) -> Variant<'a> {
        let pids =
            [lookup.pid(), self.quota.pid()].into_iter().chain(self.redis.iter().map(Redis::pid)).collect();
        Variant { name, urls: vec![lookup.url(LOOKUP)], pids, keys: &self.keys, addresses }
    }
}

/// Starts a lookup-svc with wrk as the trusted proxy, so that wrk's `X-Forwarded-For` sets the client address.
async fn start_lookup(quota: &Server, programs: &Programs, flags: &[&str]) -> anyhow::Result<Server> {
    let url = quota.url("");
    let common = ["--quota-url", &url, "--trusted-proxies", "127.0.0.1"];
    programs.start("lookup-svc", &[&common[..], flags].concat()).await
}

async fn start_quota(redis_url: &str, programs: &Programs, limits: &Limits) -> anyhow::Result<Server> {
    let (burst, daily) = (limits.burst.to_string(), limits.daily.to_string());
    let flags = ["--key-prefix", KEY_PREFIX, "--serve", "charges", "--redis-url", redis_url];
    let limit_flags = ["--burst-limit", &burst, "--daily-limit", &daily];
    programs.start("quota-svc", &[&flags[..], &limit_flags].concat()).await
}

pub async fn connect_store(url: &str) -> anyhow::Result<Accounts> {
    let args = StoreArgs {
        redis_url: Some(url.into()),
        key_prefix: KEY_PREFIX.to_owned(),
        store_timeout: STORE_TIMEOUT,
        write_timeout: STORE_TIMEOUT,
        ..StoreArgs::default()
    };
    let accounts = Accounts::open(&args, Limits::default())?;
    let connected = async || accounts.now().await.ok();
    testkit::wait::eventually(STORE_TIMEOUT, "the store is connected", connected).await;
    Ok(accounts)
}

/// Opens or creates the file of an embedded store.
pub fn open_file(path: &Path) -> anyhow::Result<Accounts> {
    let args =
        StoreArgs { store_file: Some(path.to_owned()), write_timeout: STORE_TIMEOUT, ..StoreArgs::default() };
    Accounts::open(&args, Limits::default())
}
