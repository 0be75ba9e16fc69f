//! Client address, connection facts and colo of each request: from the connection, or from trusted proxies.
//!
//! Headers are read only if the peer (the TCP peer, or the client in its PROXY header) is a trusted proxy
//! ([`TrustedProxies`]). Any other peer is the client itself, and its headers are ignored. The parsers are pure functions
//! over [`http::HeaderMap`]. [`Edge`] combines them with the flags ([`EdgeArgs`]) and with Kubernetes, where discovery keeps
//! the set of trusted proxies current.

#![warn(missing_docs)]

mod client_ip;
mod colo;
mod config;
mod edge;
mod explain;
mod facts;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod trusted;
mod values;

pub use client_ip::{ClientIpFrom, Decision, MAX_HOPS, parse_entry, resolve};
pub use colo::Iata;
pub use config::{EdgeArgs, EdgePolicy};
pub use edge::{ClientInfo, Edge, Peer};
pub use explain::{Explained, Explanation};
pub use facts::ConnectionFacts;
#[cfg(feature = "kubernetes")]
pub use kubernetes::client_from;
pub use trusted::{DiscoveryStatus, TrustedProxies};
pub use values::RttUnit;
