//! State that background tasks update and requests read.

use std::sync::{Arc, OnceLock};

use ipnet::IpNet;
use tokio::sync::watch;

use crate::colo::Iata;
use crate::trusted::{TrustedProxies, TrustedSet};

/// What is read from Kubernetes, if it is read. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) trusted: Arc<TrustedProxies>,
    pub(crate) node_colo: Arc<OnceLock<Iata>>,
    pub(crate) status: watch::Sender<DiscoveryStatus>,
}

impl Shared {
    /// Trusts these networks.
    pub(crate) fn new(networks: &[IpNet]) -> Self {
        Self {
            trusted: Arc::new(TrustedProxies::new(TrustedSet::new(networks.iter().copied()))),
            node_colo: Arc::default(),
            status: watch::Sender::new(DiscoveryStatus::Off),
        }
    }
}

/// Status of discovery. Readiness depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryStatus {
    /// Discovery is not configured.
    Off,
    /// No list has been received yet. Not ready, because proxies would be treated as clients.
    Waiting,
    /// The set of proxies is current.
    Following {
        /// Number of trusted addresses, including recently removed ones.
        proxies: usize,
    },
    /// The Kubernetes API is unavailable. The last known set stays trusted.
    Stale {
        /// Number of trusted addresses.
        proxies: usize,
    },
}

impl DiscoveryStatus {
    /// Returns whether the process may get traffic: false only before the first list. A later outage of the Kubernetes
    /// API does not affect readiness.
    #[must_use]
    pub const fn is_ready(self) -> bool {
        !matches!(self, Self::Waiting)
    }

    /// Returns the detail for the readiness report, or the reason why the process is not ready.
    ///
    /// # Errors
    /// Before the first list: a proxy's address would be taken for the address of every client behind it.
    pub fn readiness(&self) -> Result<String, String> {
        match self.is_ready() {
            true => Ok(format!("proxy discovery: {}", self.label())),
            false => Err("the proxies have not been listed yet".to_owned()),
        }
    }

    /// Returns the metric label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Waiting => "waiting",
            Self::Following { .. } => "following",
            Self::Stale { .. } => "stale",
        }
    }
}
