//! Restarts a background task that has panicked.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;

/// Bounds the CPU time and the log lines of a task that panics again and again.
const RESTART_DELAY: Duration = Duration::from_millis(500);

/// Runs a task that never ends, and starts it again after each panic. Without its task, a connection would neither be
/// checked nor replaced.
pub async fn restart_after_panic<F: Future<Output = Infallible>>(name: &str, task: impl Fn() -> F) {
    loop {
        let Err(_) = AssertUnwindSafe(task()).catch_unwind().await;
        tracing::error!(task = name, "a background task has panicked; restarting it");
        tokio::time::sleep(RESTART_DELAY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn task_is_restarted_after_a_panic() {
        let (starts, restarted) = (AtomicU32::new(0), Notify::new());
        let task = restart_after_panic("test", || async {
            assert_eq!(starts.fetch_add(1, Ordering::SeqCst), 1, "panic of the test");
            restarted.notify_one();
            std::future::pending().await
        });
        tokio::select! {
            () = task => panic!("the task ended"),
            () = restarted.notified() => {}
        }
    }
}
