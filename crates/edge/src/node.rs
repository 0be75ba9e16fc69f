//! Reads a label of the node we run on.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::runtime::utils::Backoff;
use kube::{Api, Client, ResourceExt};
use tokio::time::sleep;

use crate::error::EdgeError;

/// The value of a node's label, or none where the node has no such label.
///
/// # Errors
/// The API does not answer, does not know the node or does not let us read it.
pub async fn node_label(client: Client, node: &str, label: &str) -> Result<Option<String>, EdgeError> {
    let found = Api::<Node>::all(client).get_metadata(node).await;
    let node = found.map_err(|error| EdgeError::Kube(Box::new(error)))?;
    Ok(node.labels().get(label).cloned())
}

/// Asks until the API answers: a label does not change under a running pod, so once is enough.
pub(crate) async fn node_label_at_last(
    client: Client,
    node: &str,
    label: &str,
    mut retry: Box<dyn Backoff>,
) -> Option<String> {
    let mut quiet = false;
    loop {
        match node_label(client.clone(), node, label).await {
            Ok(value) => return value,
            Err(error) if !quiet => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(node, label, cause, "the node's label can't be read; trying on");
                quiet = true;
            }
            Err(_) => {}
        }
        sleep(retry.next().unwrap_or(Duration::from_secs(30))).await;
    }
}
