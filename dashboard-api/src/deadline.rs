//! All calls to quota-svc during one request share a deadline. If quota-svc does not respond, the request waits at most
//! this long in total.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Total time for all calls that one request makes. Longer than quota-svc's `--write-timeout`, so that quota-svc can report a slow store
/// first.
pub const QUOTA_TIMEOUT: Duration = Duration::from_secs(3);

tokio::task_local! {
    /// The deadline of the request that this task handles; `None` before its first call to quota-svc.
    static DEADLINE: Cell<Option<Instant>>;
}

/// Runs a request's handler, whose calls share a deadline.
pub async fn scope<T>(handler: impl Future<Output = T>) -> T {
    DEADLINE.scope(Cell::new(None), handler).await
}

/// The deadline of the current request, which begins when this function is first called. `None` outside a request.
pub fn current() -> Option<Instant> {
    let get_or_set = |deadline: &Cell<Option<Instant>>| {
        let at = deadline.get().unwrap_or_else(|| Instant::now() + QUOTA_TIMEOUT);
        deadline.set(Some(at));
        at
    };
    DEADLINE.try_with(get_or_set).ok()
}

/// Does work that is not a call to quota-svc, such as hashing, and extends the deadline by the time it took.
pub async fn excluding<T>(work: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let result = work.await;
    // Fails outside a request, where there is no deadline.
    let _ = DEADLINE.try_with(|deadline| deadline.set(deadline.get().map(|at| at + started.elapsed())));
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::password::{Passwords, Share};

    #[tokio::test]
    async fn deadline_is_the_same_for_all_calls_and_later_after_a_hash() {
        assert_eq!(current(), None, "outside a request");
        let passwords = Passwords::new().unwrap();
        let place = passwords.enter(Share::Known).unwrap();
        scope(async {
            let first = current().unwrap();
            assert_eq!(current(), Some(first));
            let started = Instant::now();
            place.hash(&"correct horse".to_owned().into()).await.unwrap();
            let moved = current().unwrap() - first;
            assert!(moved > Duration::ZERO && moved <= started.elapsed(), "{moved:?}");
        })
        .await;
    }
}
