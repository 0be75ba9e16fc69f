//! Confirmed writes: on disk (`WAITAOF`) and on a replica (`WAIT`), as far as the server supports it and has any.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};

use super::call::Call;
use super::convert;
use super::managed_connection::Generation;
use super::topology::{CallError, Reply, Topology};
use crate::store::{Confirmation, Result, StoreError};

/// Delay before a call that was refused because its slot migrates is made again.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// In the reply of `lua/commit.lua`.
const NEEDS_WAITAOF: i64 = 2;
const NEEDS_WAIT: i64 = 4;

/// `WAITAOF` and `WAIT` block their connection, and cover the writes that were made on it before. So there are two connections
/// to each server: while a confirmation is awaited on one, writes are made on the other, and the next confirmation covers them
/// all.
pub struct ConfirmedWrites {
    sides: [Topology; 2],
    /// By name.
    servers: Mutex<HashMap<Arc<str>, Arc<Server>>>,
}

#[derive(Default)]
struct Server {
    /// The side of new writes.
    open: AtomicUsize,
    /// Number of replies to writes.
    replies: AtomicU64,
    /// What was confirmed last on each side. Locked while a confirmation is awaited.
    confirmed: tokio::sync::Mutex<[Confirmed; 2]>,
}

/// The replies up to this one, on a connection of this generation, are confirmed in the ways of `needs`.
#[derive(Clone, Copy, Default)]
struct Confirmed {
    generation: Generation,
    reply: u64,
    needs: i64,
}

impl ConfirmedWrites {
    pub fn new(sides: [Topology; 2]) -> Self {
        Self { sides, servers: Mutex::default() }
    }

    pub fn unavailable_reason(&self) -> Option<String> {
        self.sides.iter().find_map(Topology::unavailable_reason)
    }

    /// Makes a call whose reply is that of `lua/commit.lua`.
    pub async fn write(&self, call: &Call<'_>, deadline: Instant) -> Result<Option<Confirmation>> {
        let server = self.sides[0].server_of(call.redis_key).map(|managed| self.server(managed.label()));
        let side = server.map_or(0, |server| server.open.load(Ordering::Acquire));
        let Reply { value, connection, generation, server } =
            send(&self.sides[side], call, deadline, write_error).await?;
        let result: i64 = convert(value)?;
        if result == 0 {
            return Ok(None);
        }
        let server = self.server(&server);
        let reply = server.replies.fetch_add(1, Ordering::AcqRel) + 1;
        let needed = Confirmed { generation, reply, needs: result & (NEEDS_WAITAOF | NEEDS_WAIT) };
        Ok(Some(confirm(server, side, connection, needed, deadline).boxed()))
    }

    fn server(&self, name: &Arc<str>) -> Arc<Server> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.entry(name.clone()).or_default().clone()
    }
}

async fn confirm(
    server: Arc<Server>,
    side: usize,
    connection: MultiplexedConnection,
    needed: Confirmed,
    deadline: Instant,
) -> Result<()> {
    match tokio::time::timeout_at(deadline.into(), wait(&server, side, connection, needed, deadline)).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err(StoreError::Unconfirmed("the server did not confirm".into())),
        Ok(Err(error)) => Err(StoreError::Unconfirmed(error.into())),
        Err(_) => Err(StoreError::Unconfirmed("no reply".into())),
    }
}

async fn wait(
    server: &Server,
    side: usize,
    mut connection: MultiplexedConnection,
    needed: Confirmed,
    deadline: Instant,
) -> RedisResult<bool> {
    let Confirmed { generation, reply, needs } = needed;
    if needs == 0 {
        return Ok(true);
    }
    let mut sides = server.confirmed.lock().await;
    let confirmed = &mut sides[side];
    if confirmed.generation == generation && confirmed.reply >= reply && confirmed.needs & needs == needs {
        return Ok(true);
    }
    // Nothing waits on the other side.
    server.open.store(1 - side, Ordering::Release);
    // Writes of this generation whose replies were counted were made before.
    let reply = server.replies.load(Ordering::Acquire);
    // At least 1, because 0 means to wait forever.
    let remaining = deadline.saturating_duration_since(Instant::now()).as_millis();
    let remaining = remaining.clamp(1, u128::from(u32::MAX)) as u64;
    let mut waits = redis::pipe();
    if needs & NEEDS_WAITAOF != 0 {
        waits.cmd("WAITAOF").arg(1).arg(0).arg(remaining);
    }
    if needs & NEEDS_WAIT != 0 {
        waits.cmd("WAIT").arg(1).arg(remaining);
    }
    // `WAITAOF` replies with the number of servers and of replicas, `WAIT` with that of replicas.
    let counts: Vec<Value> = waits.query_async(&mut connection).await?;
    let is_confirmed = counts.iter().all(|count| match count {
        Value::Array(counts) => matches!(counts.first(), Some(Value::Int(1..))),
        count => matches!(count, Value::Int(1..)),
    });
    if is_confirmed {
        *confirmed = Confirmed { generation, reply, needs };
    }
    Ok(is_confirmed)
}

/// Makes a call until the deadline, again if it was refused because its slot migrates: then nothing was executed.
pub async fn send(
    topology: &Topology,
    call: &Call<'_>,
    deadline: Instant,
    to_error: fn(CallError) -> StoreError,
) -> Result<Reply> {
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(StoreError::Unavailable("--write-timeout has passed".into()));
        }
        match topology.send(call, remaining).await {
            Err(CallError::Failed(error)) if error.code() == Some("TRYAGAIN") && remaining > RETRY_DELAY => {
                tokio::time::sleep(RETRY_DELAY).await;
            }
            result => return result.map_err(to_error),
        }
    }
}

/// The error of a commit. An error that the server has replied with means that nothing was written. Without a reply it may have
/// been.
pub fn write_error(error: CallError) -> StoreError {
    match error {
        CallError::Failed(error) if error.code().is_none() => StoreError::Unconfirmed(error.into()),
        CallError::TimedOut(_) => StoreError::Unconfirmed(error.into()),
        error => error.into(),
    }
}
