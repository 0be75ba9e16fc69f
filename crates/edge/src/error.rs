//! Errors when [`Edge`](crate::Edge) is created, mostly invalid flags. A message about a flag names the flag and the expected value.

/// Why [`Edge`](crate::Edge) could not be created.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// The value of a flag, or an entry of a list, is invalid.
    #[error("{flag}: {value:?} {problem}")]
    InvalidFlag {
        /// The flag.
        flag: &'static str,
        /// The given value.
        value: String,
        /// What is wrong, with the expected format.
        problem: &'static str,
    },
    /// The trusted networks cover every IPv4 or every IPv6 address.
    #[error(
        "--trusted-proxies covers {network}: any client could forge its address. List only the networks of your proxies, or add --insecure-trust-any-proxy if only proxies can reach this port"
    )]
    TrustsEveryAddress {
        /// The network that the entries cover together.
        network: ipnet::IpNet,
    },
    /// PROXY headers are required, but no proxy is trusted to send them.
    #[error(
        "--proxy-protocol requires --trusted-proxies or --discover-proxies: PROXY headers are accepted only from trusted proxies, and all other connections are closed"
    )]
    NoTrustedProxies,
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

impl EdgeError {
    pub(crate) fn invalid(flag: &'static str, value: &str, problem: &'static str) -> Self {
        Self::InvalidFlag { flag, value: value.to_owned(), problem }
    }
}
