//! The calls to Redis: plain commands and Lua scripts, and how they are sent.
//!
//! The redis crate's cluster client is not used, because it resends a command whose reply was lost, which would count a charge
//! twice. Here a call is made again only after a redirection, NOSCRIPT or TRYAGAIN: then nothing was executed.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, ToRedisArgs, Value};
use tokio::time::timeout_at;

use super::managed_connection::{LiveConnection, ManagedConnection};
use super::redis_keys::RedisKey;
use super::target::Node;
use super::topology::Topology;

/// Maximum number of redirections of a call, and of a retry after NOSCRIPT.
const MAX_RETRIES: usize = 4;
/// Delay before a call that was refused because its slot migrates is made again.
const TRY_AGAIN_DELAY: Duration = Duration::from_millis(20);

/// A command or a script with its arguments, and the Redis key whose server it is sent to.
pub struct Call<'a> {
    /// The first Redis key. All of them are on the same server.
    pub redis_key: &'a RedisKey,
    pub command: Cmd,
    /// `None` for a plain command.
    script: Option<&'static Script>,
}

/// A command whose first argument is `redis_key`.
pub fn command<'a>(name: &str, redis_key: &'a RedisKey) -> Call<'a> {
    Call::without_args(name, redis_key).arg(redis_key.as_str())
}

impl<'a> Call<'a> {
    pub fn without_args(name: &str, redis_key: &'a RedisKey) -> Self {
        Self { redis_key, command: redis::cmd(name), script: None }
    }

    pub fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.command.arg(arg);
        self
    }

    /// The `EVAL` command of a script, for a server that replies NOSCRIPT. It also caches the script there.
    pub fn by_text(&self) -> Option<Cmd> {
        let mut command = redis::cmd("EVAL");
        command.arg(self.script?.text);
        for part in self.command.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = part {
                command.arg(bytes);
            }
        }
        Some(command)
    }
}

pub struct Script {
    text: &'static str,
    sha: String,
}

impl Script {
    /// Builds a call of the script on these Redis keys. Add arguments with [`Call::arg`].
    pub fn on<'a>(
        &'static self,
        redis_keys: impl IntoIterator<Item = &'a RedisKey, IntoIter: ExactSizeIterator + Clone>,
    ) -> Call<'a> {
        let redis_keys = redis_keys.into_iter();
        let first = redis_keys.clone().next().expect("every script has a Redis key");
        let call = self.call(first, redis_keys.len());
        redis_keys.fold(call, |call, redis_key| call.arg(redis_key.as_str()))
    }

    /// Builds a call on the server of `redis_key` that declares no Redis keys: the script gets them as arguments.
    pub fn undeclared<'a>(&'static self, redis_key: &'a RedisKey) -> Call<'a> {
        self.call(redis_key, 0)
    }

    fn call<'a>(&'static self, redis_key: &'a RedisKey, declared: usize) -> Call<'a> {
        Call { redis_key, command: redis::cmd("EVALSHA"), script: Some(self) }.arg(&self.sha).arg(declared)
    }
}

macro_rules! script {
    ($name:ident, $($file:literal)+) => {
        pub static $name: LazyLock<Script> = LazyLock::new(|| {
            let text = concat!($(include_str!(concat!("../../../lua/", $file))),+);
            Script { text, sha: redis::Script::new(text).get_hash().to_owned() }
        });
    };
}

script!(CHARGE, "announce.lua" "charge.lua");
script!(LOAD, "announce.lua" "load.lua");
script!(COMMIT, "commit.lua");

/// The result of a call.
pub type Result<T, E = CallError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nothing was executed.
    #[error("no connection to {0}")]
    Down(String),
    /// Nothing was executed.
    #[error("the deadline has passed")]
    Late,
    /// The command may have been executed.
    #[error("no reply in time from {0}")]
    TimedOut(String),
    #[error("{0}")]
    Failed(#[from] RedisError),
}

/// A reply with its connection, which is needed to confirm a write.
#[derive(Debug)]
pub struct Reply {
    pub value: Value,
    pub live: LiveConnection,
}

impl Topology {
    /// Makes a call on the server of its Redis key, again and again while it is refused because its slot migrates.
    pub async fn send(&self, call: &Call<'_>, deadline: Instant) -> Result<Reply> {
        loop {
            match self.send_once(call, deadline).await {
                Err(CallError::Failed(error)) if is(&error, ServerErrorKind::TryAgain) => {
                    tokio::time::sleep(TRY_AGAIN_DELAY).await;
                }
                result => return result,
            }
        }
    }

    /// Makes several calls at the same time. Each has its own result, in the order of `calls`.
    pub async fn send_all(&self, calls: &[Call<'_>], deadline: Instant) -> Vec<Result<Reply>> {
        match calls {
            [call] => vec![self.send_once(call, deadline).await],
            calls => join_all(calls.iter().map(|call| self.send_once(call, deadline))).await,
        }
    }

    async fn send_once(&self, call: &Call<'_>, deadline: Instant) -> Result<Reply> {
        let Some(server) = self.server_of(call.redis_key) else {
            self.request_refresh();
            return Err(CallError::Down(format!("a master of slot {}", call.redis_key.slot())));
        };
        match send_to(&server, &call.command, false, deadline).await {
            // Boxed, because it is rare.
            Err(error) => Box::pin(self.retry(call, server, error, deadline)).await,
            reply => reply,
        }
    }

    /// Makes a call again if its first attempt on `server` failed with a redirection, or with NOSCRIPT. Otherwise returns the
    /// error.
    async fn retry(
        &self,
        call: &Call<'_>,
        mut server: Arc<ManagedConnection>,
        mut error: CallError,
        deadline: Instant,
    ) -> Result<Reply> {
        let (mut by_text, mut asking) = (None, false);
        for _ in 0..MAX_RETRIES {
            let CallError::Failed(failure) = &error else { break };
            if is(failure, ServerErrorKind::NoScript) && by_text.is_none() {
                by_text = call.by_text();
            } else if self.is_cluster()
                && let Some(node) = redirection(failure, &server.label)
            {
                // While a slot migrates, its new master accepts commands only after `ASKING`.
                asking = is(failure, ServerErrorKind::Ask);
                if !asking {
                    self.request_refresh();
                }
                server = self.connection_to(&node);
                let _ = timeout_at(deadline.into(), server.wait_connected()).await;
            } else {
                break;
            }
            let command = by_text.as_ref().unwrap_or(&call.command);
            match send_to(&server, command, asking, deadline).await {
                Err(next) => error = next,
                reply => return reply,
            }
        }
        self.request_refresh();
        Err(error)
    }
}

async fn send_to(
    server: &ManagedConnection,
    command: &Cmd,
    asking: bool,
    deadline: Instant,
) -> Result<Reply> {
    if Instant::now() >= deadline {
        return Err(CallError::Late);
    }
    let mut live = server.connection().ok_or_else(|| CallError::Down(server.label.to_string()))?;
    let sent = async {
        if !asking {
            return live.connection.send_packed_command(command).await;
        }
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING").add_command(command.clone());
        let mut replies = live.connection.send_packed_commands(&pipeline, 1, 1).await?;
        Ok(replies.pop().unwrap_or(Value::Nil))
    };
    match timeout_at(deadline.into(), sent).await {
        Ok(Ok(Value::ServerError(error))) => Err(call_error(&live, error.into())),
        Ok(Ok(value)) => Ok(Reply { value, live }),
        Ok(Err(error)) => Err(call_error(&live, error)),
        Err(_) => {
            live.report_suspect();
            Err(CallError::TimedOut(server.label.to_string()))
        }
    }
}

/// The error of a call. Reports it to the connection's background task if it can mean a broken connection or a wrong
/// server.
fn call_error(live: &LiveConnection, error: RedisError) -> CallError {
    if is(&error, ServerErrorKind::ReadOnly) || is(&error, ServerErrorKind::MasterDown) {
        live.report_not_master();
    } else if error.is_io_error()
        || error.is_timeout()
        || error.is_unrecoverable_error()
        // In these states the server also replies to PING with an error until it has recovered.
        || is(&error, ServerErrorKind::BusyLoading)
        || error.code() == Some("MISCONF")
    {
        live.report_suspect();
    }
    if error.is_timeout() { CallError::TimedOut(live.status.server.to_string()) } else { error.into() }
}

pub fn is(error: &RedisError, kind: ServerErrorKind) -> bool {
    error.kind() == ErrorKind::Server(kind)
}

/// The target of a MOVED or ASK error. `sender` is the address of the server that sent it.
fn redirection(error: &RedisError, sender: &str) -> Option<Node> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = match host {
        "" => sender.rsplit_once(':').map_or(sender, |(host, _)| host),
        // IPv6 may have brackets.
        host => host.trim_matches(['[', ']']),
    };
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use testkit::redis::Redis;
    use testkit::wait::eventually;
    use tokio::task::JoinSet;

    use super::*;
    use crate::domain::id::KeyId;
    use crate::store::StoreArgs;
    use crate::store::redis::redis_keys::RedisKeys;
    use crate::store::redis::target;

    const TIMEOUT: Duration = Duration::from_secs(10);

    async fn connect(redis: &Redis) -> Arc<Topology> {
        let args = StoreArgs { write_timeout: TIMEOUT, ..StoreArgs::default() };
        let (target, options) = target::parse(&redis.url(), &args).unwrap();
        let topology = Topology::start(target, options, &mut JoinSet::new());
        let connected = async || topology.unavailable_reason().is_none().then_some(());
        eventually(TIMEOUT, "the server is connected", connected).await;
        topology
    }

    fn redis_keys(count: u8) -> Vec<RedisKey> {
        (0..count).map(|n| RedisKeys::new("ipl:").record(KeyId([n; 16]))).collect()
    }

    fn incr(redis_keys: &[RedisKey]) -> Vec<Call<'_>> {
        redis_keys.iter().map(|redis_key| command("INCR", redis_key)).collect()
    }

    #[tokio::test]
    async fn failed_call_has_its_own_error_and_the_others_their_replies() {
        let redis = Redis::start().await;
        let (topology, redis_keys) = (connect(&redis).await, redis_keys(3));
        redis.cli(&["SET", redis_keys[0].as_str(), "7"]).await;
        redis.cli(&["LPUSH", redis_keys[1].as_str(), "not a number"]).await;
        let results = topology.send_all(&incr(&redis_keys), Instant::now() + TIMEOUT).await;
        let [Ok(first), Err(CallError::Failed(error)), Ok(third)] = &*results else { panic!("{results:?}") };
        assert_eq!((&first.value, &third.value), (&Value::Int(8), &Value::Int(1)));
        assert_eq!(error.code(), Some("WRONGTYPE"));
    }

    #[tokio::test]
    async fn script_that_is_not_cached_is_sent_as_text_for_each_call() {
        let redis = Redis::start().await;
        let (topology, redis_keys) = (connect(&redis).await, redis_keys(3));
        let [first, second, third] = redis_keys.as_slice() else { unreachable!() };
        let declared = |redis_key| CHARGE.on([redis_key]).arg(1).arg(1).arg("").arg("5");
        let undeclared = CHARGE.undeclared(second).arg(1).arg(1).arg("").arg("5");
        let undeclared = undeclared.arg(2).arg(second.as_str()).arg(third.as_str());
        let calls = [declared(first), undeclared, declared(third)];
        let results = topology.send_all(&calls, Instant::now() + TIMEOUT).await;
        let replies: Vec<Value> = results.into_iter().map(|reply| reply.unwrap().value).collect();
        // The time, and the status of an unknown key for each record.
        let unknown =
            |numbers: &[i64]| Value::BulkString(numbers.iter().flat_map(|n| n.to_le_bytes()).collect());
        assert_eq!(replies, [&[5, 4, 0][..], &[5, 4, 0, 4, 0], &[5, 4, 0]].map(unknown));
    }

    #[tokio::test]
    async fn calls_without_reply_time_out_together_and_are_not_sent_again() {
        let redis = Redis::start().await;
        let (topology, redis_keys) = (connect(&redis).await, redis_keys(3));
        redis.freeze();
        let started = Instant::now();
        let results = topology.send_all(&incr(&redis_keys), started + Duration::from_millis(100)).await;
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        let timed_out = |result: &Result<Reply>| matches!(result, Err(CallError::TimedOut(_)));
        assert!(results.len() == 3 && results.iter().all(timed_out), "{results:?}");
        redis.thaw();
        let connected = async || topology.unavailable_reason().is_none().then_some(());
        eventually(TIMEOUT, "the connection is available again", connected).await;
        for redis_key in &redis_keys {
            assert_eq!(redis.cli(&["GET", redis_key.as_str()]).await, "1");
        }
    }

    /// The server is not part of a Cluster, so it replies to `ASKING` with an error, which must not matter.
    async fn error_of(managed: &ManagedConnection, command: &Cmd) -> RedisError {
        match send_to(managed, command, true, Instant::now() + TIMEOUT).await {
            Err(CallError::Failed(error)) => error,
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("no error"),
        }
    }

    #[tokio::test]
    async fn redirection_after_asking_has_its_target() {
        let redis = Redis::start().await;
        let managed = ManagedConnection::connect_to(&redis.url(), TIMEOUT).await;
        let mut command = redis::cmd("EVAL");
        command.arg("return redis.error_reply('MOVED 7 192.0.2.1:7000')").arg(0);
        let error = error_of(&managed, &command).await;
        assert_eq!(redirection(&error, &managed.label), Some(("192.0.2.1".to_owned(), 7000)));
    }

    #[tokio::test]
    async fn error_after_asking_is_reported_to_the_connection() {
        let redis = Redis::start().await;
        let managed = ManagedConnection::connect_to(&redis.url(), TIMEOUT).await;
        redis.cli(&["REPLICAOF", "127.0.0.1", "1"]).await;
        let error = error_of(&managed, redis::cmd("SET").arg("a").arg("b")).await;
        assert!(is(&error, ServerErrorKind::ReadOnly), "{error}");
        eventually(TIMEOUT, "the connection is replaced", async || (!managed.is_connected()).then_some(()))
            .await;
    }

    #[test]
    fn redirection_addresses_are_parsed() {
        let target = |address: &str| {
            let reply = format!("-MOVED 7 {address}\r\n");
            let Ok(Value::ServerError(error)) = redis::parse_redis_value(reply.as_bytes()) else { panic!() };
            redirection(&error.into(), "x:6379")
        };
        assert_eq!(target("10.0.0.1:7000"), Some(("10.0.0.1".to_owned(), 7000)));
        assert_eq!(target(":7000"), Some(("x".to_owned(), 7000)));
        assert_eq!(target("2001:db8::1:7000"), Some(("2001:db8::1".to_owned(), 7000)));
        assert_eq!(target("nonsense"), None);
    }
}
