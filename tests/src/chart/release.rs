//! A release of the chart on this machine: values for a busy one, the store, and what an operator does first.

use std::process::Command;

use serde_json::Value;

use super::Chart;
use super::pod::{Pod, Services};
use crate::http;
use crate::process::binary;

/// No deadline that a busy machine breaks, this machine as the trusted proxy, and stops that don't take long.
const VALUES: [&str; 6] = [
    "--set",
    "lookup.extraArgs={--quota-deadline=10s,--request-timeout=12s},quota.extraArgs={--store-timeout=10s}",
    "--set",
    "edge.profile=custom,edge.trustedProxies={127.0.0.1},colo.map.zone-1=FRA",
    "--set",
    "lookup.podLabels.topology\\.kubernetes\\.io/zone=zone-1,shutdown.drainSeconds=2,shutdown.graceSeconds=5",
];

/// Renders the chart with these and further arguments of helm.
///
/// # Panics
/// When helm refuses.
#[must_use]
pub fn render(more: &[&str]) -> Chart {
    Chart::render(&[VALUES.as_slice(), more].concat()).unwrap_or_else(|error| panic!("{error}"))
}

/// The release's Valkey, and where its Service is.
///
/// # Panics
/// When it does not become ready.
pub async fn start_store(chart: &Chart) -> (Pod, Services) {
    let valkey = Pod::start(chart, chart.object("StatefulSet", "-valkey"), &Services::new()).await;
    let services = [("ipl-ip-lookup-valkey:6379".to_owned(), valkey.addr(6379))].into();
    (valkey, services)
}

/// Makes an account and a key with the commands that NOTES.txt names, through the sidecar of the dashboard's pod.
///
/// # Panics
/// When they fail.
#[must_use]
pub fn create_key(dashboard: &Pod) -> String {
    let run = |arguments: &[&str]| {
        let url = format!("http://{}", dashboard.addr(8082));
        let mut command = Command::new(binary("quota-svc"));
        let output = command.args(["--quota-url", &url]).args(arguments).args(["--output", "json"]).output();
        let output = output.expect("quota-svc starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    run(&["account", "create", "you@example.com"]);
    let created =
        run(&["key", "create", "--account", "you@example.com", "--name", "first", "--scope", "full"]);
    super::text(&created["key"]).to_owned()
}

/// The status and the body of an answer; a body that is no JSON is a string.
///
/// # Panics
/// When there is no answer.
pub async fn get(url: String) -> (u16, Value) {
    let answer = http::client().get(&url).send().await.expect("an answer");
    let (status, body) = (answer.status().as_u16(), answer.text().await.expect("a whole answer"));
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}
