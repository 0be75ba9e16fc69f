//! Errors when [`Edge`](crate::Edge) is created, mostly invalid flags. A message about a flag names the flag and the expected value.

/// Why [`Edge`](crate::Edge) could not be created.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// An entry of `--trusted-proxies` is not a network or an address.
    #[error("--trusted-proxies: {value:?} is neither a CIDR (10.0.0.0/8) nor an IP address")]
    TrustedProxy {
        /// The entry.
        value: String,
    },
    /// The trusted networks cover every IPv4 or every IPv6 address.
    #[error(
        "--trusted-proxies covers {network}: any client could forge its address. List only the networks of your proxies, or add --insecure-trust-any-proxy if only proxies can reach this port"
    )]
    TrustsEveryAddress {
        /// The network that the entries cover together.
        network: ipnet::IpNet,
    },
    /// `--client-ip-from` is not a known source.
    #[error("--client-ip-from: {value:?} must be peer, xff or header:NAME")]
    ClientIpFrom {
        /// The given value.
        value: String,
    },
    /// A header name is invalid, or has an underscore.
    #[error("{flag}: {value:?} is not a valid header name (letters, digits and hyphens)")]
    HeaderName {
        /// The flag.
        flag: &'static str,
        /// The given value.
        value: String,
    },
    /// The value of `--discover-proxies` does not have the form `NAMESPACE/SERVICE`.
    #[error("--discover-proxies: {value:?} must be NAMESPACE/SERVICE")]
    Service {
        /// The given value.
        value: String,
    },
    /// The value of `--colo` is not an IATA code, or an entry of `--colo-map` is not `ZONE=IATA`.
    #[error("{flag}: {value:?} must be {want}")]
    Colo {
        /// The flag.
        flag: &'static str,
        /// The given value.
        value: String,
        /// The expected format.
        want: &'static str,
    },
    /// A node label is given without the name of the node.
    #[error("--colo-node-label requires --node-name (in Kubernetes: fieldRef spec.nodeName)")]
    NodeName,
    /// Kubernetes is required, but this program is built without it.
    #[cfg(not(feature = "kubernetes"))]
    #[error(
        "--discover-proxies and --colo-node-label require Kubernetes support, but this program was built without it"
    )]
    NoKubernetes,
    /// A Kubernetes configuration is required but was not found.
    #[cfg(feature = "kubernetes")]
    #[error("no Kubernetes configuration found; --discover-proxies and --colo-node-label require one")]
    KubeConfig(#[source] Box<kube::config::InferConfigError>),
    /// The Kubernetes client can't be created.
    #[cfg(feature = "kubernetes")]
    #[error("can't create the Kubernetes client")]
    KubeClient(#[source] Box<kube::Error>),
}
