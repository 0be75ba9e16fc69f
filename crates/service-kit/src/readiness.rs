//! Readiness of the service: whether it should get traffic, and if not, why.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use http_server::Lifecycle;
use serde::Serialize;
use tokio::sync::watch;

/// The registered readiness conditions of a service.
#[derive(Clone, Debug)]
pub struct Readiness {
    lifecycle: Lifecycle,
    checks: Arc<Mutex<BTreeMap<&'static str, Check>>>,
}

/// The response body of `/readyz`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether the service should get traffic.
    pub ready: bool,
    /// The state of each condition, by name.
    pub checks: BTreeMap<&'static str, Check>,
}

/// One condition in a [`Report`].
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Whether the condition is met.
    pub ready: bool,
    /// Text for the operator. Must not contain secrets or client addresses.
    pub detail: String,
}

impl Readiness {
    /// Starts without conditions. A service without conditions is ready until it shuts down.
    pub fn new(lifecycle: Lifecycle) -> Self {
        Self { lifecycle, checks: Arc::default() }
    }

    /// Registers a condition that the service needs to be ready. It starts as not met.
    pub fn condition(&self, name: &'static str) -> Condition {
        let condition = Condition { name, readiness: self.clone() };
        condition.set_not_ready("starting");
        condition
    }

    /// The current state of all conditions.
    pub fn report(&self) -> Report {
        let mut checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if self.lifecycle.is_shutting_down() {
            checks.insert("lifecycle", Check { ready: false, detail: "shutting down".to_owned() });
        }
        Report { ready: checks.values().all(|check| check.ready), checks }
    }
}

/// A handle that sets the state of one condition.
#[derive(Clone, Debug)]
pub struct Condition {
    name: &'static str,
    readiness: Readiness,
}

impl Condition {
    /// Marks the condition as met.
    pub fn set_ready(&self, detail: impl Into<String>) {
        self.set(Ok(detail.into()));
    }

    /// Marks the condition as not met; `detail` is the reason.
    pub fn set_not_ready(&self, detail: impl Into<String>) {
        self.set(Err(detail.into()));
    }

    /// Sets the condition to each value of a channel: `Ok` if it is met, or the reason. Returns when the sender is dropped.
    pub async fn follow<T>(
        self,
        mut values: watch::Receiver<T>,
        state: impl Fn(&T) -> Result<String, String>,
    ) {
        loop {
            let current = state(&values.borrow_and_update());
            self.set(current);
            if values.changed().await.is_err() {
                return;
            }
        }
    }

    /// Marks the condition as met, or as not met for this reason.
    pub fn set(&self, state: Result<String, String>) {
        let ready = state.is_ok();
        let detail = state.unwrap_or_else(|reason| reason);
        let mut checks = self.readiness.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let previous = checks.insert(self.name, Check { ready, detail });
        if previous.is_some_and(|previous| previous.ready != ready) {
            tracing::info!(check = self.name, ready, "readiness changed");
        }
    }
}

#[cfg(test)]
mod tests {
    use http_server::ServeArgs;

    use super::*;

    #[test]
    fn service_is_ready_if_all_conditions_are_met_and_it_runs() {
        let lifecycle = Lifecycle::new(&ServeArgs::default());
        let readiness = Readiness::new(lifecycle.clone());
        assert!(readiness.report().ready);
        let geo = readiness.condition("geo");
        let store = readiness.condition("store");
        assert!(!readiness.report().ready, "a condition starts as not met");
        geo.set_ready("2 databases");
        store.set_not_ready("unreachable");
        let report = readiness.report();
        assert!(!report.ready && report.checks["geo"].ready);
        assert_eq!(report.checks["store"].detail, "unreachable");
        store.set_ready("connected");
        assert!(readiness.report().ready);
        lifecycle.begin_shutdown();
        assert!(!readiness.report().ready, "not ready during shutdown");
    }
}
