//! The API server as the services in a cluster see it: the EndpointSlice of one Service and the labels of one node,
//! behind a network with faults.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{KubeApi, Watch, event, slice};
use crate::fault_proxy::FaultProxy;

/// The only Service, in the syntax of `--discover-proxies`.
pub const SERVICE: &str = "ingress/envoy";
/// The only node.
pub const NODE: &str = "node-1";
/// Name and value of the only label of the node.
pub const NODE_LABEL: (&str, &str) = ("example.org/site", "eu-central-1b");

/// An API server that always responds correctly; tests inject faults in the network in front of it.
pub struct DiscoveryApi {
    /// The network between the server and its clients.
    pub network: FaultProxy,
    api: Arc<KubeApi>,
    endpoints: watch::Sender<Endpoints>,
    dir: TempDir,
    _watches: JoinSet<()>,
}

#[derive(Debug)]
struct Endpoints {
    version: u64,
    ips: Vec<String>,
}

impl DiscoveryApi {
    /// Starts a server whose Service has these endpoints.
    pub async fn start(ips: &[&str]) -> Self {
        let api = KubeApi::start().await;
        api.node(NODE, &[NODE_LABEL]);
        let network = FaultProxy::start(api.addr());
        let dir = tempfile::tempdir().expect("temporary directory");
        let endpoints = watch::Sender::new(Endpoints { version: 0, ips: Vec::new() });
        let mut watches = JoinSet::new();
        watches.spawn(serve_watches(Arc::clone(&api), endpoints.subscribe()));
        let api = Self { network, api, endpoints, dir, _watches: watches };
        api.write_kubeconfig();
        api.set_endpoints(ips);
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

    /// Replaces the endpoints of the Service and notifies the watches.
    pub fn set_endpoints(&self, ips: &[&str]) {
        self.endpoints.send_modify(|endpoints| {
            let version = endpoints.version + 1;
            self.api.list(&version.to_string(), &[slice("envoy-a", &version.to_string(), ips)]);
            *endpoints = Endpoints { version, ips: ips.iter().map(|ip| (*ip).to_owned()).collect() };
        });
    }
}

async fn serve_watches(api: Arc<KubeApi>, endpoints: watch::Receiver<Endpoints>) {
    let mut watches = JoinSet::new();
    loop {
        watches.spawn(send_changes(api.opened_watch().await, endpoints.clone()));
    }
}

/// Sends an event for each change after the version at which the watch starts, until the client closes it.
async fn send_changes(watch: Watch, mut endpoints: watch::Receiver<Endpoints>) -> Option<()> {
    let version = watch.uri.split(['?', '&']).find_map(|part| part.strip_prefix("resourceVersion="))?;
    let mut seen: u64 = version.parse().ok()?;
    loop {
        let line = {
            let current = tokio::select! {
                current = endpoints.wait_for(|current| current.version > seen) => current.ok()?,
                () = watch.closed() => return None,
            };
            seen = current.version;
            let ips: Vec<_> = current.ips.iter().map(String::as_str).collect();
            event("MODIFIED", slice("envoy-a", &seen.to_string(), &ips))
        };
        watch.lines.send(Ok(line)).ok()?;
    }
}
