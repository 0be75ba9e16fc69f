//! Confirming a write before it is answered: on disk where the server can say so, on a replica where there is one.

use std::time::Duration;

use redis::RedisResult;
use redis::aio::MultiplexedConnection;

use super::super::StoreError;
use super::topology::Answer;

/// Whether changes of accounts and keys are confirmed before they are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ConfirmWrites {
    /// WAITAOF where the server has it and keeps an append-only file, WAIT where it has replicas.
    Auto,
    /// Answer when the server has answered.
    Off,
}

/// Confirms writes.
pub struct Confirm {
    mode: ConfirmWrites,
    timeout: Duration,
}

/// What a server can confirm.
#[derive(Debug, Default, PartialEq, Eq)]
struct Abilities {
    /// It has WAITAOF and keeps an append-only file.
    local: bool,
    /// It has replicas.
    replicas: bool,
}

impl Confirm {
    pub fn new(mode: ConfirmWrites, timeout: Duration) -> Self {
        Self { mode, timeout }
    }

    /// Waits until what was written by this connection is safe. It must be the very connection of the write:
    /// the server counts what that one wrote.
    pub async fn confirm(&self, mut answer: Answer) -> Result<(), StoreError> {
        if self.mode == ConfirmWrites::Off {
            return Ok(());
        }
        match tokio::time::timeout(self.timeout, self.wait(&mut answer.via)).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(StoreError::Unconfirmed("the server did not confirm".to_owned())),
            Ok(Err(error)) => Err(StoreError::Unconfirmed(error.to_string())),
            Err(_) => Err(StoreError::Unconfirmed("no answer".to_owned())),
        }
    }

    async fn wait(&self, via: &mut MultiplexedConnection) -> RedisResult<bool> {
        let info: String = redis::cmd("INFO").query_async(via).await?;
        let abilities = Abilities::read(&info);
        let limit = self.timeout.as_millis() as u64;
        if abilities.local {
            let mut wait = redis::cmd("WAITAOF");
            wait.arg(1).arg(0).arg(limit);
            let (local, _): (i64, i64) = wait.query_async(via).await?;
            if local < 1 {
                return Ok(false);
            }
        }
        if abilities.replicas {
            let mut wait = redis::cmd("WAIT");
            wait.arg(1).arg(limit);
            let replicas: i64 = wait.query_async(via).await?;
            return Ok(replicas >= 1);
        }
        Ok(true)
    }
}

impl Abilities {
    fn read(info: &str) -> Self {
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map_or("", str::trim_end)
        };
        let version: Vec<u32> =
            field("redis_version").split('.').filter_map(|part| part.parse().ok()).collect();
        // Valkey goes on reporting redis_version 7.2.4, and had WAITAOF from its first release.
        let has_waitaof = version.as_slice() >= [7, 2].as_slice() || !field("valkey_version").is_empty();
        Self {
            local: has_waitaof && field("aof_enabled") == "1",
            replicas: field("connected_slaves").parse::<u32>().is_ok_and(|replicas| replicas > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abilities_are_read_from_info() {
        let of = |version: &str, aof: u8, replicas: u8| {
            let info = format!(
                "# Server\r\nredis_version:{version}\r\naof_enabled:{aof}\r\nconnected_slaves:{replicas}\r\n"
            );
            Abilities::read(&info)
        };
        assert_eq!(of("7.0.15", 1, 0), Abilities { local: false, replicas: false });
        assert_eq!(of("7.2.0", 1, 0), Abilities { local: true, replicas: false });
        assert_eq!(of("8.0.1", 0, 2), Abilities { local: false, replicas: true });
        assert_eq!(Abilities::read("nonsense"), Abilities::default());
    }
}
