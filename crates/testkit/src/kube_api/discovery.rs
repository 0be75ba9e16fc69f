//! The API server as the services in a cluster see it: the EndpointSlice of one Service, behind a network with faults.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use tempfile::TempDir;

use super::{KubeApi, slice};
use crate::fault_proxy::FaultProxy;

/// The only Service, in the syntax of `--discover-proxies`.
pub const SERVICE: &str = "ingress/envoy";

/// An API server that always responds correctly; tests inject faults in the network in front of it.
pub struct DiscoveryApi {
    /// The network between the server and its clients.
    pub network: FaultProxy,
    dir: TempDir,
    _api: Arc<KubeApi>,
}

impl DiscoveryApi {
    /// Starts a server whose Service has these endpoints.
    pub async fn start(ips: &[&str]) -> Self {
        let api = KubeApi::start().await;
        api.list("1", &[slice("envoy-a", "1", ips)]);
        let network = FaultProxy::start(api.addr());
        let dir = tempfile::tempdir().expect("temporary directory");
        let api = Self { network, dir, _api: api };
        api.write_kubeconfig();
        api
    }

    /// Value for the environment variable `KUBECONFIG`.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// Writes JSON, which is valid YAML.
    fn write_kubeconfig(&self) {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{}", self.network.addr())}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        std::fs::write(self.kubeconfig(), config.to_string()).expect("temporary directory is writable");
    }
}
