//! What is measured: INCR, or charges on one of the stores. Each call carries a batch.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use quota_svc::domain::id::KeyId;
use quota_svc::domain::verdict::{Entry, Judged, Subject as Charged};
use quota_svc::store::Store;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use super::load::Shape;
use super::report;

/// Something that takes batches.
pub struct Subject {
    name: &'static str,
    kind: Kind,
    /// Where the next batch begins: measurements go on where the last one stopped, so that all keys come alike.
    next: AtomicUsize,
}

enum Kind {
    /// As many counters as there are keys, so that memory is touched alike.
    Incr(MultiplexedConnection, Vec<String>),
    Charges(Box<dyn Store>, Vec<KeyId>),
}

impl Subject {
    /// The yardstick: INCR over the same kind of connection, which pipelines what its callers send.
    pub async fn incr(name: &'static str, url: &str, counters: usize) -> anyhow::Result<Self> {
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(5)));
        let client = redis::Client::open(url)?;
        let connection = client.get_multiplexed_async_connection_with_config(&patient).await?;
        // As long as the name of a key's record.
        let names = (0..counters).map(|n| format!("incr:1:{{{n:032x}}}:k")).collect();
        Ok(Self { name, kind: Kind::Incr(connection, names), next: AtomicUsize::new(0) })
    }

    /// Charges through a store that holds these keys.
    pub fn charges(name: &'static str, store: Box<dyn Store>, keys: Vec<KeyId>) -> Self {
        Self { name, kind: Kind::Charges(store, keys), next: AtomicUsize::new(0) }
    }

    /// What the table calls it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How its calls travel: only the plain yardstick's go alone.
    pub fn shape(&self, in_flight: usize) -> Shape {
        if self.name == report::INCR { Shape::alone(in_flight) } else { Shape::batched(in_flight) }
    }

    /// One call for `batch` different keys.
    pub async fn call(&self, batch: usize) -> anyhow::Result<()> {
        let start = self.next.fetch_add(batch, Ordering::Relaxed);
        match &self.kind {
            Kind::Incr(connection, names) => incr(connection.clone(), names, start, batch).await,
            Kind::Charges(store, keys) => charge(&**store, keys, start, batch).await,
        }
    }
}

async fn incr(
    mut connection: MultiplexedConnection,
    names: &[String],
    start: usize,
    batch: usize,
) -> anyhow::Result<()> {
    let name = |n: usize| names[(start + n) % names.len()].as_str();
    if batch == 1 {
        return redis::cmd("INCR").arg(name(0)).exec_async(&mut connection).await.context("INCR");
    }
    let mut pipeline = redis::pipe();
    for n in 0..batch {
        pipeline.cmd("INCR").arg(name(n));
    }
    let counts: Vec<i64> = pipeline.query_async(&mut connection).await.context("INCR")?;
    ensure!(counts.len() == batch, "not one count for each INCR");
    Ok(())
}

async fn charge(store: &dyn Store, keys: &[KeyId], start: usize, batch: usize) -> anyhow::Result<()> {
    let entry = |n| Entry { subject: Charged::Key(keys[(start + n) % keys.len()]), count: 1 };
    let entries: Vec<Entry> = (0..batch).map(entry).collect();
    let judged = store.charge(&entries).await;
    let allowed = |judged: &Judged| matches!(judged, Judged::Tally(tally) if tally.allowed == 1);
    ensure!(judged.len() == batch && judged.iter().all(allowed), "a charge was not allowed: use more --keys");
    Ok(())
}
