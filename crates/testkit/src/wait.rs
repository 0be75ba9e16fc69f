//! Waiting on conditions instead of sleeping.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How much later than its deadline a call may end on a busy machine. A call without a deadline takes longer.
pub const SLACK: Duration = Duration::from_secs(3);

/// The time between two attempts starts with the first value and doubles up to the second.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(80)];

/// Polls `probe` until it returns a value. `what` describes the awaited condition, such as "the server is ready".
///
/// # Panics
/// If there is no value after `timeout`. The message includes `what`.
pub async fn eventually<T>(
    timeout: Duration,
    what: impl Display,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> T {
    let with_reason = async || probe().await.ok_or("not yet");
    eventually_ok(timeout, what, with_reason).await
}

/// Like [`eventually`], for a probe that returns the reason for each failed attempt. The panic message includes the
/// last reason.
///
/// # Panics
/// If the probe has not succeeded after `timeout`.
pub async fn eventually_ok<T, E: Display>(
    timeout: Duration,
    what: impl Display,
    mut probe: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let deadline = Instant::now() + timeout;
    let [mut interval, longest] = POLL_INTERVALS;
    let (mut attempts, mut last_reason) = (0_u32, String::from("probe timed out"));
    while Instant::now() < deadline {
        attempts += 1;
        // A hanging probe (frozen server) must not hang the test.
        match timeout_at(deadline, probe()).await {
            Ok(Ok(value)) => return value,
            Ok(Err(reason)) => last_reason = reason.to_string(),
            Err(_) => break,
        }
        sleep(interval).await;
        interval = longest.min(2 * interval);
    }
    panic!("not within {timeout:?}: {what} ({attempts} attempts; last: {last_reason})")
}

/// Adds a timeout of 20 s to a future, so that a broken test fails instead of hanging.
///
/// # Panics
/// If the future takes longer. The message includes `what`.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(20);
    timeout(limit, future).await.unwrap_or_else(|_| panic!("timed out waiting for {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn value_is_returned_on_first_success() {
        let mut calls = 0;
        let value = eventually(Duration::from_secs(5), "three calls", async || {
            calls += 1;
            (calls == 3).then_some("value")
        });
        assert_eq!(value.await, "value");
        assert_eq!(calls, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "not within 30ms: an impossible condition")]
    async fn timeout_panic_names_the_condition() {
        eventually(Duration::from_millis(30), "an impossible condition", async || None::<()>).await;
    }

    #[tokio::test]
    #[should_panic(expected = "last: still closed")]
    async fn timeout_panic_names_the_last_reason() {
        eventually_ok(Duration::from_millis(30), "open", async || Err::<(), _>("still closed")).await;
    }

    #[tokio::test]
    #[should_panic(expected = "not within 30ms: a response")]
    async fn hanging_probe_times_out() {
        eventually(Duration::from_millis(30), "a response", async || {
            std::future::pending::<Option<()>>().await
        })
        .await;
    }
}
