//! The store in Redis or Valkey: one server, one master behind Sentinels, or a Cluster.

mod accounts;
mod charge;
mod confirm;
mod import;
mod keys;
mod managed_connection;
mod redis_keys;
mod script;
mod store_impl;
mod target;
mod topology;

use std::time::Duration;

pub use confirm::ConfirmWrites;
use confirm::WriteConfirmer;
use redis::Value;
use redis_keys::{RedisKey, RedisKeys};
use script::ScriptCall;
use service_kit::LogThrottle;
pub use target::{Credentials, RedisUrlError};
use topology::{CallError, Reply, Topology};

use super::StoreError;
use crate::domain::limits::Limits;
use crate::domain::time::Clock;

/// Configuration of a [`RedisStore`].
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// `--redis-url`.
    pub url: String,
    pub credentials: Credentials,
    /// Prefix of all Redis keys.
    pub key_prefix: String,
    /// Timeout of a charge.
    pub store_timeout: Duration,
    /// Timeout of all calls that are not charges. It applies to the call, and once more to its confirmation.
    pub write_timeout: Duration,
    /// Whether changes to accounts and keys are confirmed.
    pub confirm_writes: ConfirmWrites,
    pub limits: Limits,
    pub clock: Clock,
}

pub struct RedisStore {
    /// Connections for charges only, so that charges never queue behind slow commands.
    charges: Topology,
    /// Connections for everything else. `WAIT` and `WAITAOF` block these.
    others: Topology,
    redis_keys: RedisKeys,
    limits: Limits,
    clock: Clock,
    confirmer: WriteConfirmer,
    charge_failures: LogThrottle,
    invalid_records: LogThrottle,
}

impl RedisStore {
    /// Starts connecting in the background and returns immediately.
    pub fn start(options: RedisOptions) -> Result<Self, RedisUrlError> {
        let parse = |timeout| target::parse(&options.url, options.credentials.clone(), timeout);
        let (target, charge_options) = parse(options.store_timeout)?;
        let (_, other_options) = parse(options.write_timeout)?;
        Ok(Self {
            charges: Topology::start(&target, &charge_options, options.store_timeout),
            others: Topology::start(&target, &other_options, options.write_timeout),
            redis_keys: RedisKeys::new(&options.key_prefix),
            limits: options.limits,
            clock: options.clock,
            confirmer: WriteConfirmer::new(options.confirm_writes, options.write_timeout),
            charge_failures: LogThrottle::default(),
            invalid_records: LogThrottle::default(),
        })
    }

    /// A script's time argument: a manual clock's time, or empty for the server's clock.
    fn now_arg(&self) -> String {
        self.clock.manual().map_or_else(String::new, |now| now.to_string())
    }

    /// The time of the Redis server, even if a manual clock is set. Proves that the server replies.
    pub async fn now_from_server(&self) -> Result<i64, StoreError> {
        let (seconds, micros): (i64, i64) = self.query(&self.redis_keys.demo(), &redis::cmd("TIME")).await?;
        Ok(seconds * 1000 + micros / 1000)
    }

    /// The manual clock's time or the server's. In a Cluster, this is the time of the master that holds the demo's counter.
    async fn read_now(&self) -> Result<i64, StoreError> {
        match self.clock.manual() {
            Some(now) => Ok(now),
            None => self.now_from_server().await,
        }
    }

    async fn run(&self, redis_key: &RedisKey, call: &ScriptCall) -> Result<Reply, StoreError> {
        Ok(self.others.run(redis_key, call).await?)
    }

    /// Runs a script whose reply is one integer.
    async fn run_int(&self, redis_key: &RedisKey, call: &ScriptCall) -> Result<(i64, Reply), StoreError> {
        let reply = self.run(redis_key, call).await?;
        Ok((int(&reply.value)?, reply))
    }

    /// Sends a command and converts its reply. Writes sent this way are not confirmed.
    async fn query<T: redis::FromRedisValue>(
        &self,
        redis_key: &RedisKey,
        command: &redis::Cmd,
    ) -> Result<T, StoreError> {
        let reply = self.others.send(redis_key, command).await?;
        redis::from_redis_value(reply.value).map_err(|error| StoreError::InvalidData(error.to_string()))
    }
}

/// A command whose first argument is `redis_key`.
fn command(name: &str, redis_key: &RedisKey) -> redis::Cmd {
    let mut command = redis::cmd(name);
    command.arg(redis_key.as_str());
    command
}

fn int(value: &Value) -> Result<i64, StoreError> {
    match value {
        Value::Int(number) => Ok(*number),
        other => Err(StoreError::InvalidData(format!("expected an integer, got {other:?}"))),
    }
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        match error {
            // The data is wrong, not the connection: a retry would not help.
            CallError::Failed(error) if error.code() == Some("WRONGTYPE") => {
                Self::InvalidData(error.to_string())
            }
            other => Self::Unavailable(other.to_string()),
        }
    }
}
