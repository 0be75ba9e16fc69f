//! The system under test: lookup-svc, quota-svc and Redis, or ip-lookup, with active and paused keys. Compares the final
//! counters with the responses.

use std::time::Duration;

use anyhow::Context;
use api_key::ApiKey;
use quota_client::QuotaClient;
use quota_client::wire::{Charge, KEYS_PER_ACCOUNT, KeyState, MAX_BATCH, NewAccount, NewKey, Scope};
use tempfile::TempDir;
use testkit::ports::ReservedPort;
use testkit::process::token_file;
use testkit::redis::Redis;
use testkit::tls::TlsFiles;
use tokio::task::JoinSet;

use super::client_stats::{ClientStats, TrafficKind};
use crate::lookup::servers::Server;
use crate::lookup::{Programs, World, client_addresses};
use crate::usage;

/// Enough accounts that no valid client reaches the burst limit with any of its keys.
const ACCOUNTS: usize = 200;

/// Number of active keys.
pub const VALID_KEYS: usize = ACCOUNTS * KEYS_PER_ACCOUNT;

const BURST_LIMIT: usize = 3_000;
const DEMO_LIMIT: u64 = 4_000_000_000;
const QUOTA_TIMEOUT: Duration = Duration::from_secs(30);

/// An API key with its ID.
#[derive(Clone)]
pub struct KeyWithId {
    id: String,
    pub secret: String,
}

/// The running processes. The fields are dropped in order, so each process is stopped before those that it calls.
pub struct Target {
    pub lookup: Server,
    /// A second lookup-svc, with TLS.
    https: Server,
    /// `None` if `lookup` is an ip-lookup.
    quota: Option<Server>,
    /// The processes whose memory is measured.
    pub names: [&'static str; 2],
    /// Client addresses that are in the geo data.
    pub addresses: Vec<String>,
    /// Active keys.
    pub valid_keys: Vec<KeyWithId>,
    /// Keys that are paused during the whole run.
    pub paused_keys: Vec<KeyWithId>,
    client: QuotaClient,
    /// The UTC day on which the run started.
    start_day: u64,
    tls: TlsFiles,
    _redis: Option<Redis>,
    _dir: TempDir,
    _world: World,
}

/// The store's counters, compared with the responses that the clients received.
pub struct CounterComparison {
    /// Keys whose counter does not match their responses. A failed request may or may not have been counted; neither is a
    /// mismatch.
    pub mismatched_keys: usize,
    /// Keys that were compared.
    pub keys: usize,
    /// Requests counted on these keys.
    pub counted: u64,
    /// The demo's counter, and the lowest and highest value that match the responses. `None` if the run crossed midnight
    /// UTC.
    pub demo: Option<(u64, u64, u64)>,
}

impl Target {
    /// Starts everything and creates the keys.
    pub async fn start(programs: &Programs, ip_lookup: bool) -> anyhow::Result<Self> {
        let (world, dir) = (World::write()?, tempfile::tempdir()?);
        let tls = TlsFiles::create(dir.path());
        let (burst, demo) = (BURST_LIMIT.to_string(), DEMO_LIMIT.to_string());
        let limits = ["--burst-limit", &burst, "--demo-limit", &demo, "--daily-limit", "100000000"];
        let geo = world.flags();
        let geo = geo.each_ref().map(String::as_str);
        let redis = if ip_lookup { None } else { Some(Redis::start().await) };
        let quota = match &redis {
            Some(redis) => {
                let url = redis.url();
                let flags = [&["--redis-url", &*url][..], &limits].concat();
                Some(programs.start("quota-svc", &flags).await?)
            }
            None => None,
        };
        let quota_port = ReservedPort::new();
        let quota_url = quota.as_ref().map_or(format!("http://{}", quota_port.addr()), |quota| quota.url(""));
        let flags = ["--quota-url", &quota_url, "--trusted-proxies", "127.0.0.1"];
        let flags = [&flags[..], &geo].concat();
        let lookup = match ip_lookup {
            true => {
                // The token of the clients below.
                std::fs::copy(token_file(), dir.path().join("quota-token"))?;
                let (data_dir, quota_addr) = (dir.path().to_string_lossy(), quota_port.addr().to_string());
                let ports = ["--dashboard-listen", "127.0.0.1:0", "--quota-listen", &quota_addr];
                let flags = [&["--data-dir", &data_dir][..], &ports, &limits, &geo].concat();
                programs.start("ip-lookup", &flags).await?
            }
            false => programs.start("lookup-svc", &flags).await?,
        };
        let (cert, key) = (tls.cert.to_string_lossy(), tls.key.to_string_lossy());
        let flags = [&flags[..], &["--tls-cert", &cert, "--tls-key", &key]].concat();
        let https = programs.start("lookup-svc", &flags).await?;
        let client = testkit::quota::client(&quota_url, QUOTA_TIMEOUT);
        println!("creating {VALID_KEYS} keys");
        let valid_keys = create_keys(&client, 0..ACCOUNTS).await?;
        let paused_keys = create_keys(&client, ACCOUNTS..ACCOUNTS + 1).await?;
        for key in &paused_keys {
            pause(&client, key).await?;
        }
        Ok(Self {
            lookup,
            https,
            quota,
            names: if ip_lookup { ["ip-lookup", "lookup-svc with TLS"] } else { ["lookup-svc", "quota-svc"] },
            addresses: client_addresses().collect(),
            valid_keys,
            paused_keys,
            client,
            start_day: today(),
            tls,
            _redis: redis,
            _dir: dir,
            _world: world,
        })
    }

    /// Stops the services as Kubernetes does. Fails if one of them reports an error.
    pub async fn stop(self) -> anyhow::Result<()> {
        // First the one that needs the quota-svc of ip-lookup.
        self.https.stop("lookup-svc with TLS").await?;
        self.lookup.stop(self.names[0]).await?;
        match self.quota {
            Some(quota) => quota.stop("quota-svc").await,
            None => Ok(()),
        }
    }

    pub fn https_url(&self, path: &str) -> String {
        self.https.url(path).replacen("http:", "https:", 1)
    }

    pub fn certificate_authority(&self) -> anyhow::Result<reqwest::Certificate> {
        Ok(reqwest::Certificate::from_pem(&std::fs::read(&self.tls.ca)?)?)
    }

    /// Resident memory of the processes in `names`, in MiB.
    pub fn memory(&self) -> anyhow::Result<[f64; 2]> {
        let second = self.quota.as_ref().unwrap_or(&self.https);
        Ok([usage::rss_mib(self.lookup.pid())?, usage::rss_mib(second.pid())?])
    }

    /// Compares every counter with the responses that the clients received.
    pub async fn compare_counters(&self, stats: &[ClientStats]) -> anyhow::Result<CounterComparison> {
        let keys = self.valid_keys.len();
        let mut comparison = CounterComparison { mismatched_keys: 0, keys, counted: 0, demo: None };
        let stats_of = |kind| stats.iter().find(|stats| stats.kind == kind);
        for (index, key) in self.valid_keys.iter().enumerate() {
            let days = self.client.usage(&key.id, None).await?.days;
            let counted: u64 = days.iter().map(|day| u64::from(day.requests)).sum();
            // At most one kind of client uses the key.
            let (expected, other) =
                stats.iter().find_map(|stats| stats.by_key.get(&index).copied()).unwrap_or_default();
            comparison.counted += counted;
            comparison.mismatched_keys += usize::from(!(expected..=expected + other).contains(&counted));
        }
        let demo = stats_of(TrafficKind::Demo).context("no statistics of demo clients")?;
        if self.start_day == today() {
            let max = demo.expected + demo.error_count();
            comparison.demo = Some((self.demo_count().await?, demo.expected, max));
        }
        Ok(comparison)
    }

    /// The demo's counter. Reading it takes one more request, which is not included.
    async fn demo_count(&self) -> anyhow::Result<u64> {
        let response = testkit::http::client().get(self.lookup.url("/api/v1/ip/demo")).send().await?;
        let remaining = response
            .headers()
            .get("x-ratelimit-remaining")
            .context("the demo response has no X-RateLimit-Remaining")?;
        Ok(DEMO_LIMIT - remaining.to_str()?.parse::<u64>()? - 1)
    }
}

async fn create_keys(
    client: &QuotaClient,
    accounts: std::ops::Range<usize>,
) -> anyhow::Result<Vec<KeyWithId>> {
    let mut tasks = JoinSet::new();
    for number in accounts {
        let client = client.clone();
        tasks.spawn(async move {
            let login = format!("soak-{number}");
            let account = client.create_account(&NewAccount { login, credential: None }).await?.id;
            let new_key = NewKey::new("soak", Scope::Full);
            let mut keys = Vec::new();
            for _ in 0..KEYS_PER_ACCOUNT {
                let created = client.create_key(&account, &new_key).await?;
                keys.push(KeyWithId { id: created.key.id, secret: created.secret });
            }
            anyhow::Ok(keys)
        });
    }
    let keys = tasks.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    Ok(keys.concat())
}

/// Pauses a key by exceeding its burst limit.
async fn pause(client: &QuotaClient, key: &KeyWithId) -> anyhow::Result<()> {
    let digest = ApiKey::parse(&key.secret)?.digest();
    let batch = [Charge::Key { digest, origin: None }; MAX_BATCH];
    for _ in 0..=BURST_LIMIT / MAX_BATCH {
        client.charge(&batch).await?;
    }
    let state = client.key(&key.id, None).await?.key.state;
    anyhow::ensure!(state == KeyState::Paused, "a key is {state:?} after more than {BURST_LIMIT} requests");
    Ok(())
}

/// The current UTC day, in days since 1970-01-01.
fn today() -> u64 {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since_epoch.as_secs() / 86_400
}
