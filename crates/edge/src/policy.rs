//! The edge policy: the parsed and checked flags, and what can be wrong with them.

use std::fmt;

use anyhow::bail;
use http::HeaderName;
use ipnet::IpNet;

use crate::colo::{ColoMap, Iata, colo_of_zone};
use crate::config::{EdgeArgs, invalid};
use crate::facts::{FactHeaders, header_name};
use crate::trusted::canonical_network;

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Where the client's address is taken from if the TCP peer is a trusted proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientIpFrom {
    /// The TCP peer's own address; no header is read for it.
    Peer,
    /// X-Forwarded-For, read from the right.
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

/// Trusted proxies, their headers, and the colo of this process.
#[derive(Clone, Debug)]
pub struct EdgePolicy {
    pub(crate) networks: Vec<IpNet>,
    pub(crate) discover: Option<ServiceRef>,
    pub(crate) client_ip_from: ClientIpFrom,
    /// Headers from which connection facts (HTTP and TLS version, cipher, round-trip time, colo) are read.
    pub(crate) fact_headers: FactHeaders,
    #[cfg_attr(not(feature = "kubernetes"), expect(dead_code, reason = "only the node's label needs it"))]
    pub(crate) colo_map: ColoMap,
    /// Data center (IATA code) of this process: from the node's zone, else from `--colo`. The node label in
    /// `--colo-node-label` replaces it once it is read.
    pub(crate) colo: Option<Iata>,
    /// `--node-name` and `--colo-node-label`.
    pub(crate) node_label: Option<(String, String)>,
}

impl EdgePolicy {
    /// Checks the flags.
    pub fn from_args(args: &EdgeArgs) -> anyhow::Result<Self> {
        let networks = networks(args)?;
        let colo_map = colo_map(&args.colo_map)?;
        let configured = non_empty(&args.colo).map(|value| parse_iata("--colo", value)).transpose()?;
        let zone_colo = non_empty(&args.node_zone).and_then(|zone| colo_of_zone(&colo_map, zone));
        Ok(Self {
            networks,
            discover: non_empty(&args.discover_proxies).map(ServiceRef::parse).transpose()?,
            client_ip_from: ClientIpFrom::parse(&args.client_ip_from)?,
            fact_headers: FactHeaders::from_args(args)?,
            colo_map,
            colo: zone_colo.or(configured),
            node_label: node_label(args)?,
        })
    }

    /// Returns whether a header of a trusted proxy is read.
    pub(crate) fn reads(&self, name: &HeaderName) -> bool {
        let is_address = match &self.client_ip_from {
            ClientIpFrom::Peer => false,
            ClientIpFrom::Xff => *name == X_FORWARDED_FOR,
            ClientIpFrom::Header(header) => name == header,
        };
        is_address || self.fact_headers.contain(name)
    }

    /// Returns whether the Kubernetes API is required.
    pub fn needs_kube(&self) -> bool {
        self.discover.is_some() || self.node_label.is_some()
    }
}

impl ClientIpFrom {
    /// Parses `peer`, `xff` or `header:NAME`.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        match text {
            "peer" => Ok(Self::Peer),
            "xff" => Ok(Self::Xff),
            _ => match text.strip_prefix("header:") {
                Some(name) => header_name("--client-ip-from", name).map(Self::Header),
                None => Err(invalid("--client-ip-from", text, "must be peer, xff or header:NAME")),
            },
        }
    }
}

impl ServiceRef {
    /// Parses `NAMESPACE/SERVICE`. Accepts only characters of Kubernetes names because both parts become
    /// part of a request URL.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let is_name = |part: &str| {
            let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            (1..=63).contains(&part.len()) && part.bytes().all(allowed)
        };
        match text.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(invalid("--discover-proxies", text, "must be NAMESPACE/SERVICE")),
        }
    }
}

/// Treats an empty value as not given: charts and the downward API set empty environment variables.
fn non_empty(value: &Option<String>) -> Option<&str> {
    value.as_deref().map(str::trim).filter(|value| !value.is_empty())
}

fn non_empty_entries(list: &[String]) -> impl Iterator<Item = &str> {
    list.iter().map(|entry| entry.trim()).filter(|entry| !entry.is_empty())
}

fn networks(args: &EdgeArgs) -> anyhow::Result<Vec<IpNet>> {
    let networks = non_empty_entries(&args.trusted_proxies).map(network).collect::<Result<Vec<_>, _>>()?;
    // Aggregated, because 0.0.0.0/1 and 128.0.0.0/1 together also cover every address.
    let everything = IpNet::aggregate(&networks).into_iter().find(|net| net.prefix_len() == 0);
    match everything {
        Some(network) if !args.insecure_trust_any_proxy => bail!(
            "--trusted-proxies covers {network}: any client could forge its address. List only the networks of your \
             proxies, or add --insecure-trust-any-proxy if only proxies can reach this port"
        ),
        _ => Ok(networks),
    }
}

fn network(text: &str) -> anyhow::Result<IpNet> {
    let host = || text.parse().ok().map(|ip: std::net::IpAddr| IpNet::from(ip));
    let net = text.parse::<IpNet>().ok().or_else(host);
    let problem = "is neither a CIDR (10.0.0.0/8) nor an IP address";
    net.map(canonical_network).ok_or_else(|| invalid("--trusted-proxies", text, problem))
}

fn parse_iata(flag: &'static str, value: &str) -> anyhow::Result<Iata> {
    let problem = "must be three capital letters (an IATA code such as FRA)";
    Iata::parse(value.as_bytes()).ok_or_else(|| invalid(flag, value, problem))
}

fn colo_map(list: &[String]) -> anyhow::Result<ColoMap> {
    let entry = |text: &str| match text.split_once('=') {
        Some((zone, code)) if !zone.trim().is_empty() => {
            Ok((zone.trim().to_owned(), parse_iata("--colo-map", code.trim())?))
        }
        _ => Err(invalid("--colo-map", text, "must be ZONE=IATA")),
    };
    non_empty_entries(list).map(entry).collect()
}

fn node_label(args: &EdgeArgs) -> anyhow::Result<Option<(String, String)>> {
    match (non_empty(&args.node_name), non_empty(&args.colo_node_label)) {
        (_, None) => Ok(None),
        (None, Some(_)) => {
            bail!("--colo-node-label requires --node-name (in Kubernetes: fieldRef spec.nodeName)")
        }
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
            f.write_str("trusted proxies: none; every peer is the client and headers are ignored")?;
        } else {
            let (list, from) = (trusted.join(", "), &self.client_ip_from);
            write!(f, "trusted proxies: {list}; client IP from {from}; facts from {}", self.fact_headers)?;
        }
        if let Some((_, label)) = &self.node_label {
            write!(f, "; colo from node label {label}, until then")?;
        } else {
            f.write_str("; colo")?;
        }
        match self.colo {
            Some(colo) => write!(f, " {colo}"),
            None => f.write_str(" unknown"),
        }
    }
}

#[cfg(test)]
mod tests;
