//! Asks quota-svc for its state every second: its limits, which some pages show, and whether it responds.

use std::time::Duration;

use quota_client::QuotaClient;
use quota_client::wire::Limits;
use service_kit::Condition;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

const INTERVAL: Duration = Duration::from_secs(1);

/// After this time without a response, quota-svc counts as hung. Also the timeout of each call.
pub const HUNG_AFTER: Duration = Duration::from_secs(3);

/// The current state of quota-svc.
#[derive(Clone, Debug)]
pub struct QuotaStatus(watch::Receiver<State>);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct State {
    /// `None` until quota-svc has responded once. If it stops responding, the last known limits are kept.
    limits: Option<Limits>,
    is_hung: bool,
}

impl QuotaStatus {
    /// Returns the state, and the task that keeps it current. Requests never wait for this task. `condition` is not met
    /// while quota-svc is hung. It stays met if quota-svc responds but its store is down: all pods share the store, so
    /// taking this pod out would not help.
    pub fn follow(client: QuotaClient, condition: Condition) -> (Self, impl Future<Output = ()> + use<>) {
        let (sender, receiver) = watch::channel(State::default());
        (Self(receiver), update(client, sender, condition))
    }

    pub fn limits(&self) -> Option<Limits> {
        self.0.borrow().limits
    }

    /// Whether quota-svc has not responded for some seconds.
    pub fn is_hung(&self) -> bool {
        self.0.borrow().is_hung
    }
}

async fn update(client: QuotaClient, state: watch::Sender<State>, condition: Condition) {
    let mut current = State::default();
    let mut last_response = Instant::now();
    loop {
        let result = client.status().await;
        // An error response counts, too. It is not logged here: failed lookups log the cause.
        if result.as_ref().map_or_else(|error| error.status().is_some(), |_| true) {
            last_response = Instant::now();
        }
        current.limits = result.map_or(current.limits, |status| Some(status.limits));
        current.is_hung = last_response.elapsed() >= HUNG_AFTER;
        match current.is_hung {
            true => condition.set_not_ready(format!("quota-svc has not responded for {HUNG_AFTER:?}")),
            false => condition.set_ready("quota-svc is not hung"),
        }
        state.send_replace(current);
        sleep(INTERVAL).await;
    }
}

/// Formats a number with a comma between groups of three digits.
pub fn grouped(number: impl Into<u32>) -> String {
    let digits = number.into().to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
impl QuotaStatus {
    /// Without a quota-svc.
    pub fn unknown() -> Self {
        Self(watch::channel(State::default()).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        for (number, text) in [(0_u32, "0"), (300, "300"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
