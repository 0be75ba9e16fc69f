//! Who is calling and where we are: trusted proxies, the client's address, connection facts and our own place.
//!
//! Everything a client can write is believed only when the TCP peer is a trusted proxy
//! ([`TrustedProxies`]): a request from anybody else is judged by its socket alone. The parts are
//! pure functions over [`http::HeaderMap`]; [`Edge`] ties them to the flags ([`EdgeArgs`]) and to
//! Kubernetes, where the set of trusted proxies may follow the ingress controller's own pods.

mod address;
mod caller;
mod client_ip;
mod colo;
mod config;
mod discovery;
mod error;
mod facts;
mod node;
mod policy;
mod trusted;

pub use address::parse_entry;
pub use caller::{Caller, Edge};
pub use client_ip::{Client, Decision, MAX_HOPS, resolve};
pub use colo::Iata;
pub use config::{EdgeArgs, RttUnit};
pub use discovery::{DiscoveryStatus, Pace, client_from, discover_proxies, kube_client};
pub use error::EdgeError;
pub use facts::{FactHeaders, Facts};
pub use node::node_label;
pub use policy::{ClientIpFrom, EdgePolicy, ServiceRef};
pub use trusted::{TrustedProxies, TrustedSet};
