//! What can be wrong with the edge's configuration; each message says what to write instead.

/// Why the edge could not start.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// An entry of `--trusted-proxies` is no network.
    #[error("--trusted-proxies: {value:?} is neither a CIDR (10.0.0.0/8) nor an IP address")]
    TrustedProxy {
        /// The entry.
        value: String,
    },
    /// The trusted networks cover every address of a family.
    #[error(
        "--trusted-proxies covers {network}: every client could write its own address. List the proxies' own networks, or add --insecure-trust-any-proxy if nothing but a proxy can reach this port"
    )]
    TrustsEveryone {
        /// The network that the entries add up to.
        network: ipnet::IpNet,
    },
    /// `--client-ip-from` is none of the three sources.
    #[error("--client-ip-from: {value:?} is none of peer, xff, header:NAME")]
    ClientIpFrom {
        /// What was given.
        value: String,
    },
    /// A header name that can't be one, or that a proxy would not protect.
    #[error("{flag}: {value:?} is not a usable header name (letters, digits and dashes)")]
    HeaderName {
        /// The flag.
        flag: &'static str,
        /// What was given.
        value: String,
    },
    /// `--discover-proxies` does not name a Service.
    #[error("--discover-proxies: {value:?} is not NAMESPACE/SERVICE")]
    Service {
        /// What was given.
        value: String,
    },
    /// A place that is no IATA code.
    #[error("{flag}: {value:?} must be {want}")]
    Colo {
        /// The flag.
        flag: &'static str,
        /// What was given.
        value: String,
        /// What is expected.
        want: &'static str,
    },
    /// A node label without the node.
    #[error("--colo-node-label needs --node-name (in Kubernetes: fieldRef spec.nodeName)")]
    NodeName,
    /// No Kubernetes configuration was found where one is needed.
    #[error("no Kubernetes API is configured here, but --discover-proxies or --colo-node-label needs one")]
    KubeConfig(#[source] Box<kube::config::InferConfigError>),
    /// The Kubernetes client could not be built.
    #[error("the Kubernetes client can't be built")]
    KubeClient(#[source] Box<kube::Error>),
    /// A request to the Kubernetes API failed.
    #[error("the Kubernetes API did not answer")]
    Kube(#[source] Box<kube::Error>),
}
