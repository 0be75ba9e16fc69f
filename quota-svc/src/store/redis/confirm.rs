//! Confirms a write before the response: on disk with `WAITAOF`, on a replica with `WAIT`.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::RedisResult;
use redis::aio::MultiplexedConnection;

use super::super::StoreError;
use super::topology::Reply;

/// Whether changes to accounts and keys are confirmed before the response.
// The comments on the values are `--help` text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ConfirmWrites {
    /// Wait for the disk (WAITAOF) if the server supports that and has an append-only file, and for a replica (WAIT) if
    /// it has replicas.
    Auto,
    /// Don't wait: respond as soon as the server has replied to the write.
    Off,
}

pub struct WriteConfirmer {
    mode: ConfirmWrites,
    timeout: Duration,
}

/// The confirmations that a server supports.
#[derive(Debug, Default, PartialEq, Eq)]
struct ConfirmSupport {
    /// It supports `WAITAOF` and has an append-only file.
    local: bool,
    /// It has replicas.
    replicas: bool,
}

impl WriteConfirmer {
    pub fn new(mode: ConfirmWrites, timeout: Duration) -> Self {
        Self { mode, timeout }
    }

    /// Waits until the write is confirmed. Uses the connection of the write, because `WAIT` and `WAITAOF` cover
    /// only the writes of their own connection.
    pub async fn confirm(&self, mut reply: Reply) -> Result<(), StoreError> {
        if self.mode == ConfirmWrites::Off {
            return Ok(());
        }
        match tokio::time::timeout(self.timeout, self.wait(&mut reply.connection)).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(StoreError::Unconfirmed("the server did not confirm".to_owned())),
            Ok(Err(error)) => Err(StoreError::Unconfirmed(error.to_string())),
            Err(_) => Err(StoreError::Unconfirmed("no reply".to_owned())),
        }
    }

    /// Confirms these writes with one confirmation per server, which covers every write made on its connection before.
    pub async fn confirm_all(&self, replies: impl IntoIterator<Item = Reply>) -> Result<(), StoreError> {
        let by_server: HashMap<_, _> =
            replies.into_iter().map(|reply| (reply.server.clone(), reply)).collect();
        try_join_all(by_server.into_values().map(|reply| self.confirm(reply))).await.map(drop)
    }

    async fn wait(&self, connection: &mut MultiplexedConnection) -> RedisResult<bool> {
        let info: String = redis::cmd("INFO").query_async(connection).await?;
        let support = ConfirmSupport::parse(&info);
        let timeout_ms = self.timeout.as_millis() as u64;
        if support.local {
            let mut wait = redis::cmd("WAITAOF");
            wait.arg(1).arg(0).arg(timeout_ms);
            let (local, _): (i64, i64) = wait.query_async(connection).await?;
            if local < 1 {
                return Ok(false);
            }
        }
        if support.replicas {
            let mut wait = redis::cmd("WAIT");
            wait.arg(1).arg(timeout_ms);
            let replicas: i64 = wait.query_async(connection).await?;
            return Ok(replicas >= 1);
        }
        Ok(true)
    }
}

impl ConfirmSupport {
    /// Parses the reply to `INFO`.
    fn parse(info: &str) -> Self {
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map_or("", str::trim_end)
        };
        let version: Vec<u32> =
            field("redis_version").split('.').filter_map(|part| part.parse().ok()).collect();
        // Valkey always reports redis_version 7.2.4 and has had WAITAOF since its first release.
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
    fn confirm_support_is_parsed_from_info() {
        let parse = |version: &str, aof: u8, replicas: u8| {
            let info = format!(
                "# Server\r\nredis_version:{version}\r\naof_enabled:{aof}\r\nconnected_slaves:{replicas}\r\n"
            );
            ConfirmSupport::parse(&info)
        };
        assert_eq!(parse("7.0.15", 1, 0), ConfirmSupport { local: false, replicas: false });
        assert_eq!(parse("7.2.0", 1, 0), ConfirmSupport { local: true, replicas: false });
        assert_eq!(parse("8.0.1", 0, 2), ConfirmSupport { local: false, replicas: true });
        assert_eq!(ConfirmSupport::parse("nonsense"), ConfirmSupport::default());
    }
}
