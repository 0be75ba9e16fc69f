//! What is soaked: lookup-svc, quota-svc and Redis with keys of every state, and the counts they end with.

use std::time::Duration;

use anyhow::Context;
use api_key::ApiKey;
use e2e::redis::Redis;
use quota_client::QuotaClient;
use quota_client::wire::{
    Charge, ChargeRequest, KEYS_PER_ACCOUNT, KeyState, MAX_BATCH, NewAccount, NewKey, Scope,
};
use tokio::task::JoinSet;

use super::clients::Kind;
use super::tally::Tally;
use crate::lookup::servers::Server;
use crate::usage;

/// Enough accounts that no good client reaches the burst limit with any of its keys.
const ACCOUNTS: usize = 200;
const BURST: usize = 3_000;
const DEMO: u64 = 4_000_000_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// A key as its owner knows it.
#[derive(Clone)]
pub struct OwnedKey {
    id: String,
    /// To be sent.
    pub secret: String,
}

/// The servers; what is behind is dropped last.
pub struct Target {
    /// The public API.
    pub lookup: Server,
    quota: Server,
    /// Active keys.
    pub good: Vec<OwnedKey>,
    /// Keys that are paused and stay so.
    pub paused: Vec<OwnedKey>,
    client: QuotaClient,
    began: u64,
    _redis: Redis,
}

/// What the counters say beside what the clients saw.
pub struct Counts {
    /// Keys whose count is not what was answered (errors may have been counted).
    pub differing: usize,
    /// Keys that were compared.
    pub keys: usize,
    /// Requests counted on them.
    pub counted: u64,
    /// The demo's count and the least and most it may be; none where midnight fell into the run.
    pub demo: Option<(u64, u64, u64)>,
}

impl Target {
    /// Starts all of it and creates the keys.
    pub async fn start(workers: usize) -> anyhow::Result<Self> {
        let redis = Redis::start().await;
        let (url, burst, demo) = (redis.url(), BURST.to_string(), DEMO.to_string());
        let limits = ["--burst-limit", &burst, "--demo-limit", &demo, "--daily-limit", "100000000"];
        let flags = [&["--redis-url", &url][..], &limits].concat();
        let quota = Server::service("quota-svc", workers, &flags).await?;
        let quota_url = quota.url("");
        let edge = ["--quota-url", &quota_url, "--trusted-proxies", "127.0.0.1"];
        let lookup = Server::service("lookup-svc", workers, &edge).await?;
        let client = QuotaClient::new(&quota_url, PATIENCE)?;
        println!("creating {} keys", ACCOUNTS * KEYS_PER_ACCOUNT);
        let good = create_keys(&client, 0..ACCOUNTS).await?;
        let paused = create_keys(&client, ACCOUNTS..ACCOUNTS + 1).await?;
        for key in &paused {
            pause(&client, key).await?;
        }
        Ok(Self { lookup, quota, good, paused, client, began: today(), _redis: redis })
    }

    /// Resident memory of lookup-svc and quota-svc in MiB.
    pub fn memory(&self) -> anyhow::Result<[f64; 2]> {
        Ok([usage::rss_mib(self.lookup.pid())?, usage::rss_mib(self.quota.pid())?])
    }

    /// Compares every counter with what the clients saw.
    pub async fn compare(&self, tallies: &[Tally]) -> anyhow::Result<Counts> {
        let mut counts = Counts { differing: 0, keys: self.good.len(), counted: 0, demo: None };
        let good = tallies.iter().find(|tally| tally.kind == Kind::Good).context("good clients")?;
        for (place, key) in self.good.iter().enumerate() {
            let days = self.client.usage(&key.id, None).await?.days;
            let counted: u64 = days.iter().map(|day| u64::from(day.requests)).sum();
            let (right, failed) = good.of_keys.get(&place).copied().unwrap_or_default();
            counts.counted += counted;
            counts.differing += usize::from(!(right..=right + failed).contains(&counted));
        }
        let demo = tallies.iter().find(|tally| tally.kind == Kind::Demo).context("demo clients")?;
        if self.began == today() {
            let most = demo.right + demo.failed();
            counts.demo = Some((self.demo_count().await?, demo.right, most));
        }
        Ok(counts)
    }

    /// What the demo has counted before this one more request.
    async fn demo_count(&self) -> anyhow::Result<u64> {
        let answer = e2e::http::client().get(self.lookup.url("/api/v1/ip/demo")).send().await?;
        let remaining = answer.headers().get("x-ratelimit-remaining").context("the demo has a remainder")?;
        Ok(DEMO - remaining.to_str()?.parse::<u64>()? - 1)
    }
}

async fn create_keys(
    client: &QuotaClient,
    accounts: std::ops::Range<usize>,
) -> anyhow::Result<Vec<OwnedKey>> {
    let mut creating = JoinSet::new();
    for number in accounts {
        let client = client.clone();
        creating.spawn(async move {
            let login = format!("soak-{number}");
            let account = client.create_account(&NewAccount { login, credential: None }).await?.id;
            let new = NewKey { name: "soak".to_owned(), scope: Scope::Full, daily_limit: None };
            let mut keys = Vec::new();
            for _ in 0..KEYS_PER_ACCOUNT {
                let created = client.create_key(&account, &new).await?;
                keys.push(OwnedKey { id: created.key.id, secret: created.secret });
            }
            anyhow::Ok(keys)
        });
    }
    let keys = creating.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    Ok(keys.concat())
}

/// Exceeds the burst limit, as an owner's runaway script would.
async fn pause(client: &QuotaClient, key: &OwnedKey) -> anyhow::Result<()> {
    let digest = ApiKey::parse(&key.secret)?.digest();
    let charge = Charge { key_sha256: Some(digest.to_hex()), demo: None };
    let batch = ChargeRequest { charges: vec![charge; MAX_BATCH] };
    for _ in 0..=BURST / MAX_BATCH {
        client.charge(&batch).await?;
    }
    let state = client.key(&key.id, None).await?.state;
    anyhow::ensure!(state == KeyState::Paused, "a key is {state:?} after more than {BURST} requests");
    Ok(())
}

fn today() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() / 86_400
}
