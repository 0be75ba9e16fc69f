//! Command-line flags of the edge, shared by the services that identify clients, and the policy that they define.

use std::{fmt, net::IpAddr};

use anyhow::{anyhow, bail};
use clap::Args;
use clap::builder::FalseyValueParser;
use http::HeaderName;
use ipnet::IpNet;

use crate::client_ip::{ClientIpFrom, X_FORWARDED_FOR};
use crate::colo::{ColoMap, Iata, colo_of_zone};
use crate::facts::FactHeaders;
use crate::trusted::canonical_network;
use crate::values::RttUnit;

/// Flags for the trusted proxies, their headers, and the colo of this process.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Edge")]
pub struct EdgeArgs {
    /// Trusted proxies (CIDRs or IP addresses, comma-separated): only their headers are used. Default: none
    #[arg(long, env, value_name = "CIDR", value_delimiter = ',')]
    pub trusted_proxies: Vec<String>,

    /// Allow --trusted-proxies to cover every address: any client can then forge its address
    #[arg(long, env, value_parser = FalseyValueParser::new())]
    pub insecure_trust_any_proxy: bool,

    /// Also trust the pods of this Kubernetes Service, usually the ingress controller's; watches its EndpointSlices
    #[arg(long, env, value_name = "NAMESPACE/SERVICE")]
    pub discover_proxies: Option<String>,

    /// Source of the client's address behind a trusted proxy: peer, xff (X-Forwarded-For) or header:NAME
    #[arg(long, env, value_name = "SOURCE", default_value = "xff")]
    pub client_ip_from: String,

    /// Header in which a trusted proxy sends the client's HTTP version
    #[arg(long, env, value_name = "NAME", default_value = "X-Edge-HTTP-Protocol")]
    pub edge_http_protocol_header: String,

    /// Header in which a trusted proxy sends the TLS version
    #[arg(long, env, value_name = "NAME", default_value = "X-Edge-TLS-Version")]
    pub edge_tls_version_header: String,

    /// Header in which a trusted proxy sends the TLS cipher suite
    #[arg(long, env, value_name = "NAME", default_value = "X-Edge-TLS-Cipher")]
    pub edge_tls_cipher_header: String,

    /// Headers in which a trusted proxy sends the round-trip time; the first one with a measurement is used
    #[arg(long, env, value_name = "NAME", value_delimiter = ',', default_value = "X-Edge-RTT")]
    pub edge_rtt_header: Vec<String>,

    /// Unit of the round-trip time: us (microseconds) for nginx; ms for Envoy, Cloudflare and, unless configured otherwise, HAProxy
    #[arg(long, env, value_enum, default_value = "ms")]
    pub edge_rtt_unit: RttUnit,

    /// Header in which a trusted proxy sends its data center: an IATA code, or a value of Cloudflare's Cf-Ray
    #[arg(long, env, value_name = "NAME", default_value = "X-Edge-Colo")]
    pub edge_colo_header: String,

    /// IATA code of this data center, if no header or zone provides one
    #[arg(long, env, value_name = "IATA")]
    pub colo: Option<String>,

    /// IATA codes of zones or regions, e.g. eu-central-1=FRA,europe-west4-a=AMS
    #[arg(long, env, value_name = "ZONE=IATA", value_delimiter = ',')]
    pub colo_map: Vec<String>,

    /// Zone of the node this process runs on (topology.kubernetes.io/zone)
    #[arg(long, env, value_name = "ZONE")]
    pub node_zone: Option<String>,
}

base::default_from_flags!(EdgeArgs);

/// Trusted proxies, their headers, and the colo of this process: the parsed and checked flags.
#[derive(Clone, Debug)]
pub struct EdgePolicy {
    pub(crate) networks: Vec<IpNet>,
    /// Namespace and name of the Service whose endpoints are trusted.
    pub(crate) discover: Option<(String, String)>,
    pub(crate) client_ip_from: ClientIpFrom,
    pub(crate) fact_headers: FactHeaders,
    /// Data center (IATA code) of this process: from the node's zone, else from `--colo`.
    pub(crate) colo: Option<Iata>,
}

impl EdgePolicy {
    /// Checks the flags.
    pub fn from_args(args: &EdgeArgs) -> anyhow::Result<Self> {
        let colo_map = entries(&args.colo_map).map(colo_map_entry).collect::<Result<ColoMap, _>>()?;
        let colo = non_empty(&args.colo).map(|value| parse_iata("--colo", value)).transpose()?;
        let zone_colo = non_empty(&args.node_zone).and_then(|zone| colo_of_zone(&colo_map, zone));
        let rtt = args.edge_rtt_header.iter().map(|name| header_name("--edge-rtt-header", name));
        let fact_headers = FactHeaders {
            names: [
                header_name("--edge-http-protocol-header", &args.edge_http_protocol_header)?,
                header_name("--edge-tls-version-header", &args.edge_tls_version_header)?,
                header_name("--edge-tls-cipher-header", &args.edge_tls_cipher_header)?,
                header_name("--edge-colo-header", &args.edge_colo_header)?,
            ],
            rtt: rtt.collect::<Result<_, _>>()?,
            rtt_unit: args.edge_rtt_unit,
        };
        Ok(Self {
            networks: networks(args)?,
            discover: non_empty(&args.discover_proxies).map(service).transpose()?,
            client_ip_from: client_ip_from(&args.client_ip_from)?,
            fact_headers,
            colo: zone_colo.or(colo),
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
}

/// The error of a flag whose value, or an entry of whose list, is invalid.
fn invalid(flag: &str, value: &str, problem: &str) -> anyhow::Error {
    anyhow!("{flag}: {value:?} {problem}")
}

/// Treats an empty value as not given: charts and the downward API set empty environment variables.
fn non_empty(value: &Option<String>) -> Option<&str> {
    value.as_deref().map(str::trim).filter(|value| !value.is_empty())
}

fn entries(list: &[String]) -> impl Iterator<Item = &str> {
    list.iter().map(|entry| entry.trim()).filter(|entry| !entry.is_empty())
}

fn networks(args: &EdgeArgs) -> anyhow::Result<Vec<IpNet>> {
    let networks = entries(&args.trusted_proxies).map(network).collect::<Result<Vec<_>, _>>()?;
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
    let net = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let problem = "is neither a CIDR (10.0.0.0/8) nor an IP address";
    net.map(canonical_network).map_err(|_| invalid("--trusted-proxies", text, problem))
}

/// Parses `NAMESPACE/SERVICE`. Accepts only characters of Kubernetes names because both parts become part of a request
/// URL.
fn service(text: &str) -> anyhow::Result<(String, String)> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_name = |part: &str| (1..=63).contains(&part.len()) && part.bytes().all(allowed);
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err(invalid("--discover-proxies", text, "must be NAMESPACE/SERVICE")),
    }
}

fn client_ip_from(text: &str) -> anyhow::Result<ClientIpFrom> {
    match (text, text.strip_prefix("header:")) {
        ("peer", _) => Ok(ClientIpFrom::Peer),
        ("xff", _) => Ok(ClientIpFrom::Xff),
        (_, Some(name)) => header_name("--client-ip-from", name).map(ClientIpFrom::Header),
        _ => Err(invalid("--client-ip-from", text, "must be peer, xff or header:NAME")),
    }
}

/// Rejects names with underscores, because a client could forge them: a proxy that overwrites `X-Edge-RTT` may forward
/// a client's `X_Edge_RTT` unchanged.
fn header_name(flag: &str, value: &str) -> anyhow::Result<HeaderName> {
    let plain = value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let name = HeaderName::from_bytes(value.as_bytes()).ok().filter(|_| plain);
    name.ok_or_else(|| invalid(flag, value, "is not a valid header name (letters, digits and hyphens)"))
}

fn parse_iata(flag: &str, value: &str) -> anyhow::Result<Iata> {
    let problem = "must be three capital letters (an IATA code such as FRA)";
    Iata::parse(value.as_bytes()).ok_or_else(|| invalid(flag, value, problem))
}

fn colo_map_entry(text: &str) -> anyhow::Result<(String, Iata)> {
    match text.split_once('=') {
        Some((zone, code)) if !zone.trim().is_empty() => {
            Ok((zone.trim().to_owned(), parse_iata("--colo-map", code.trim())?))
        }
        _ => Err(invalid("--colo-map", text, "must be ZONE=IATA")),
    }
}

impl fmt::Display for EdgePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut trusted: Vec<String> = self.networks.iter().map(IpNet::to_string).collect();
        trusted
            .extend(self.discover.iter().map(|(namespace, name)| format!("endpoints of {namespace}/{name}")));
        if trusted.is_empty() {
            f.write_str("trusted proxies: none; every peer is the client and headers are ignored")?;
        } else {
            let from = match &self.client_ip_from {
                ClientIpFrom::Peer => "peer".to_owned(),
                ClientIpFrom::Xff => "xff".to_owned(),
                ClientIpFrom::Header(name) => format!("header:{name}"),
            };
            let FactHeaders { names: [protocol, version, cipher, colo], rtt, rtt_unit } = &self.fact_headers;
            let unit = match rtt_unit {
                RttUnit::Us => "us",
                RttUnit::Ms => "ms",
            };
            let rtt: String = rtt.iter().map(|name| format!("{name} ({unit}), ")).collect();
            let list = trusted.join(", ");
            write!(f, "trusted proxies: {list}; client IP from {from}; ")?;
            write!(f, "facts from {protocol}, {version}, {cipher}, {rtt}{colo}")?;
        }
        write!(f, "; colo {}", self.colo.as_ref().map_or("unknown", Iata::as_str))
    }
}

#[cfg(test)]
mod tests;
