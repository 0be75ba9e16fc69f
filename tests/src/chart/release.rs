//! Steps to run a release of the chart locally: render it with test values, start its store, create a first key.

use std::process::Command;

use serde_json::Value;

use super::Chart;
use super::pod::{Pod, Services};
use testkit::http;
use testkit::process::binary;

/// Helm arguments: long deadlines for busy machines, a zone with the colo FRA, and short shutdown times.
const VALUES: [&str; 4] = [
    "--set",
    "lookup.extraArgs={--quota-deadline=10s,--request-timeout=12s},quota.extraArgs={--store-timeout=10s}",
    "--set",
    "colo.map.zone-1=FRA,lookup.podLabels.topology\\.kubernetes\\.io/zone=zone-1,shutdown.drainSeconds=2,shutdown.graceSeconds=5",
];

/// Renders the chart with the values for tests, 127.0.0.1 as trusted proxy and extra helm arguments.
#[must_use]
pub fn render(arguments: &[&str]) -> Chart {
    let edge = ["--set", "edge.profile=custom,edge.trustedProxies={127.0.0.1}"];
    render_without_proxy(&[edge.as_slice(), arguments].concat())
}

/// Like [`render`], without a trusted proxy.
#[must_use]
pub fn render_without_proxy(arguments: &[&str]) -> Chart {
    Chart::render(&[VALUES.as_slice(), arguments].concat()).unwrap_or_else(|error| panic!("{error}"))
}

/// Starts the Valkey pod of the release. Returns it, and the [`Services`] that other pods need to reach it.
pub async fn start_store(chart: &Chart) -> (Pod, Services) {
    let valkey = Pod::start(chart, chart.object("StatefulSet", "-valkey"), &Services::new()).await;
    let services = [("ipl-ip-lookup-valkey:6379".to_owned(), valkey.addr(6379))].into();
    (valkey, services)
}

/// Creates an account and a key with the commands from NOTES.txt, through the sidecar of the dashboard pod. Returns the
/// key.
#[must_use]
pub fn create_key(dashboard: &Pod) -> String {
    let run = |arguments: &[&str]| {
        let url = format!("http://{}", dashboard.addr(8082));
        let mut command = Command::new(binary("quota-svc"));
        // `kubectl exec` inherits this variable from the container.
        command.env("IP_LOOKUP_QUOTA_TOKEN_FILE", dashboard.path("/run/secrets/quota/token"));
        let output = command.args(["--quota-url", &url]).args(arguments).args(["--output", "json"]).output();
        let output = output.expect("quota-svc starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON output")
    };
    run(&["account", "create", "you@example.com"]);
    let created =
        run(&["key", "create", "--account", "you@example.com", "--name", "first", "--scope", "full"]);
    super::text(&created["key"]).to_owned()
}

/// Sends a GET request and returns status and body. A body that is not JSON becomes a JSON string.
pub async fn get(url: String) -> (u16, Value) {
    let response = http::client().get(&url).send().await.expect("a response");
    let (status, body) = (response.status().as_u16(), response.text().await.expect("complete response body"));
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}
