//! The store on Redis or Valkey: a single server, one behind Sentinels, or a Cluster.

mod accounts;
mod charge;
mod confirm;
mod import;
mod keys;
mod link;
mod names;
mod script;
mod store_impl;
mod target;
mod topology;

use std::time::Duration;

use confirm::Confirm;
pub use confirm::ConfirmWrites;
use names::{Name, Names};
use redis::Value;
use script::Call;
use service_kit::Alarm;
pub use target::{Credentials, TargetError};
use topology::{Answer, CallError, Topology};

use super::StoreError;
use crate::domain::limits::Limits;
use crate::domain::time::Clock;

/// What a Redis store is made from.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// `--redis-url`.
    pub url: String,
    /// What stands beside the URL.
    pub credentials: Credentials,
    /// What every name starts with.
    pub key_prefix: String,
    /// What a charge may take.
    pub store_timeout: Duration,
    /// What a change of an account or a key may take, with its confirmation.
    pub write_timeout: Duration,
    /// Whether such changes are confirmed.
    pub confirm_writes: ConfirmWrites,
    /// The limits in force.
    pub limits: Limits,
    /// Where the time comes from.
    pub clock: Clock,
}

/// Accounts, keys and counters in Redis.
pub struct RedisStore {
    /// For charges: never waits for anything slow.
    charges: Topology,
    /// For everything else: here a confirmation may block.
    records: Topology,
    names: Names,
    limits: Limits,
    clock: Clock,
    confirm: Confirm,
    /// About calls that failed.
    failures: Alarm,
    /// About keys that can't be read.
    unreadable: Alarm,
}

impl RedisStore {
    /// Starts connecting and returns at once: the store may be away for now.
    pub fn start(options: RedisOptions) -> Result<Self, TargetError> {
        let place_for = |timeout| target::parse(&options.url, options.credentials.clone(), timeout);
        let (place, access) = place_for(options.store_timeout)?;
        let (_, patient) = place_for(options.write_timeout)?;
        Ok(Self {
            charges: Topology::start(&place, &access, options.store_timeout),
            records: Topology::start(&place, &patient, options.write_timeout),
            names: Names::new(&options.key_prefix),
            limits: options.limits,
            clock: options.clock,
            confirm: Confirm::new(options.confirm_writes, options.write_timeout),
            failures: Alarm::default(),
            unreadable: Alarm::default(),
        })
    }

    /// The time set by hand as an argument, or an empty one: the server's clock.
    fn now_arg(&self) -> String {
        self.clock.manual().map_or_else(String::new, |now| now.to_string())
    }

    /// The time by the server's own clock, whatever the clock in force: proof that it answers.
    pub async fn now_from_server(&self) -> Result<i64, StoreError> {
        let (seconds, micros): (i64, i64) = self.ask(&self.names.demo(), &redis::cmd("TIME")).await?;
        Ok(seconds * 1000 + micros / 1000)
    }

    /// The time by the clock in force; in a Cluster that of the server that has the demo.
    async fn read_now(&self) -> Result<i64, StoreError> {
        match self.clock.manual() {
            Some(now) => Ok(now),
            None => self.now_from_server().await,
        }
    }

    async fn run(&self, name: &Name, call: &Call) -> Result<Answer, StoreError> {
        Ok(self.records.run(name, call).await?)
    }

    /// Runs a script that answers with one integer.
    async fn run_int(&self, name: &Name, call: &Call) -> Result<(i64, Answer), StoreError> {
        let answer = self.run(name, call).await?;
        Ok((int(&answer.value)?, answer))
    }

    /// Reads; the answer as the type that is asked for.
    async fn ask<T: redis::FromRedisValue>(
        &self,
        name: &Name,
        command: &redis::Cmd,
    ) -> Result<T, StoreError> {
        let answer = self.records.send(name, command).await?;
        redis::from_redis_value(answer.value).map_err(|error| StoreError::Unreadable(error.to_string()))
    }
}

fn command(verb: &str, name: &Name) -> redis::Cmd {
    let mut command = redis::cmd(verb);
    command.arg(name.as_str());
    command
}

fn int(value: &Value) -> Result<i64, StoreError> {
    match value {
        Value::Int(number) => Ok(*number),
        other => Err(StoreError::Unreadable(format!("expected an integer, got {other:?}"))),
    }
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        match error {
            // The connection works and the data does not: trying again would not help.
            CallError::Failed(error) if error.code() == Some("WRONGTYPE") => {
                Self::Unreadable(error.to_string())
            }
            other => Self::Away(other.to_string()),
        }
    }
}
