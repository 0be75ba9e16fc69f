//! One operation other than a charge: its calls and the confirmation of its writes share one deadline.

use std::ops::Deref;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, Value};

use super::call::Call;
use super::topology::{CallError, Reply};
use super::{RedisStore, Result, StoreError, confirm};

pub struct Operation<'a> {
    store: &'a RedisStore,
    /// `None`: each call has its own timeout.
    deadline: Option<Instant>,
}

impl RedisStore {
    /// Starts an operation that may take `--write-timeout`.
    pub(super) fn operation(&self) -> Operation<'_> {
        Operation { store: self, deadline: Some(Instant::now() + self.write_timeout) }
    }

    /// Starts an operation on many accounts: each of its calls may take `--write-timeout`.
    pub(super) fn bulk_operation(&self) -> Operation<'_> {
        Operation { store: self, deadline: None }
    }
}

impl Deref for Operation<'_> {
    type Target = RedisStore;

    fn deref(&self) -> &RedisStore {
        self.store
    }
}

impl Operation<'_> {
    fn remaining(&self) -> Duration {
        match self.deadline {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            None => self.write_timeout,
        }
    }

    /// Fails without sending anything if no time is left.
    fn time_for_call(&self) -> Result<Duration> {
        match self.remaining() {
            Duration::ZERO => Err(StoreError::Unavailable("--write-timeout has passed".into())),
            remaining => Ok(remaining),
        }
    }

    /// Makes a call that only reads, or whose writes need no confirmation, and converts its reply.
    pub async fn query<T: FromRedisValue>(&self, call: &Call<'_>) -> Result<T> {
        let reply = self.others.send(call, self.time_for_call()?).await?;
        convert(reply.value)
    }

    pub async fn write(&self, call: &Call<'_>) -> Result<Reply> {
        Ok(self.writes.send(call, self.time_for_call()?).await?)
    }

    /// Like [`Self::write`], for a script whose reply is one integer.
    pub async fn write_int(&self, call: &Call<'_>) -> Result<(i64, Reply)> {
        let reply = self.write(call).await?;
        Ok((convert(reply.value.clone())?, reply))
    }

    /// Waits until these writes are confirmed, in the time that is left.
    pub async fn confirm(&self, replies: impl IntoIterator<Item = Reply>) -> Result<()> {
        confirm::confirm(replies, self.remaining()).await
    }

    /// The manual clock's time or the server's. In a Cluster the server is the master of the demo's slot.
    pub async fn read_now(&self) -> Result<i64> {
        if let Some(now) = self.clock.manual() {
            return Ok(now);
        }
        let redis_key = self.redis_keys.demo();
        let (seconds, micros): (i64, i64) = self.query(&Call::without_args("TIME", &redis_key)).await?;
        Ok(seconds * 1000 + micros / 1000)
    }
}

pub fn convert<T: FromRedisValue>(value: Value) -> Result<T> {
    redis::from_redis_value(value).map_err(|error| StoreError::InvalidData(error.into()))
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        match error {
            // The data is wrong, not the connection: a retry would not help.
            CallError::Failed(error) if error.code() == Some("WRONGTYPE") => Self::InvalidData(error.into()),
            other => Self::Unavailable(other.into()),
        }
    }
}
