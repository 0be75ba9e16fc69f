//! A fake Kubernetes API server with the objects that the services read: the EndpointSlice of one Service and the
//! labels of one node.
//!
//! It always responds correctly; tests inject faults in the network in front of it. API errors are tested in the crate
//! `edge`, with another fake server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::fault_proxy::FaultProxy;

/// The only Service, in the syntax of `--discover-proxies`.
pub const SERVICE: &str = "ingress/envoy";
/// The only node.
pub const NODE: &str = "node-1";
/// Name and value of the only label of the node.
pub const NODE_LABEL: (&str, &str) = ("example.org/site", "eu-central-1b");

const SLICES_PATH: &str = "/apis/discovery.k8s.io/v1/namespaces/ingress/endpointslices";
const SELECTOR: &str = "labelSelector=kubernetes.io%2Fservice-name%3Denvoy";
const NODE_PATH: &str = "/api/v1/nodes/node-1";

/// A fake API server on its own port; stopped when dropped.
#[derive(Debug)]
pub struct KubeApi {
    /// The network between the server and its clients.
    pub network: FaultProxy,
    slice: watch::Sender<Slice>,
    dir: TempDir,
    accepting: JoinHandle<()>,
}

/// The only slice of the Service.
#[derive(Debug)]
struct Slice {
    version: u64,
    ips: Vec<String>,
}

impl KubeApi {
    /// Starts a server whose Service has these endpoints.
    pub async fn start(ips: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("free port");
        let network = FaultProxy::start(listener.local_addr().expect("bound socket has an address"));
        let dir = tempfile::tempdir().expect("temporary directory");
        write_kubeconfig(&kubeconfig_path(dir.path()), network.addr());
        let slice = watch::Sender::new(Slice { version: 1, ips: to_strings(ips) });
        let accepting = tokio::spawn(accept_all(listener, slice.subscribe()));
        Self { network, slice, dir, accepting }
    }

    /// Value for the environment variable `KUBECONFIG`.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        kubeconfig_path(self.dir.path())
    }

    /// Replaces the endpoints of the Service and notifies the watchers.
    pub fn set_endpoints(&self, ips: &[&str]) {
        self.slice.send_modify(|slice| *slice = Slice { version: slice.version + 1, ips: to_strings(ips) });
    }
}

impl Drop for KubeApi {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Slice {
    fn object(&self) -> Value {
        let serving = json!({"ready": true, "serving": true, "terminating": false});
        let endpoint = |ip: &String| json!({"addresses": [ip], "conditions": serving});
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "envoy-a", "namespace": "ingress", "resourceVersion": self.version.to_string()},
            "endpoints": self.ips.iter().map(endpoint).collect::<Vec<_>>(),
        })
    }

    fn list(&self) -> Value {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList",
            "metadata": {"resourceVersion": self.version.to_string()}, "items": [self.object()],
        })
    }
}

fn to_strings(ips: &[&str]) -> Vec<String> {
    ips.iter().map(|ip| (*ip).to_owned()).collect()
}

fn kubeconfig_path(dir: &Path) -> PathBuf {
    dir.join("kubeconfig")
}

/// Writes JSON, which is valid YAML.
fn write_kubeconfig(file: &Path, addr: SocketAddr) {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": format!("http://{addr}")}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    });
    std::fs::write(file, config.to_string()).expect("temporary directory is writable");
}

async fn accept_all(listener: TcpListener, slice: watch::Receiver<Slice>) {
    // This task owns the connections, so that they close when the server is dropped.
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        connections.spawn(handle(socket, slice.clone()));
    }
}

/// Handles one request. Closing the connection ends the response, so no length or chunks are needed.
async fn handle(socket: TcpStream, slice: watch::Receiver<Slice>) -> Option<()> {
    let mut socket = BufReader::new(socket);
    let target = read_target(&mut socket).await?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let parameters: Vec<_> = query.split('&').collect();
    let (status, body) = match path {
        SLICES_PATH if !parameters.contains(&SELECTOR) => ("403 Forbidden", failure(403, "Forbidden")),
        SLICES_PATH if parameters.contains(&"watch=true") => {
            let version = parameters.iter().find_map(|part| part.strip_prefix("resourceVersion="))?;
            return stream_changes(socket, slice, version.parse().ok()?).await;
        }
        SLICES_PATH => ("200 OK", slice.borrow().list()),
        NODE_PATH => ("200 OK", node()),
        _ => ("404 Not Found", failure(404, "NotFound")),
    };
    write(&mut socket, &(head(status) + &body.to_string())).await
}

/// Reads the request head and returns path and query.
async fn read_target(socket: &mut BufReader<TcpStream>) -> Option<String> {
    let mut request = String::new();
    socket.read_line(&mut request).await.ok()?;
    let mut line = String::new();
    while socket.read_line(&mut line).await.ok()? > 0 && line != "\r\n" {
        line.clear();
    }
    request.split(' ').nth(1).map(str::to_owned)
}

/// Writes a watch event for each change after version `seen`, until the client disconnects.
async fn stream_changes(
    mut socket: BufReader<TcpStream>,
    mut slice: watch::Receiver<Slice>,
    mut seen: u64,
) -> Option<()> {
    write(&mut socket, &head("200 OK")).await?;
    loop {
        let event = {
            let current = slice.wait_for(|slice| slice.version > seen).await.ok()?;
            seen = current.version;
            json!({"type": "MODIFIED", "object": current.object()})
        };
        write(&mut socket, &format!("{event}\n")).await?;
    }
}

async fn write(socket: &mut BufReader<TcpStream>, text: &str) -> Option<()> {
    socket.write_all(text.as_bytes()).await.ok()
}

fn head(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
}

fn node() -> Value {
    let (label, value) = NODE_LABEL;
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": NODE, "labels": {label: value}},
    })
}

fn failure(code: u16, reason: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code,
    })
}
