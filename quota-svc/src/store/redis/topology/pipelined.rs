//! Calls made at the same time. Those on the same server are one pipeline: one write, one timer and one wake-up for all
//! of them.

use std::sync::Arc;

use futures_util::future::join_all;
use redis::{Pipeline, Value};
use tokio::time::{Instant, timeout_at};

use super::{Call, CallError, ManagedConnection, Result, Topology, call_error};

type CallResult = Result<Value>;

/// The calls on one server, each with its position among all calls.
struct ServerCalls<'a, 'k> {
    /// `None` if the slots of these calls have no master.
    server: Option<Arc<ManagedConnection>>,
    calls: Vec<(usize, &'a Call<'k>)>,
}

impl Topology {
    /// Makes several calls, each on the server of its Redis key. Each has its own result, in the order of `calls`, and is
    /// retried on its own, like a call of [`Self::send`]. All attempts of all calls share one deadline.
    pub async fn send_all(&self, calls: &[Call<'_>], deadline: Instant) -> Vec<CallResult> {
        if let [call] = calls {
            let timeout = deadline.saturating_duration_since(Instant::now());
            return vec![self.send(call, timeout).await.map(|reply| reply.value)];
        }
        let by_server = self.group_by_server(calls);
        let results = join_all(by_server.iter().map(|group| self.send_to_server(group, deadline))).await;
        let positions = by_server.iter().flat_map(|group| group.calls.iter().map(|(position, _)| *position));
        let mut results: Vec<_> = positions.zip(results.into_iter().flatten()).collect();
        results.sort_unstable_by_key(|(position, _)| *position);
        results.into_iter().map(|(_, result)| result).collect()
    }

    fn group_by_server<'a, 'k>(&self, calls: &'a [Call<'k>]) -> Vec<ServerCalls<'a, 'k>> {
        let mut groups: Vec<ServerCalls<'a, 'k>> = Vec::new();
        for (position, call) in calls.iter().enumerate() {
            let server = self.server_of(call.redis_key);
            let address = server.as_ref().map(Arc::as_ptr);
            match groups.iter_mut().find(|group| group.server.as_ref().map(Arc::as_ptr) == address) {
                Some(group) => group.calls.push((position, call)),
                None => groups.push(ServerCalls { server, calls: vec![(position, call)] }),
            }
        }
        groups
    }

    async fn send_to_server(&self, group: &ServerCalls<'_, '_>, deadline: Instant) -> Vec<CallResult> {
        let calls = group.calls.iter().map(|(_, call)| *call);
        let Some(server) = &group.server else {
            // Fails and requests a refresh of the slot map, unless it has just been refreshed.
            let timeout = deadline.saturating_duration_since(Instant::now());
            let sent = join_all(calls.map(|call| self.send(call, timeout))).await;
            return sent.into_iter().map(|reply| reply.map(|reply| reply.value)).collect();
        };
        let results = send_pipeline(server, calls.clone(), deadline).await;
        if results.iter().all(Result::is_ok) {
            return results;
        }
        let retried = calls.zip(results).map(async |(call, result)| match result {
            Err(error) => self.retry(call, server, error, deadline).await,
            ok => ok,
        });
        join_all(retried).await
    }

    /// Retries a call whose first attempt on `server` failed with a redirection or with NOSCRIPT: then nothing was
    /// executed. Otherwise returns the error.
    async fn retry(
        &self,
        call: &Call<'_>,
        server: &Arc<ManagedConnection>,
        error: CallError,
        deadline: Instant,
    ) -> CallResult {
        let redis_key = call.redis_key;
        let attempts = async {
            let reply = match self {
                Self::Single(_) => Err(error),
                Self::Cluster { cluster, .. } => {
                    let (slot, server) = (redis_key.slot(), server.clone());
                    cluster.follow_redirections(slot, &call.command, server, Err(error)).await
                }
            };
            self.retry_by_text(call, reply).await
        };
        let used = self.connection_for(redis_key);
        let reply = timeout_at(deadline, attempts).await;
        let reply = reply.unwrap_or_else(|_| Err(self.on_timeout(redis_key, used)));
        reply.map(|reply| reply.value)
    }
}

/// The first attempt of calls on the same server.
async fn send_pipeline<'a>(
    server: &ManagedConnection,
    calls: impl ExactSizeIterator<Item = &'a Call<'a>>,
    deadline: Instant,
) -> Vec<CallResult> {
    let count = calls.len();
    let for_each_call = |error: &dyn Fn() -> CallError| (0..count).map(|_| Err(error())).collect();
    let Some(mut live) = server.connection() else {
        return for_each_call(&|| CallError::Down(server.label().to_string()));
    };
    let mut pipeline = Pipeline::with_capacity(count);
    for call in calls {
        pipeline.add_command(call.command.clone());
    }
    // Unlike `Pipeline::query_async`, returns error replies as values, so that each call has its own.
    let sent = live.connection.send_packed_commands(&pipeline, 0, count);
    match timeout_at(deadline, sent).await {
        Ok(Ok(replies)) if replies.len() == count => {
            let to_result = |reply| match reply {
                Value::ServerError(error) => Err(call_error(server, live.generation, error.into())),
                value => Ok(value),
            };
            replies.into_iter().map(to_result).collect()
        }
        // Replies are matched by position, so all of them are needed.
        Ok(Ok(_)) => for_each_call(&|| CallError::Down(format!("{} (replies are missing)", server.label()))),
        // Usually the connection is lost. Some of the calls may have been executed, so none is sent again.
        Ok(Err(error)) => for_each_call(&|| call_error(server, live.generation, error.clone())),
        Err(_) => {
            server.report_suspect(live.generation);
            for_each_call(&|| CallError::TimedOut(server.label().to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use testkit::redis::Redis;
    use testkit::wait::eventually;

    use super::*;
    use crate::domain::id::KeyId;
    use crate::store::StoreArgs;
    use crate::store::redis::call::{self, CHARGE};
    use crate::store::redis::redis_keys::{RedisKey, RedisKeys};
    use crate::store::redis::target;

    const TIMEOUT: Duration = Duration::from_secs(10);

    async fn connect(redis: &Redis) -> Topology {
        let (target, options) = target::parse(&redis.url(), &StoreArgs::default(), TIMEOUT).unwrap();
        let topology = Topology::start(target, options, TIMEOUT);
        let connected = async || topology.unavailable_reason().is_none().then_some(());
        eventually(TIMEOUT, "the server is connected", connected).await;
        topology
    }

    fn redis_keys(count: u8) -> Vec<RedisKey> {
        (0..count).map(|n| RedisKeys::new("ipl:").record(KeyId([n; 16]))).collect()
    }

    fn incr(redis_keys: &[RedisKey]) -> Vec<Call<'_>> {
        redis_keys.iter().map(|redis_key| call::command("INCR", redis_key)).collect()
    }

    async fn reads_of(redis: &Redis) -> u64 {
        redis.info("total_reads_processed").await.unwrap().parse().unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn calls_on_one_server_arrive_in_one_read() {
        const BATCHES: u64 = 200;
        let redis = Redis::start().await;
        let (topology, redis_keys) = (connect(&redis).await, redis_keys(32));
        let before = reads_of(&redis).await;
        for _ in 0..BATCHES {
            for result in topology.send_all(&incr(&redis_keys), Instant::now() + TIMEOUT).await {
                result.unwrap();
            }
        }
        let reads = reads_of(&redis).await - before;
        // PINGs and INFO are reads, too.
        assert!(reads < BATCHES * 5 / 4, "{reads} reads of {BATCHES} batches");
    }

    #[tokio::test]
    async fn failed_call_has_its_own_error_and_the_others_their_replies() {
        let redis = Redis::start().await;
        let (topology, redis_keys) = (connect(&redis).await, redis_keys(3));
        redis.cli(&["SET", redis_keys[0].as_str(), "7"]).await;
        redis.cli(&["LPUSH", redis_keys[1].as_str(), "not a number"]).await;
        let results = topology.send_all(&incr(&redis_keys), Instant::now() + TIMEOUT).await;
        let [Ok(Value::Int(8)), Err(CallError::Failed(error)), Ok(Value::Int(1))] = &*results else {
            panic!("{results:?}");
        };
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
        let replies: Vec<Value> = results.into_iter().map(Result::unwrap).collect();
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
        let timed_out = |result: &CallResult| matches!(result, Err(CallError::TimedOut(_)));
        assert!(results.len() == 3 && results.iter().all(timed_out), "{results:?}");
        redis.thaw();
        let connected = async || topology.unavailable_reason().is_none().then_some(());
        eventually(TIMEOUT, "the connection is available again", connected).await;
        for redis_key in &redis_keys {
            assert_eq!(redis.cli(&["GET", redis_key.as_str()]).await, "1");
        }
    }
}
