//! Client address, connection facts and colo of each request: from the connection, or from trusted proxies.
//!
//! Headers are read only if the peer (the TCP peer, or the client in its PROXY header) is a trusted proxy ([`TrustedProxies`]). Any other peer is the client itself,
//! and its headers are ignored. The parsers are pure functions over [`http::HeaderMap`]. [`Edge`] combines them with
//! the flags ([`EdgeArgs`]) and with Kubernetes, where discovery keeps the set of trusted proxies current.

#![warn(missing_docs)]

mod address;
mod client_info;
mod client_ip;
mod colo;
mod config;
mod explain;
mod fact_sources;
mod facts;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod policy;
mod trusted;

pub use address::{MAX_HOPS, parse_entry};
pub use client_info::{ClientInfo, Edge, Peer};
pub use client_ip::{ClientIp, Decision, resolve};
pub use colo::Iata;
pub use config::{EdgeArgs, RttUnit};
pub use explain::Explained;
pub use facts::{ConnectionFacts, FactHeaders};
#[cfg(feature = "kubernetes")]
pub use kubernetes::{client_from, node_label};
pub use policy::{ClientIpFrom, EdgePolicy, ServiceRef};
pub use trusted::{DiscoveryStatus, TrustedProxies, TrustedSet};
