//! Whether the service should get traffic, and why not.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde::Serialize;

use crate::lifecycle::Lifecycle;

/// The conditions under which a service is ready.
#[derive(Clone, Debug)]
pub struct Readiness {
    lifecycle: Lifecycle,
    checks: Arc<Mutex<BTreeMap<&'static str, State>>>,
}

#[derive(Clone, Debug)]
struct State {
    ready: bool,
    detail: String,
    informative: bool,
}

/// What `/readyz` answers.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether the service should get traffic.
    pub ready: bool,
    /// Every condition by its name.
    pub checks: BTreeMap<&'static str, Check>,
}

/// One condition as `/readyz` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Whether it is met.
    pub ready: bool,
    /// In words, for the person who reads it; never a secret or an address of a client.
    pub detail: String,
}

impl Readiness {
    /// Ready as long as nothing is registered and the service is not stopping.
    pub fn new(lifecycle: Lifecycle) -> Self {
        Self { lifecycle, checks: Arc::default() }
    }

    /// A condition without which the service is not ready; it begins as not met.
    pub fn condition(&self, name: &'static str) -> Condition {
        self.register(name, false)
    }

    /// A condition that is shown but takes no traffic away; it begins as not met.
    pub fn notice(&self, name: &'static str) -> Condition {
        self.register(name, true)
    }

    fn register(&self, name: &'static str, informative: bool) -> Condition {
        let condition = Condition { name, informative, readiness: self.clone() };
        condition.set(false, "starting".to_owned());
        condition
    }

    /// Everything at this moment.
    pub fn report(&self) -> Report {
        let mut checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if self.lifecycle.is_draining() {
            let stopping = State { ready: false, detail: "stopping".to_owned(), informative: false };
            checks.insert("lifecycle", stopping);
        }
        Report {
            ready: checks.values().all(|state| state.ready || state.informative),
            checks: checks.into_iter().map(|(name, state)| (name, state.into())).collect(),
        }
    }

    /// Whether the service should get traffic.
    pub fn is_ready(&self) -> bool {
        self.report().ready
    }
}

impl From<State> for Check {
    fn from(state: State) -> Self {
        Self { ready: state.ready, detail: state.detail }
    }
}

/// A handle to set one condition.
#[derive(Clone, Debug)]
pub struct Condition {
    name: &'static str,
    informative: bool,
    readiness: Readiness,
}

impl Condition {
    /// The condition is met.
    pub fn set_ready(&self, detail: impl Into<String>) {
        self.set(true, detail.into());
    }

    /// The condition is not met, and why.
    pub fn set_not_ready(&self, detail: impl Into<String>) {
        self.set(false, detail.into());
    }

    fn set(&self, ready: bool, detail: String) {
        let state = State { ready, detail, informative: self.informative };
        let mut checks = self.readiness.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let before = checks.insert(self.name, state);
        if before.is_some_and(|before| before.ready != ready) {
            tracing::info!(check = self.name, ready, "readiness changed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServeArgs;

    #[test]
    fn a_condition_decides_and_a_notice_only_tells() {
        let life = Lifecycle::new(&ServeArgs::default());
        let readiness = Readiness::new(life.clone());
        assert!(readiness.is_ready());
        let geo = readiness.condition("geo");
        let store = readiness.notice("store");
        assert!(!readiness.is_ready(), "a condition begins as not met");
        geo.set_ready("2 databases");
        store.set_not_ready("away");
        let report = readiness.report();
        assert!(report.ready && !report.checks["store"].ready);
        assert_eq!(report.checks["store"].detail, "away");
        life.begin_stop();
        assert!(!readiness.is_ready(), "not ready while it drains");
    }
}
