//! Waiting on conditions instead of sleeping.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

const POLL_EVERY: Duration = Duration::from_millis(5);

/// Polls `probe` until it gives a value.
///
/// # Panics
/// When there is none after `timeout`, naming `what` was awaited.
pub async fn eventually<T>(
    timeout: Duration,
    what: impl Display,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> T {
    let explained = async || probe().await.ok_or("not yet");
    eventually_ok(timeout, what, explained).await
}

/// Like [`eventually`], for a probe that can say why it is not there yet: the last reason is in the panic.
///
/// # Panics
/// When the probe has not succeeded after `timeout`.
pub async fn eventually_ok<T, E: Display>(
    timeout: Duration,
    what: impl Display,
    mut probe: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let deadline = Instant::now() + timeout;
    let (mut attempts, mut last_reason) = (0_u32, String::from("the probe never returned"));
    while Instant::now() < deadline {
        attempts += 1;
        // A probe that hangs (a frozen server) must not hang the test.
        match timeout_at(deadline, probe()).await {
            Ok(Ok(value)) => return value,
            Ok(Err(reason)) => last_reason = reason.to_string(),
            Err(_) => break,
        }
        sleep(POLL_EVERY).await;
    }
    panic!("not within {timeout:?}: {what} ({attempts} attempts; last: {last_reason})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_value_is_given_as_soon_as_it_is_there() {
        let mut calls = 0;
        let value = eventually(Duration::from_secs(5), "three calls", async || {
            calls += 1;
            (calls == 3).then_some("there")
        });
        assert_eq!(value.await, "there");
        assert_eq!(calls, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "not within 30ms: a miracle")]
    async fn a_condition_that_never_holds_is_named() {
        eventually(Duration::from_millis(30), "a miracle", async || None::<()>).await;
    }

    #[tokio::test]
    #[should_panic(expected = "last: still closed")]
    async fn the_last_reason_is_named() {
        eventually_ok(Duration::from_millis(30), "open", async || Err::<(), _>("still closed")).await;
    }

    #[tokio::test]
    #[should_panic(expected = "not within 30ms: an answer")]
    async fn a_probe_that_hangs_ends_in_time() {
        eventually(Duration::from_millis(30), "an answer", async || {
            std::future::pending::<Option<()>>().await
        })
        .await;
    }
}
