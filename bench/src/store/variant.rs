//! The variants that are measured: INCR, or charges on one of the stores. Each call sends one batch.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use quota_svc::accounts::Accounts;
use quota_svc::domain::id::KeyId;
use quota_svc::domain::verdict::{ChargeGroup, GroupOutcome, Subject};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use testkit::redis::Redis;

pub struct Variant<'a> {
    /// Name in the table.
    name: &'static str,
    backend: Backend,
    /// The Redis servers that this variant uses.
    servers: &'a [Redis],
    /// Index of the next batch's first key. Each measurement continues where the last one ended, so that all keys are
    /// used equally often.
    next: AtomicUsize,
}

enum Backend {
    /// The names of the counters. There are as many as API keys in the stores, so that INCR accesses as many entries.
    Incr(MultiplexedConnection, Vec<String>),
    Charges(Accounts, Vec<KeyId>),
}

impl<'a> Variant<'a> {
    /// INCR over the same kind of connection as the Redis store's, which pipelines concurrent commands.
    pub async fn incr(name: &'static str, redis: &'a Redis, counters: usize) -> anyhow::Result<Self> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(5)));
        let client = redis::Client::open(redis.url())?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        // The names have the same length as the Redis keys of the records.
        let counters = (0..counters).map(|n| format!("incr:2:{{{:02x}-0}}:{n:032x}:k", n % 64)).collect();
        let backend = Backend::Incr(connection, counters);
        Ok(Self { name, backend, servers: std::slice::from_ref(redis), next: AtomicUsize::new(0) })
    }

    /// Charges through a store that contains these keys and uses these servers.
    pub fn charges(name: &'static str, store: Accounts, keys: Vec<KeyId>, servers: &'a [Redis]) -> Self {
        Self { name, backend: Backend::Charges(store, keys), servers, next: AtomicUsize::new(0) }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn servers(&self) -> &'a [Redis] {
        self.servers
    }

    /// Makes one call for `batch_size` different keys.
    pub async fn call(&self, batch_size: usize) -> anyhow::Result<()> {
        let start = self.next.fetch_add(batch_size, Ordering::Relaxed);
        match &self.backend {
            Backend::Incr(connection, counters) => {
                incr(connection.clone(), counters, start, batch_size).await
            }
            Backend::Charges(store, keys) => charge(store, keys, start, batch_size).await,
        }
    }
}

async fn incr(
    mut connection: MultiplexedConnection,
    counters: &[String],
    start: usize,
    batch_size: usize,
) -> anyhow::Result<()> {
    let counter = |n: usize| counters[(start + n) % counters.len()].as_str();
    if batch_size == 1 {
        return redis::cmd("INCR").arg(counter(0)).exec_async(&mut connection).await.context("INCR failed");
    }
    let mut pipeline = redis::pipe();
    for n in 0..batch_size {
        pipeline.cmd("INCR").arg(counter(n));
    }
    let replies: Vec<i64> = pipeline.query_async(&mut connection).await.context("INCR failed")?;
    ensure!(replies.len() == batch_size, "{} replies to {batch_size} INCRs", replies.len());
    Ok(())
}

async fn charge(store: &Accounts, keys: &[KeyId], start: usize, batch_size: usize) -> anyhow::Result<()> {
    let group =
        |n| ChargeGroup { subject: Subject::Key(keys[(start + n) % keys.len()]), origin: None, count: 1 };
    let groups: Vec<ChargeGroup> = (0..batch_size).map(group).collect();
    let outcomes = store.charge(&groups).await;
    let is_allowed =
        |outcome: &GroupOutcome| matches!(outcome, GroupOutcome::Counted(counts) if counts.allowed == 1);
    ensure!(
        outcomes.len() == batch_size && outcomes.iter().all(is_allowed),
        "a charge was not allowed; if a key was paused, use more --keys"
    );
    Ok(())
}
