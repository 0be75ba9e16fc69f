//! A fake Kubernetes API server that provides Secrets to helm's template function `lookup`.

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::kube_api::KubeApi;

use super::{NAMESPACE, name};

/// Serves the Secrets of an installed release.
pub async fn serve_secrets(secrets: &[Value]) -> Arc<KubeApi> {
    let api = KubeApi::start().await;
    let resource = json!({"name": "secrets", "singularName": "secret", "namespaced": true, "kind": "Secret", "verbs": ["get"]});
    for (path, object) in [
        ("/version", json!({"major": "1", "minor": "35", "gitVersion": "v1.35.0"})),
        ("/api", json!({"kind": "APIVersions", "versions": ["v1"]})),
        ("/apis", json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})),
        ("/api/v1", json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource]})),
    ] {
        api.put(path, object);
    }
    for secret in secrets {
        api.put(&format!("/api/v1/namespaces/{NAMESPACE}/secrets/{}", name(secret)), secret.clone());
    }
    api
}
