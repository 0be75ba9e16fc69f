//! Reads from Kubernetes: the trusted proxies of a Service, and a label of the node.

mod discovery;
mod endpoints;

use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context;
use discovery::discover_proxies;
use futures_util::FutureExt;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::utils::Backoff;
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::colo::{ColoMap, Iata, colo_of_label};
use crate::policy::EdgePolicy;
use crate::trusted::{DiscoveryStatus, Shared};

/// Read timeout of a connection. Longer than a watch, so that it ends only connections that hang.
const READ_TIMEOUT: Duration = Duration::from_secs(150);

/// Creates a Kubernetes client from the kubeconfig, if there is one, else from the pod's service account.
pub(crate) async fn client() -> anyhow::Result<Client> {
    client_from(
        kube::Config::infer().await.context(
            "no Kubernetes configuration found; --discover-proxies and --colo-node-label require one",
        )?,
    )
}

/// Creates a Kubernetes client from a configuration, with the timeouts that a watch needs.
pub fn client_from(mut config: kube::Config) -> anyhow::Result<Client> {
    // kube's retries would hide an outage for minutes.
    config.default_retry = false;
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    Client::try_from(config).context("can't create the Kubernetes client")
}

/// Starts the tasks that the policy requires.
pub(crate) fn spawn_readers(
    policy: &EdgePolicy,
    shared: &Shared,
    client: Client,
    removal_grace: Duration,
    retry: impl Fn() -> Box<dyn Backoff>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    if let Some(service) = policy.discover.clone() {
        shared.status.send_replace(DiscoveryStatus::Waiting);
        let (client, shared, retry) = (client.clone(), shared.clone(), retry());
        tasks.spawn(notice_panic(shared.clone(), async move {
            discover_proxies(client, service, shared.trusted, shared.status, removal_grace, retry).await;
        }));
    }
    if let Some((node, label)) = policy.node_label.clone() {
        let (shared, map, retry) = (shared.clone(), policy.colo_map.clone(), retry());
        tasks.spawn(notice_panic(shared.clone(), async move {
            let value = wait_for_node_label(client, &node, &label, retry).await;
            set_colo(&shared.node_colo, &map, &label, value.as_deref());
        }));
    }
    tasks
}

/// Runs a task. If it panics, the process is not ready until it is restarted.
async fn notice_panic(shared: Shared, task: impl Future<Output = ()>) {
    if AssertUnwindSafe(task).catch_unwind().await.is_err() {
        tracing::error!("reading from Kubernetes panicked; not ready until a restart");
        shared.status.send_replace(DiscoveryStatus::Waiting);
    }
}

/// Returns the value of a node's label, if the node has it.
pub async fn node_label(client: Client, node: &str, label: &str) -> kube::Result<Option<String>> {
    let node = Api::<Node>::all(client).get_metadata(node).await?;
    Ok(node.labels().get(label).cloned())
}

/// Like [`node_label`], but retries until it succeeds. After that, the label is not read again: a node's colo does not
/// change.
async fn wait_for_node_label(
    client: Client,
    node: &str,
    label: &str,
    mut retry: Box<dyn Backoff>,
) -> Option<String> {
    let mut warned = false;
    loop {
        match node_label(client.clone(), node, label).await {
            Ok(value) => return value,
            Err(error) if !warned => {
                tracing::warn!(node, label, cause = %error, "can't read the node's label; retrying");
                warned = true;
            }
            Err(_) => {}
        }
        sleep(retry.next().unwrap_or(Duration::from_secs(30))).await;
    }
}

fn set_colo(colo: &OnceLock<Iata>, map: &ColoMap, label: &str, value: Option<&str>) {
    match value.and_then(|value| colo_of_label(map, value)) {
        Some(found) => {
            tracing::info!(label, colo = %found, "colo read from the node's label");
            // Can't fail: only this task sets it, once.
            let _ = colo.set(found);
        }
        None => tracing::warn!(label, value, "no colo found for the node's label"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_of_background_task_makes_process_not_ready() {
        let shared = Shared::new(&[]);
        notice_panic(shared.clone(), async {}).await;
        assert!(shared.status.borrow().is_ready());
        notice_panic(shared.clone(), async { panic!("expected by this test") }).await;
        assert!(!shared.status.borrow().is_ready());
    }
}
