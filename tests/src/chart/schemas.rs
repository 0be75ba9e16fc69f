//! Rendered objects against the schemas of several Kubernetes versions.

use serde_json::json;

use super::Chart;

/// The newest that kubernetes-validate knows and two that people still run.
pub const VERSIONS: [&str; 3] = ["1.37", "1.35", "1.33"];

/// Kinds of other projects, which Kubernetes has no schema of.
pub const FOREIGN: [&str; 8] = [
    "HTTPRoute",
    "VirtualServer",
    "HTTPProxy",
    "VirtualService",
    "Middleware",
    "BackendConfig",
    "ServiceMonitor",
    "PrometheusRule",
];

const VALIDATE: &str = "
import functools, json, sys, kubernetes_validate
from kubernetes_validate import utils
# It would read megabytes of definitions again for every object.
for name in ('schema_contents', 'all_versions'):
    setattr(utils, name, functools.cache(getattr(utils, name)))
task = json.load(sys.stdin)
for document in task['objects']:
    for version in task['versions']:
        where = f\"{document['kind']}/{document['metadata']['name']} in {version}\"
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            if document['kind'] not in task['foreign']:
                print(f'{where}: no such kind')
        except kubernetes_validate.ValidationError as error:
            print(f\"{where}: {'.'.join(map(str, error.path))}: {error.message}\")
";

/// What the schemas say against these objects; equal objects are looked at once.
#[must_use]
pub fn complaints(charts: &[Chart]) -> String {
    let mut objects: Vec<_> = charts.iter().flat_map(|chart| &chart.objects).collect();
    let mut seen = std::collections::HashSet::new();
    objects.retain(|object| seen.insert(object.to_string()));
    super::python(
        VALIDATE,
        &json!({"objects": objects, "versions": VERSIONS, "foreign": FOREIGN}).to_string(),
    )
}
