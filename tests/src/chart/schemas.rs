//! Validates rendered objects against the schemas of several Kubernetes versions.

use serde_json::json;

use super::Chart;

/// The newest version that kubernetes-validate supports, and two older versions that clusters still run.
pub const VERSIONS: [&str; 3] = ["1.37", "1.35", "1.33"];

/// Kinds of other projects (custom resources), for which Kubernetes has no schema.
pub const CUSTOM_RESOURCES: [&str; 9] = [
    "HTTPRoute",
    "VirtualServer",
    "HTTPProxy",
    "VirtualService",
    "Middleware",
    "BackendConfig",
    "ServiceMonitor",
    "PrometheusRule",
    "Certificate",
];

const VALIDATE: &str = "
import functools, json, sys, kubernetes_validate
from kubernetes_validate import utils
# Without a cache, kubernetes_validate reads megabytes of definitions for every object.
for name in ('schema_contents', 'all_versions'):
    setattr(utils, name, functools.cache(getattr(utils, name)))
task = json.load(sys.stdin)
for document in task['objects']:
    for version in task['versions']:
        label = f\"{document['kind']}/{document['metadata']['name']} in {version}\"
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            if document['kind'] not in task['custom_resources']:
                print(f'{label}: unknown kind')
        except kubernetes_validate.ValidationError as error:
            print(f\"{label}: {'.'.join(map(str, error.path))}: {error.message}\")
";

/// Returns the validation errors of all objects, one per line. Equal objects are validated once.
#[must_use]
pub fn validation_errors(charts: &[Chart]) -> String {
    let mut objects: Vec<_> = charts.iter().flat_map(|chart| &chart.objects).collect();
    let mut seen = std::collections::HashSet::new();
    objects.retain(|object| seen.insert(object.to_string()));
    super::python(
        VALIDATE,
        &json!({"objects": objects, "versions": VERSIONS, "custom_resources": CUSTOM_RESOURCES}).to_string(),
    )
}
