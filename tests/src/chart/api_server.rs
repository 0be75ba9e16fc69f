//! A fake Kubernetes API server that provides objects to helm's template function `lookup`.

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::kube_api::KubeApi;

use super::{NAMESPACE, name};

/// Serves the Secrets and PersistentVolumeClaims of an installed release, and EndpointSlices of other namespaces.
///
/// # Panics
/// If there is an object of another kind.
pub async fn serve_objects(objects: &[Value]) -> Arc<KubeApi> {
    let api = KubeApi::start().await;
    let resource = |plural: &str, kind: &str| json!({"name": plural, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get", "list"]});
    let resources =
        [resource("secrets", "Secret"), resource("persistentvolumeclaims", "PersistentVolumeClaim")];
    let group = "discovery.k8s.io/v1";
    let version = json!({"groupVersion": group, "version": "v1"});
    let groups = json!([{"name": "discovery.k8s.io", "versions": [version], "preferredVersion": version}]);
    let slices = [resource("endpointslices", "EndpointSlice")];
    for (path, object) in [
        ("/version", json!({"major": "1", "minor": "35", "gitVersion": "v1.35.0"})),
        ("/api", json!({"kind": "APIVersions", "versions": ["v1"]})),
        ("/apis", json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})),
        ("/api/v1", json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": resources})),
        (
            "/apis/discovery.k8s.io/v1",
            json!({"kind": "APIResourceList", "groupVersion": group, "resources": slices}),
        ),
    ] {
        api.put(path, object);
    }
    let (slices, others): (Vec<_>, Vec<_>) =
        objects.iter().cloned().partition(|object| object["kind"] == "EndpointSlice");
    for object in others {
        let plural = match object["kind"].as_str() {
            Some("Secret") => "secrets",
            Some("PersistentVolumeClaim") => "persistentvolumeclaims",
            kind => panic!("unexpected {kind:?}"),
        };
        api.put(&format!("/api/v1/namespaces/{NAMESPACE}/{plural}/{}", name(&object)), object);
    }
    // Last: each `put` empties the list.
    api.list("1", &slices);
    api
}
