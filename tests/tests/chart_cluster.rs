//! The chart in a real cluster, where KUBECONFIG names one: installed, used, tested, upgraded, removed.
//!
//! Images: `IP_LOOKUP_IMAGE_REGISTRY`, `IP_LOOKUP_IMAGE_TAG` and `IP_LOOKUP_PULL_POLICY` (such as `Never` for kind).
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Command;
use std::time::Duration;

use e2e::chart::{folder, helm, text};
use e2e::http;
use e2e::ports::ReservedPort;
use e2e::spawner::ChildGuard;
use e2e::tools::{announce_skip, optional_tool};
use e2e::wait::eventually_ok;
use serde_json::Value;

const RELEASE: &str = "e2e";
const READY_WITHIN: &str = "5m";
const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace that is removed however the test ends.
struct Namespace(String);

impl Namespace {
    fn create() -> Self {
        let name = format!("ip-lookup-{:08x}", run_number());
        kubectl(&["create", "namespace", &name]);
        Self(name)
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        kubectl(&[&["-n", &self.0], arguments].concat())
    }

    fn helm(&self, arguments: &[&str]) -> String {
        helm(&[arguments, &["--namespace", &self.0]].concat()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn quota(&self, arguments: &[&str]) -> Value {
        let pod = format!("deploy/{RELEASE}-ip-lookup-dashboard-api");
        let exec = ["exec", "-i", &pod, "-c", "quota-svc", "--", "quota-svc", "--output", "json"];
        serde_json::from_str(&self.kubectl(&[exec.as_slice(), arguments].concat())).unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("kubectl").args(["delete", "namespace", &self.0, "--wait=false"]).status();
    }
}

/// Different for every run on this cluster.
fn run_number() -> u32 {
    std::process::id() ^ std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()
}

fn kubectl(arguments: &[&str]) -> String {
    let output = Command::new("kubectl").args(arguments).output().unwrap();
    assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn image_values() -> Vec<String> {
    let value = |variable: &str, setting: &str| Some(format!("{setting}={}", std::env::var(variable).ok()?));
    let tags = ["lookup", "quota", "dashboard"]
        .map(|part| value("IP_LOOKUP_IMAGE_TAG", &format!("{part}.image.tag")));
    let rest = [
        value("IP_LOOKUP_IMAGE_REGISTRY", "global.imageRegistry"),
        value("IP_LOOKUP_PULL_POLICY", "imagePullPolicy"),
    ];
    tags.into_iter().chain(rest).flatten().flat_map(|value| ["--set".to_owned(), value]).collect()
}

#[tokio::test]
async fn a_release_lives_its_whole_life_in_a_cluster() {
    if std::env::var_os("KUBECONFIG").is_none() {
        return announce_skip("KUBECONFIG is not set: there is no cluster to install the chart in");
    }
    if optional_tool("kubectl").is_none() {
        return;
    }
    let (namespace, chart, values) = (Namespace::create(), folder(), image_values());
    let chart = chart.to_str().unwrap();
    let values: Vec<_> = values.iter().map(String::as_str).collect();
    let wait = ["--wait", "--timeout", READY_WITHIN, "--set", "quota.burstLimit=5,shutdown.drainSeconds=2"];
    namespace.helm(&[&["install", RELEASE, chart], wait.as_slice(), &values].concat());

    namespace.quota(&["account", "create", "you@example.com"]);
    let created = namespace.quota(&[
        "key",
        "create",
        "--account",
        "you@example.com",
        "--name",
        "first",
        "--scope",
        "full",
    ]);
    let (key, id) = (text(&created["key"]).to_owned(), text(&created["id"]).to_owned());
    let port = ReservedPort::new();
    let service = format!("svc/{RELEASE}-ip-lookup-lookup-svc");
    let forward = format!("{}:80", port.number());
    let _forward = ChildGuard::spawn("kubectl", |command| {
        command.args(["-n", &namespace.0, "port-forward", &service, &forward]);
    });
    let ask = async || {
        let request = http::client().get(format!("http://{}/api/v1/ip", port.addr())).bearer_auth(&key);
        request.send().await.map(|answer| answer.status().as_u16()).map_err(|error| error.to_string())
    };
    let expect = async |wanted: u16, what: &str| {
        eventually_ok(PATIENCE, what, async || match ask().await {
            Ok(status) if status == wanted => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    };
    expect(200, "a lookup through the Service").await;
    expect(429, "the burst limit pauses the key").await;
    namespace.quota(&["key", "resume", &id]);
    expect(200, "the resumed key works").await;
    namespace.helm(&["test", RELEASE, "--timeout", READY_WITHIN]);

    let password = ["get", "secret", "e2e-ip-lookup-store", "-o", "jsonpath={.data.password}"];
    let before = namespace.kubectl(&password);
    namespace
        .helm(&[&["upgrade", RELEASE, chart, "--set", "log.level=debug"], wait.as_slice(), &values].concat());
    assert_eq!(namespace.kubectl(&password), before, "an upgrade keeps the secrets");
    namespace.helm(&["test", RELEASE, "--timeout", READY_WITHIN]);
    namespace.helm(&["uninstall", RELEASE, "--wait", "--timeout", READY_WITHIN]);
    assert_eq!(namespace.kubectl(&["get", "deployments", "-o", "name"]), "");
}
