//! Confirmed writes: on disk (`WAITAOF`) and on a replica (`WAIT`), as far as the server supports it and has any.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures_util::future::{BoxFuture, Either, ready, select};
use futures_util::{FutureExt, TryFutureExt};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::sync::OwnedMutexGuard;

use super::call::{Call, CallError};
use super::convert;
use super::redis_keys::RedisKey;
use super::topology::Topology;
use crate::store::{Confirmation, Result, StoreError, VERSION, Version, lock};

/// Limit of a pipelined `WAIT`, which is not known to be needed: if the replica is gone, it delays one write by this time.
const MAX_PIPELINED_WAIT_MS: u64 = 200;

/// In the reply of `lua/commit.lua`.
const NEEDS_WAITAOF: i64 = 2;
const NEEDS_WAIT: i64 = 4;

/// `WAITAOF` and `WAIT` block their connection, and cover the writes that were made on it before. So there are two connections
/// to each server: while a confirmation is awaited on one, writes are made on the other, and the next confirmation covers them
/// all. If none is awaited, that of a write is sent right behind it, without waiting for its reply.
pub struct ConfirmedWrites {
    pub sides: [Arc<Topology>; 2],
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
    confirmed: Arc<tokio::sync::Mutex<[Confirmed; 2]>>,
}

/// The replies up to this one, on a connection of this generation, are confirmed in the ways of `needs`.
#[derive(Clone, Copy, Default)]
struct Confirmed {
    generation: u64,
    reply: u64,
    needs: i64,
}

impl Confirmed {
    fn covers(self, needed: Self) -> bool {
        self.generation == needed.generation
            && self.reply >= needed.reply
            && self.needs & needed.needs == needed.needs
    }
}

impl ConfirmedWrites {
    pub fn new(sides: [Arc<Topology>; 2]) -> Self {
        Self { sides, servers: Mutex::default() }
    }

    /// Makes a call of `lua/commit.lua`. `version` is the one it gives to the account.
    pub async fn write(
        &self,
        call: &Call<'_>,
        version: Option<Version>,
        deadline: Instant,
    ) -> Result<Option<Confirmation>> {
        let server = self.sides[0].server_of(call.redis_key).map(|managed| self.server(&managed.label));
        let side = server.map_or(0, |server| server.open.load(Ordering::Acquire));
        let pipelined = version.and_then(|version| self.pipeline(side, call.redis_key, version, deadline));
        let pipelined = pipelined.unwrap_or_else(|| ready(Confirmed::default()).boxed());
        let commit = pin!(self.sides[side].send(call, deadline).map_err(write_error));
        // The commit is polled first, so it is sent first.
        let (reply, pipelined) = match select(commit, pipelined).await {
            Either::Left((reply, pipelined)) => (reply?, pipelined),
            Either::Right((confirmed, commit)) => (commit.await?, ready(confirmed).boxed()),
        };
        let result: i64 = convert(reply.value)?;
        if result == 0 {
            // Holds the lock as long as the connection is blocked. Otherwise the next confirmation would open this side.
            tokio::spawn(pipelined);
            return Ok(None);
        }
        let server = self.server(&reply.live.status.server);
        let needed = Confirmed {
            generation: reply.live.status.generation,
            reply: server.replies.fetch_add(1, Ordering::AcqRel) + 1,
            needs: result & (NEEDS_WAITAOF | NEEDS_WAIT),
        };
        let confirmation = async move {
            if pipelined.await.covers(needed) || needed.needs == 0 {
                return Ok(());
            }
            let sides = server.confirmed.clone().lock_owned().await;
            if sides[side].covers(needed) {
                return Ok(());
            }
            match server.wait(sides, side, reply.live.connection, needed, None, deadline).await {
                Ok(confirmed) if confirmed.covers(needed) => Ok(()),
                Ok(_) => Err(StoreError::Unconfirmed("the server did not confirm".into())),
                Err(error) => Err(StoreError::Unconfirmed(error.into())),
            }
        };
        let no_reply = |_| Err(StoreError::Unconfirmed("no reply".into()));
        let confirmation = tokio::time::timeout_at(deadline.into(), confirmation);
        Ok(Some(confirmation.map(move |result| result.unwrap_or_else(no_reply)).boxed()))
    }

    /// The confirmation to send behind a write, unless another one is awaited. What the write needs is not known yet; it is assumed
    /// to be what the last one on this connection needed.
    fn pipeline(
        &self,
        side: usize,
        account: &RedisKey,
        version: Version,
        deadline: Instant,
    ) -> Option<BoxFuture<'static, Confirmed>> {
        let managed = self.sides[side].server_of(account)?;
        let (server, live) = (self.server(&managed.label), managed.connection()?);
        let sides = server.confirmed.clone().try_lock_owned().ok()?;
        let last = sides[side];
        let wait = || server.wait(sides, side, live.connection, last, Some((account, version)), deadline);
        (last.generation == live.status.generation).then(|| wait().map(Result::unwrap_or_default).boxed())
    }

    fn server(&self, name: &Arc<str>) -> Arc<Server> {
        let mut servers = lock(&self.servers);
        servers.entry(name.clone()).or_default().clone()
    }
}

impl Server {
    /// Sends a confirmation on one side. Returns what it confirms of the write before it. `pipelined`: nothing unless the account
    /// has this version by then. This proves that the write was before, for after an error such as NOSCRIPT it is sent again.
    fn wait(
        &self,
        mut sides: OwnedMutexGuard<[Confirmed; 2]>,
        side: usize,
        mut connection: MultiplexedConnection,
        Confirmed { generation, needs, .. }: Confirmed,
        pipelined: Option<(&RedisKey, Version)>,
        deadline: Instant,
    ) -> impl Future<Output = RedisResult<Confirmed>> + use<> {
        // Nothing waits on the other side.
        self.open.store(1 - side, Ordering::Release);
        // Writes of this generation whose replies were counted were made before.
        let reply = self.replies.load(Ordering::Acquire);
        // At least 1, because 0 means to wait forever.
        let remaining = deadline.saturating_duration_since(Instant::now()).as_millis();
        let remaining = remaining.clamp(1, u128::from(u32::MAX)) as u64;
        let mut waits = redis::pipe();
        if let Some((account, _)) = pipelined {
            waits.cmd("HGET").arg(account.as_str()).arg(VERSION);
        }
        if needs & NEEDS_WAITAOF != 0 {
            waits.cmd("WAITAOF").arg(1).arg(0).arg(remaining);
        }
        if needs & NEEDS_WAIT != 0 {
            let limit = if pipelined.is_some() { MAX_PIPELINED_WAIT_MS } else { u64::MAX };
            waits.cmd("WAIT").arg(1).arg(remaining.min(limit));
        }
        let version = pipelined.map(|(_, version)| version);
        async move {
            // Until it is confirmed, the next write is not pipelined: it may need something else.
            sides[side] = Confirmed::default();
            let replies: Vec<Value> = waits.query_async(&mut connection).await?;
            // `WAITAOF` replies with the number of servers and of replicas, `WAIT` with that of replicas.
            let is_confirmed = replies.iter().all(|reply| match reply {
                Value::BulkString(current) => version.is_some_and(|version| *current == version),
                Value::Array(counts) => matches!(counts.first(), Some(Value::Int(1..))),
                count => matches!(count, Value::Int(1..)),
            });
            if !is_confirmed {
                return Ok(Confirmed::default());
            }
            sides[side] = Confirmed { generation, reply, needs };
            // The reply to a pipelined write is not counted yet.
            Ok(Confirmed { reply: u64::MAX, ..sides[side] })
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
