//! Reads a label of the node that this process runs on.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::runtime::utils::Backoff;
use kube::{Api, Client, ResourceExt};
use tokio::time::sleep;

/// Returns the value of a node's label, if the node has it.
///
/// # Errors
/// The Kubernetes API is unreachable, rejects the request or does not have the node.
pub async fn node_label(client: Client, node: &str, label: &str) -> kube::Result<Option<String>> {
    let node = Api::<Node>::all(client).get_metadata(node).await?;
    Ok(node.labels().get(label).cloned())
}

/// Like [`node_label`], but retries until it succeeds. After that, the label is not read again: a node's colo does not
/// change.
pub(super) async fn wait_for_node_label(
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
