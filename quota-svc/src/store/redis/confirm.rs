//! Confirms a write before the response: on disk with `WAITAOF`, on a replica with `WAIT`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use redis::RedisResult;
use redis::aio::MultiplexedConnection;

use super::super::{Result, StoreError};
use super::settings::info_field;
use super::topology::Reply;

#[derive(Debug, Default, PartialEq, Eq)]
struct ConfirmSupport {
    /// It supports `WAITAOF` and has an append-only file.
    local: bool,
    replicas: bool,
}

/// Waits at most `timeout` until these writes are confirmed: on disk if the server supports `WAITAOF` and has an
/// append-only file, and on a replica if it has replicas. One confirmation per server covers every write made on its
/// connection before.
pub async fn confirm(replies: impl IntoIterator<Item = Reply>, timeout: Duration) -> Result<()> {
    let by_server: HashMap<_, _> = replies.into_iter().map(|reply| (reply.server.clone(), reply)).collect();
    try_join_all(by_server.into_values().map(|reply| confirm_one(reply, timeout))).await.map(drop)
}

/// Uses the connection of the write, because `WAIT` and `WAITAOF` cover only the writes of their own connection.
async fn confirm_one(mut reply: Reply, timeout: Duration) -> Result<()> {
    let deadline = Instant::now() + timeout;
    match tokio::time::timeout(timeout, wait(&mut reply.connection, deadline)).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err(StoreError::Unconfirmed("the server did not confirm".into())),
        Ok(Err(error)) => Err(StoreError::Unconfirmed(error.into())),
        Err(_) => Err(StoreError::Unconfirmed("no reply".into())),
    }
}

async fn wait(connection: &mut MultiplexedConnection, deadline: Instant) -> RedisResult<bool> {
    let info: String = redis::cmd("INFO").query_async(connection).await?;
    let support = ConfirmSupport::parse(&info);
    // At least 1, because 0 means to wait forever.
    let remaining_ms = || {
        deadline.saturating_duration_since(Instant::now()).as_millis().clamp(1, u128::from(u32::MAX)) as u64
    };
    if support.local {
        let mut wait = redis::cmd("WAITAOF");
        wait.arg(1).arg(0).arg(remaining_ms());
        let (local, _): (i64, i64) = wait.query_async(connection).await?;
        if local < 1 {
            return Ok(false);
        }
    }
    if support.replicas {
        let mut wait = redis::cmd("WAIT");
        wait.arg(1).arg(remaining_ms());
        let replicas: i64 = wait.query_async(connection).await?;
        return Ok(replicas >= 1);
    }
    Ok(true)
}

impl ConfirmSupport {
    fn parse(info: &str) -> Self {
        let field = |name| info_field(info, name).unwrap_or_default();
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
