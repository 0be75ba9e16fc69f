//! The flags, checked and turned into what a request is judged by.

use std::fmt;

use http::HeaderName;
use ipnet::IpNet;

use crate::colo::{ColoMap, Iata, in_zone};
use crate::config::EdgeArgs;
use crate::error::EdgeError;
use crate::facts::FactHeaders;
use crate::trusted::canonical_network;

/// The one source of the client's address behind a trusted proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientIpFrom {
    /// The TCP peer itself.
    Peer,
    /// X-Forwarded-For, walked from the right.
    Xff,
    /// The single value of this header.
    Header(HeaderName),
}

/// A Kubernetes Service whose endpoints are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRef {
    /// The Service's namespace.
    pub namespace: String,
    /// The Service's name.
    pub name: String,
}

/// Whom this process believes, and where it is.
#[derive(Clone, Debug)]
pub struct EdgePolicy {
    pub(crate) networks: Vec<IpNet>,
    pub(crate) discover: Option<ServiceRef>,
    pub(crate) client_ip_from: ClientIpFrom,
    pub(crate) facts: FactHeaders,
    pub(crate) colo_map: ColoMap,
    /// From the zone or from `--colo`; the node's label, once read, comes before it.
    pub(crate) colo: Option<Iata>,
    /// Node and label.
    pub(crate) node_label: Option<(String, String)>,
}

impl EdgePolicy {
    /// Checks the flags.
    ///
    /// # Errors
    /// The first flag that makes no sense, and what it should look like.
    pub fn from_args(args: &EdgeArgs) -> Result<Self, EdgeError> {
        let networks = networks(args)?;
        let colo_map = colo_map(&args.colo_map)?;
        let fixed = given(&args.colo).map(|value| iata("--colo", value)).transpose()?;
        let zone = given(&args.node_zone).and_then(|zone| in_zone(&colo_map, zone));
        Ok(Self {
            networks,
            discover: given(&args.discover_proxies).map(ServiceRef::parse).transpose()?,
            client_ip_from: ClientIpFrom::parse(&args.client_ip_from)?,
            facts: FactHeaders::from_args(args)?,
            colo_map,
            colo: zone.or(fixed),
            node_label: node_label(args)?,
        })
    }

    /// Whether the Kubernetes API is needed.
    #[must_use]
    pub fn needs_kube(&self) -> bool {
        self.discover.is_some() || self.node_label.is_some()
    }
}

impl ClientIpFrom {
    /// Reads `peer`, `xff` or `header:NAME`.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(text: &str) -> Result<Self, EdgeError> {
        match text {
            "peer" => Ok(Self::Peer),
            "xff" => Ok(Self::Xff),
            _ => match text.strip_prefix("header:") {
                Some(name) => header_name("--client-ip-from", name).map(Self::Header),
                None => Err(EdgeError::ClientIpFrom { value: text.to_owned() }),
            },
        }
    }
}

impl ServiceRef {
    /// Reads `NAMESPACE/SERVICE`; only characters of Kubernetes names, for both become part of a query.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(text: &str) -> Result<Self, EdgeError> {
        let is_name = |part: &str| {
            let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            (1..=63).contains(&part.len()) && part.bytes().all(good)
        };
        match text.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(EdgeError::Service { value: text.to_owned() }),
        }
    }
}

/// An empty variable counts as not given: charts and the downward API render such ones.
fn given(value: &Option<String>) -> Option<&str> {
    value.as_deref().map(str::trim).filter(|value| !value.is_empty())
}

fn entries(list: &[String]) -> impl Iterator<Item = &str> {
    list.iter().map(|entry| entry.trim()).filter(|entry| !entry.is_empty())
}

fn networks(args: &EdgeArgs) -> Result<Vec<IpNet>, EdgeError> {
    let networks = entries(&args.trusted_proxies).map(network).collect::<Result<Vec<_>, _>>()?;
    // Two halves are the whole as well.
    let whole = IpNet::aggregate(&networks).into_iter().find(|net| net.prefix_len() == 0);
    match whole {
        Some(network) if !args.insecure_trust_any_proxy => Err(EdgeError::TrustsEveryone { network }),
        _ => Ok(networks),
    }
}

fn network(text: &str) -> Result<IpNet, EdgeError> {
    let host = || text.parse().ok().map(|ip: std::net::IpAddr| IpNet::from(ip));
    let net = text.parse::<IpNet>().ok().or_else(host);
    net.map(canonical_network).ok_or_else(|| EdgeError::TrustedProxy { value: text.to_owned() })
}

/// Underscores are refused: proxies that protect `X-Edge-RTT` may let a client's `X_Edge_RTT` pass.
pub(crate) fn header_name(flag: &'static str, value: &str) -> Result<HeaderName, EdgeError> {
    let plain = value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let name = HeaderName::from_bytes(value.as_bytes()).ok().filter(|_| plain);
    name.ok_or_else(|| EdgeError::HeaderName { flag, value: value.to_owned() })
}

fn iata(flag: &'static str, value: &str) -> Result<Iata, EdgeError> {
    let want = "three capital letters (an IATA code such as FRA)";
    Iata::parse(value.as_bytes()).ok_or_else(|| EdgeError::Colo { flag, value: value.to_owned(), want })
}

fn colo_map(list: &[String]) -> Result<ColoMap, EdgeError> {
    let entry = |text: &str| match text.split_once('=') {
        Some((zone, code)) if !zone.trim().is_empty() => {
            Ok((zone.trim().to_owned(), iata("--colo-map", code.trim())?))
        }
        _ => Err(EdgeError::Colo { flag: "--colo-map", value: text.to_owned(), want: "ZONE=IATA" }),
    };
    entries(list).map(entry).collect()
}

fn node_label(args: &EdgeArgs) -> Result<Option<(String, String)>, EdgeError> {
    match (given(&args.node_name), given(&args.colo_node_label)) {
        (_, None) => Ok(None),
        (None, Some(_)) => Err(EdgeError::NodeName),
        (Some(node), Some(label)) => Ok(Some((node.to_owned(), label.to_owned()))),
    }
}

impl fmt::Display for ServiceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for ClientIpFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer => f.write_str("peer"),
            Self::Xff => f.write_str("xff"),
            Self::Header(name) => write!(f, "header:{name}"),
        }
    }
}

impl fmt::Display for EdgePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut trusted: Vec<String> = self.networks.iter().map(IpNet::to_string).collect();
        trusted.extend(self.discover.as_ref().map(|service| format!("endpoints of {service}")));
        if trusted.is_empty() {
            f.write_str("trusted proxies: none, so every peer is the client and no header is believed")?;
        } else {
            let (list, from) = (trusted.join(", "), &self.client_ip_from);
            write!(f, "trusted proxies: {list}; client IP from {from}; facts from {}", self.facts)?;
        }
        match &self.node_label {
            Some((_, label)) => write!(f, "; colo from node label {label}")?,
            None => f.write_str("; colo")?,
        }
        match self.colo {
            Some(colo) => write!(f, " {colo}"),
            None => f.write_str(" unknown"),
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
