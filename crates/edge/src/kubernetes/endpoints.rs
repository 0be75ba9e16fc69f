//! The addresses of the watched Service: a pure state machine over watch events.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt;
use kube::runtime::watcher::Event;

/// Addresses by EndpointSlice, and recently removed addresses. A dual-stack Service has slices for each address family.
#[derive(Debug)]
pub(super) struct EndpointSet {
    removal_grace: Duration,
    slices: BTreeMap<String, BTreeSet<IpAddr>>,
    /// The list being received. Replaces `slices` when it is complete.
    listing: BTreeMap<String, BTreeSet<IpAddr>>,
    /// Removed addresses and the time until which they stay trusted: their last requests may still be in flight.
    removed: BTreeMap<IpAddr, Instant>,
}

impl EndpointSet {
    pub(super) fn new(removal_grace: Duration) -> Self {
        Self { removal_grace, slices: BTreeMap::new(), listing: BTreeMap::new(), removed: BTreeMap::new() }
    }

    /// Applies an event. Returns whether the set is current; it is not while a list is incomplete.
    pub(super) fn apply(&mut self, event: Event<EndpointSlice>, now: Instant) -> bool {
        let before = self.present();
        match event {
            Event::Init => {
                self.listing.clear();
                return false;
            }
            Event::InitApply(slice) => {
                self.listing.insert(slice.name_any(), addresses(&slice));
                return false;
            }
            Event::InitDone => self.slices = std::mem::take(&mut self.listing),
            Event::Apply(slice) => {
                self.slices.insert(slice.name_any(), addresses(&slice));
            }
            Event::Delete(slice) => {
                self.slices.remove(&slice.name_any());
            }
        }
        self.track_removed(&before, now);
        true
    }

    /// Starts the removal grace of addresses that are gone, and cancels it for addresses that are back.
    fn track_removed(&mut self, before: &BTreeSet<IpAddr>, now: Instant) {
        let present = self.present();
        self.removed.retain(|ip, _| !present.contains(ip));
        let gone = before.difference(&present).map(|ip| (*ip, now + self.removal_grace));
        self.removed.extend(gone);
        self.expire(now);
    }

    /// Drops removed addresses after their removal grace. Returns whether any was dropped.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let count = self.removed.len();
        self.removed.retain(|_, until| *until > now);
        self.removed.len() < count
    }

    /// Time at which the next removed address expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.removed.values().min().copied()
    }

    /// Present and recently removed addresses.
    pub(super) fn trusted(&self) -> BTreeSet<IpAddr> {
        let mut all = self.present();
        all.extend(self.removed.keys());
        all
    }

    fn present(&self) -> BTreeSet<IpAddr> {
        self.slices.values().flatten().copied().collect()
    }
}

/// The addresses of the serving endpoints. Skips host names (addressType FQDN) and invalid addresses.
fn addresses(slice: &EndpointSlice) -> BTreeSet<IpAddr> {
    let serving = slice.endpoints.iter().flatten().filter(|endpoint| is_serving(endpoint));
    let parsed = serving.flat_map(|endpoint| &endpoint.addresses).filter_map(|ip| ip.parse().ok());
    parsed.map(|ip: IpAddr| ip.to_canonical()).collect()
}

/// Includes terminating pods: they are no longer ready but still finish their requests.
fn is_serving(endpoint: &Endpoint) -> bool {
    let Some(conditions) = &endpoint.conditions else {
        return true;
    };
    conditions.serving.unwrap_or(true) || conditions.terminating.unwrap_or(false)
}

#[cfg(test)]
mod tests;
