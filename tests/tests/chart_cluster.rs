//! Installs, uses, upgrades and removes the chart in the cluster of `KUBECONFIG`. Skipped if that is not set.
//!
//! `IP_LOOKUP_IMAGE_REGISTRY`, `IP_LOOKUP_IMAGE_TAG` and `IP_LOOKUP_PULL_POLICY` (for example `Never` for kind)
//! select the images.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Command;
use std::time::Duration;

use e2e::chart::{chart_dir, helm, text};
use serde_json::Value;
use testkit::http;
use testkit::ports::ReservedPort;
use testkit::spawner::ChildGuard;
use testkit::tools::{announce_skip, optional_tool};
use testkit::wait::eventually_ok;

const RELEASE: &str = "e2e";
const HELM_TIMEOUT: &str = "5m";
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A namespace that is deleted on drop, even if the test fails.
struct Namespace(String);

impl Namespace {
    fn create() -> Self {
        let name = format!("ip-lookup-{:08x}", run_id());
        kubectl(&["create", "namespace", &name]);
        Self(name)
    }

    fn kubectl(&self, args: &[&str]) -> String {
        kubectl(&[&["-n", &self.0], args].concat())
    }

    fn helm(&self, args: &[&str]) -> String {
        helm(&[args, &["--namespace", &self.0]].concat()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a `quota-svc` command in dashboard-api's pod and returns its JSON output.
    fn quota(&self, args: &[&str]) -> Value {
        let pod = format!("deploy/{RELEASE}-ip-lookup-dashboard-api");
        let exec = ["exec", "-i", &pod, "-c", "quota-svc", "--", "quota-svc", "--output", "json"];
        serde_json::from_str(&self.kubectl(&[exec.as_slice(), args].concat())).unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("kubectl").args(["delete", "namespace", &self.0, "--wait=false"]).status();
    }
}

/// Differs between test runs on the same cluster.
fn run_id() -> u32 {
    std::process::id() ^ std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()
}

fn kubectl(args: &[&str]) -> String {
    let output = Command::new("kubectl").args(args).output().unwrap();
    assert!(output.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// `--set` flags that select the images, from the environment variables in this file's header.
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
async fn release_installs_upgrades_and_uninstalls_in_cluster() {
    if std::env::var_os("KUBECONFIG").is_none() {
        return announce_skip("KUBECONFIG is not set, so there is no cluster to install the chart in");
    }
    if optional_tool("kubectl").is_none() {
        return;
    }
    let (namespace, chart, values) = (Namespace::create(), chart_dir(), image_values());
    let chart = chart.to_str().unwrap();
    let values: Vec<_> = values.iter().map(String::as_str).collect();
    let common = ["--wait", "--timeout", HELM_TIMEOUT, "--set", "quota.burstLimit=5,shutdown.drainSeconds=2"];
    namespace.helm(&[&["install", RELEASE, chart], common.as_slice(), &values].concat());

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
    let ports = format!("{}:80", port.number());
    let _forward = ChildGuard::spawn("kubectl", |command| {
        command.args(["-n", &namespace.0, "port-forward", &service, &ports]);
    });
    let lookup_status = async || {
        let request = http::client().get(format!("http://{}/api/v1/ip", port.addr())).bearer_auth(&key);
        request.send().await.map(|response| response.status().as_u16()).map_err(|error| error.to_string())
    };
    let expect_status = async |expected: u16, what: &str| {
        eventually_ok(WAIT_TIMEOUT, what, async || match lookup_status().await {
            Ok(status) if status == expected => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    };
    expect_status(200, "a lookup through the Service succeeds").await;
    expect_status(429, "the burst limit pauses the key").await;
    namespace.quota(&["key", "resume", &id]);
    expect_status(200, "the resumed key works").await;
    namespace.helm(&["test", RELEASE, "--timeout", HELM_TIMEOUT]);

    let read_password = ["get", "secret", "e2e-ip-lookup-store", "-o", "jsonpath={.data.password}"];
    let password = namespace.kubectl(&read_password);
    namespace.helm(
        &[&["upgrade", RELEASE, chart, "--set", "log.level=debug"], common.as_slice(), &values].concat(),
    );
    assert_eq!(namespace.kubectl(&read_password), password, "the upgrade keeps the password");
    namespace.helm(&["test", RELEASE, "--timeout", HELM_TIMEOUT]);
    namespace.helm(&["uninstall", RELEASE, "--wait", "--timeout", HELM_TIMEOUT]);
    assert_eq!(namespace.kubectl(&["get", "deployments", "-o", "name"]), "");
}
