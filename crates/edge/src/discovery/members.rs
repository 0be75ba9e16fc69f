//! Which addresses belong to the followed Service at a moment: a pure state machine over watch events.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt;
use kube::runtime::watcher::Event;

/// Addresses by EndpointSlice (a dual-stack Service has one slice per family), and those that left a moment ago.
#[derive(Debug)]
pub(super) struct Members {
    grace: Duration,
    slices: BTreeMap<String, BTreeSet<IpAddr>>,
    /// A list under way: it counts only when it is complete.
    listing: BTreeMap<String, BTreeSet<IpAddr>>,
    /// Until when a removed address is kept: its last requests may still be on their way.
    leaving: BTreeMap<IpAddr, Instant>,
}

/// What an event did to the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// A list is under way; the set is what it was.
    None,
    /// The set is up to date.
    Current,
}

impl Members {
    pub(super) fn new(grace: Duration) -> Self {
        Self { grace, slices: BTreeMap::new(), listing: BTreeMap::new(), leaving: BTreeMap::new() }
    }

    pub(super) fn apply(&mut self, event: Event<EndpointSlice>, now: Instant) -> Effect {
        let before = self.present();
        match event {
            Event::Init => {
                self.listing.clear();
                return Effect::None;
            }
            Event::InitApply(slice) => {
                self.listing.insert(slice.name_any(), addresses(&slice));
                return Effect::None;
            }
            Event::InitDone => self.slices = std::mem::take(&mut self.listing),
            Event::Apply(slice) => {
                self.slices.insert(slice.name_any(), addresses(&slice));
            }
            Event::Delete(slice) => {
                self.slices.remove(&slice.name_any());
            }
        }
        self.settle(&before, now);
        Effect::Current
    }

    fn settle(&mut self, before: &BTreeSet<IpAddr>, now: Instant) {
        let present = self.present();
        self.leaving.retain(|ip, _| !present.contains(ip));
        let gone = before.difference(&present).map(|ip| (*ip, now + self.grace));
        self.leaving.extend(gone);
        self.expire(now);
    }

    /// Forgets what has left long enough ago; says whether anything was forgotten.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let held = self.leaving.len();
        self.leaving.retain(|_, until| *until > now);
        self.leaving.len() < held
    }

    /// When the next address is to be forgotten.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.leaving.values().min().copied()
    }

    /// Present and just left.
    pub(super) fn trusted(&self) -> BTreeSet<IpAddr> {
        let mut all = self.present();
        all.extend(self.leaving.keys());
        all
    }

    fn present(&self) -> BTreeSet<IpAddr> {
        self.slices.values().flatten().copied().collect()
    }
}

/// Names (addressType FQDN) and anything else that is no address are left out.
fn addresses(slice: &EndpointSlice) -> BTreeSet<IpAddr> {
    let proxying = slice.endpoints.iter().flatten().filter(|endpoint| is_proxying(endpoint));
    let parsed = proxying.flat_map(|endpoint| &endpoint.addresses).filter_map(|ip| ip.parse().ok());
    parsed.map(|ip: IpAddr| ip.to_canonical()).collect()
}

/// A terminating pod fails its readiness first and still finishes its requests.
fn is_proxying(endpoint: &Endpoint) -> bool {
    let Some(conditions) = &endpoint.conditions else {
        return true;
    };
    conditions.serving.unwrap_or(true) || conditions.terminating.unwrap_or(false)
}

#[cfg(test)]
#[path = "members_tests.rs"]
mod tests;
