//! Command-line flags of the edge, shared by the services that identify clients.

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};

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

    /// IATA code of this data center, if no header, node label or zone provides one
    #[arg(long, env, value_name = "IATA")]
    pub colo: Option<String>,

    /// IATA codes of zones or regions, e.g. eu-central-1=FRA,europe-west4-a=AMS
    #[arg(long, env, value_name = "ZONE=IATA", value_delimiter = ',')]
    pub colo_map: Vec<String>,

    /// Zone of the node this process runs on (topology.kubernetes.io/zone)
    #[arg(long, env, value_name = "ZONE")]
    pub node_zone: Option<String>,

    /// Kubernetes node label whose value is an IATA code or a zone in --colo-map. Requires --node-name
    #[arg(long, env, value_name = "LABEL")]
    pub colo_node_label: Option<String>,

    /// Name of the node this process runs on, for --colo-node-label
    #[arg(long, env, value_name = "NODE")]
    pub node_name: Option<String>,
}

/// Unit of the proxy's round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RttUnit {
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
}

base::default_from_flags!(EdgeArgs);

/// The error of a flag whose value, or an entry of whose list, is invalid.
pub(crate) fn invalid(flag: &str, value: &str, problem: &str) -> anyhow::Error {
    anyhow::anyhow!("{flag}: {value:?} {problem}")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        edge: EdgeArgs,
    }

    #[test]
    fn list_flags_accept_commas_and_repetition() {
        let flags = [
            "x",
            "--trusted-proxies",
            "10.0.0.0/8,192.0.2.1",
            "--trusted-proxies",
            "::1",
            "--colo-map",
            "a=FRA,b=AMS",
            "--edge-rtt-unit",
            "us",
        ];
        let edge = Cli::try_parse_from(flags).unwrap().edge;
        assert_eq!(edge.trusted_proxies, ["10.0.0.0/8", "192.0.2.1", "::1"]);
        assert_eq!(edge.colo_map, ["a=FRA", "b=AMS"]);
        assert_eq!(edge.edge_rtt_unit, RttUnit::Us);
    }

    #[test]
    fn environment_variables_are_named_after_flags() {
        let command = <Cli as clap::CommandFactory>::command();
        for arg in command.get_arguments().filter(|arg| arg.get_id() != "help") {
            let flag = arg.get_long().unwrap().replace('-', "_").to_uppercase();
            assert_eq!(arg.get_env().and_then(|env| env.to_str()), Some(flag.as_str()));
        }
    }
}
