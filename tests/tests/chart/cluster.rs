//! Installs, uses, upgrades, rolls back and removes the chart in the cluster of `KUBECONFIG`. Skipped if that is not set.
//!
//! `tests/README.md` lists what the cluster needs. `IP_LOOKUP_IMAGE_REGISTRY`, `IP_LOOKUP_IMAGE_TAG` and
//! `IP_LOOKUP_PULL_POLICY` (for example `Never` for kind) select the images.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use e2e::chart::{Chart, chart_dir, copy_chart, helm, list, name, text};
use serde_json::{Value, json};
use testkit::http;
use testkit::ports::ReservedPort;
use testkit::spawner::ChildGuard;
use testkit::tools::{announce_skip, optional_tool};
use testkit::wait::eventually_ok;

const RELEASE: &str = "e2e";
const HELM_TIMEOUT: &str = "5m";
/// Long enough for pods with a working store to become ready.
const REJECTED_UPGRADE_TIMEOUT: &str = "90s";
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const SMALL: &str = "quota.burstLimit=5,shutdown.drainSeconds=2,geo.provider=none";

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

    fn helm(&self, args: &[&str]) -> Result<String, String> {
        helm(&[args, &["--namespace", &self.0]].concat())
    }

    /// Runs `helm install` or `helm upgrade` and waits until all pods are ready.
    fn deploy(&self, command: &str, chart: &Path, timeout: &str, values: &[&str]) -> Result<String, String> {
        let images = image_values();
        let mut args = vec![command, RELEASE, chart.to_str().unwrap(), "--wait", "--timeout", timeout];
        for value in [SMALL].iter().chain(values).copied().chain(images.iter().map(String::as_str)) {
            args.extend(["--set", value]);
        }
        self.helm(&args)
    }

    /// Runs the self-test, which reaches lookup-svc through its Service.
    fn helm_test(&self) {
        self.helm(&["test", RELEASE, "--timeout", HELM_TIMEOUT]).unwrap();
    }

    fn get(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.kubectl(&[&["get", "-o", "json"], args].concat())).unwrap()
    }

    /// Runs a `quota-svc` command in dashboard-api's pod and returns its JSON output.
    fn quota(&self, args: &[&str]) -> Value {
        let pod = format!("deploy/{RELEASE}-ip-lookup-dashboard-api");
        let exec = ["exec", "-i", &pod, "-c", "quota-svc", "--", "quota-svc", "--output", "json"];
        serde_json::from_str(&self.kubectl(&[exec.as_slice(), args].concat())).unwrap()
    }

    /// Forwards a local port to a pod of lookup-svc. Ends with that pod, so each step needs a new one.
    fn forward(&self) -> Forward {
        let port = ReservedPort::new();
        let service = format!("svc/{RELEASE}-ip-lookup-lookup-svc");
        let ports = format!("{}:80", port.number());
        let process = ChildGuard::spawn("kubectl", |command| {
            command.args(["-n", &self.0, "port-forward", &service, &ports]);
        });
        Forward { port, _process: process }
    }

    /// What identifies the running Valkey: its pod, and how often its containers were restarted.
    fn valkey(&self) -> (String, u64) {
        let pod = self.get(&["pod", &format!("{RELEASE}-ip-lookup-valkey-0")]);
        let restarts =
            list(&pod["status"]["containerStatuses"]).map(|status| status["restartCount"].as_u64());
        (text(&pod["metadata"]["uid"]).to_owned(), restarts.flatten().sum())
    }

    /// Names of the lookup pods that are ready. A pod that is being deleted may be among them for some seconds.
    fn ready_pods(&self) -> BTreeSet<String> {
        let selector = format!("app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=lookup-svc");
        let pods = self.get(&["pods", "-l", &selector]);
        let is_ready = |pod: &&Value| {
            list(&pod["status"]["conditions"])
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        list(&pods["items"]).filter(is_ready).map(|pod| name(pod).to_owned()).collect()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("kubectl").args(["delete", "namespace", &self.0, "--wait=false"]).status();
    }
}

/// A local port that is forwarded to a pod.
struct Forward {
    port: ReservedPort,
    _process: ChildGuard,
}

impl Forward {
    /// Waits until a lookup gets this status: with a key, or the demo without one.
    async fn expect_status(&self, key: Option<&str>, expected: u16, what: &str) {
        eventually_ok(WAIT_TIMEOUT, what, async || match self.status(key).await {
            Ok(status) if status == expected => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    }

    async fn status(&self, key: Option<&str>) -> Result<u16, String> {
        let url = format!("http://{}/api/v1/ip", self.port.addr());
        let request = match key {
            Some(key) => http::client().get(url).bearer_auth(key),
            None => http::client().get(url + "/demo"),
        };
        request.send().await.map(|response| response.status().as_u16()).map_err(|error| error.to_string())
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

/// Values that select the images, from the environment variables in this file's header.
fn image_values() -> Vec<String> {
    let value = |variable: &str, setting: &str| Some(format!("{setting}={}", std::env::var(variable).ok()?));
    let tags = ["lookup", "quota", "dashboard"]
        .map(|part| value("IP_LOOKUP_IMAGE_TAG", &format!("{part}.image.tag")));
    let rest = [
        value("IP_LOOKUP_IMAGE_REGISTRY", "global.imageRegistry"),
        value("IP_LOOKUP_PULL_POLICY", "imagePullPolicy"),
    ];
    tags.into_iter().chain(rest).flatten().collect()
}

fn has_cluster() -> bool {
    if std::env::var_os("KUBECONFIG").is_none() {
        announce_skip("KUBECONFIG is not set, so there is no cluster to install the chart in");
        return false;
    }
    optional_tool("kubectl").is_some()
}

#[tokio::test]
async fn release_installs_upgrades_and_reinstalls_in_cluster() {
    if !has_cluster() {
        return;
    }
    let (namespace, chart) = (Namespace::create(), chart_dir());
    namespace.deploy("install", &chart, HELM_TIMEOUT, &[]).unwrap();
    let key = use_new_key(&namespace).await;
    namespace.helm_test();

    let read_password = ["get", "secret", "e2e-ip-lookup-store", "-o", "jsonpath={.data.password}"];
    let (password, valkey) = (namespace.kubectl(&read_password), namespace.valkey());
    let dir = tempfile::tempdir().unwrap();
    let newer = copy_chart(dir.path());
    let metadata = fs::read_to_string(newer.join("Chart.yaml")).unwrap();
    fs::write(newer.join("Chart.yaml"), metadata.replace("\nversion: ", "\nversion: 9.9.9 # ")).unwrap();
    namespace.deploy("upgrade", &newer, HELM_TIMEOUT, &[]).unwrap();
    assert_eq!(namespace.valkey(), valkey, "a new chart version does not restart Valkey");
    namespace.helm_test();

    // A change that needs new pods, and back. Neither affects Valkey.
    namespace.deploy("upgrade", &newer, HELM_TIMEOUT, &["log.level=debug"]).unwrap();
    let debugging = namespace.ready_pods();
    namespace.helm(&["rollback", RELEASE, "1", "--wait", "--timeout", HELM_TIMEOUT]).unwrap();
    eventually_ok(WAIT_TIMEOUT, "the rollback replaces the pods", async || {
        let ready = namespace.ready_pods();
        if ready.is_disjoint(&debugging) { Ok(()) } else { Err(format!("{ready:?}")) }
    })
    .await;
    assert_eq!(namespace.valkey(), valkey, "the rollback does not restart Valkey");
    assert_eq!(namespace.kubectl(&read_password), password, "upgrades and rollbacks keep the password");
    namespace.helm_test();
    namespace.forward().expect_status(Some(&key), 200, "the key works after the rollback").await;

    namespace.helm(&["uninstall", RELEASE, "--wait", "--timeout", HELM_TIMEOUT]).unwrap();
    assert_eq!(
        namespace.kubectl(&["get", "deployments,statefulsets,secrets", "-l", &instance(), "-o", "name"]),
        ""
    );
    namespace.kubectl(&["wait", "--for=delete", "pod", "-l", &instance(), "--timeout=120s"]);
    let claims = namespace.kubectl(&["get", "pvc", "-o", "name"]);
    assert_eq!(claims.trim(), "persistentvolumeclaim/data-e2e-ip-lookup-valkey-0", "the data is left");
    namespace.deploy("install", &chart, HELM_TIMEOUT, &[]).unwrap();
    namespace.forward().expect_status(Some(&key), 200, "the key is still there after a reinstallation").await;
}

/// Creates a key and uses it until the burst limit pauses it, then resumes it.
async fn use_new_key(namespace: &Namespace) -> String {
    namespace.quota(&["account", "create", "you@example.com"]);
    let name = ["--account", "you@example.com", "--name", "first", "--scope", "full"];
    let created = namespace.quota(&[&["key", "create"], name.as_slice()].concat());
    let (key, id) = (text(&created["key"]).to_owned(), text(&created["id"]).to_owned());
    let forward = namespace.forward();
    forward.expect_status(Some(&key), 200, "a lookup through the Service succeeds").await;
    forward.expect_status(Some(&key), 429, "the burst limit pauses the key").await;
    namespace.quota(&["key", "resume", &id]);
    forward.expect_status(Some(&key), 200, "the resumed key works").await;
    key
}

fn instance() -> String {
    format!("app.kubernetes.io/instance={RELEASE}")
}

/// The store is a pod of its own: an upgrade that also removed the bundled Valkey would take it from the old pods.
#[tokio::test]
async fn upgrade_to_unreachable_store_is_rejected_in_cluster() {
    if !has_cluster() {
        return;
    }
    let (namespace, chart) = (Namespace::create(), chart_dir());
    apply_store(&namespace);
    let values = ["valkey.enabled=false", "dashboard.enabled=false", "externalRedis.url=redis://store:6379"];
    namespace.deploy("install", &chart, HELM_TIMEOUT, &values).unwrap();
    namespace.forward().expect_status(None, 200, "a demo lookup succeeds").await;

    let before = namespace.ready_pods();
    assert_eq!(before.len(), 2, "{before:?}");
    let values = [&values[..2], &["externalRedis.url=redis://nowhere.invalid:6379"]].concat();
    let upgraded = namespace.deploy("upgrade", &chart, REJECTED_UPGRADE_TIMEOUT, &values);
    assert!(upgraded.is_err(), "pods without a store must not become ready: {upgraded:?}");
    assert_eq!(namespace.ready_pods(), before, "the old pods stay, and no new one is ready");
    namespace.forward().expect_status(None, 200, "the old pods serve lookups").await;
    namespace.helm_test();

    namespace.helm(&["rollback", RELEASE, "1", "--wait", "--timeout", HELM_TIMEOUT]).unwrap();
    assert_eq!(namespace.ready_pods(), before, "the rollback removes only the pods that never became ready");
    namespace.helm_test();
}

/// From the bundled Valkey to the operator's own store, whose password then changes; with a first account from a Secret.
#[tokio::test]
async fn release_moves_to_own_store_and_uses_its_new_password_in_cluster() {
    if !has_cluster() {
        return;
    }
    let (namespace, chart) = (Namespace::create(), chart_dir());
    apply_store(&namespace);
    let login = "you@example.com";
    let key = quota_svc::domain::id::AccountId::of(login).generate_key().unwrap();
    let entries = [
        &format!("--from-literal=login={login}"),
        "--from-literal=password=correct horse battery",
        &format!("--from-literal=api-key={}", key.expose()),
    ];
    namespace.kubectl(&[&["create", "secret", "generic", "first"], entries.as_slice()].concat());
    let first = "firstAccount.existingSecret=first";
    namespace.deploy("install", &chart, HELM_TIMEOUT, &[first]).unwrap();
    namespace.forward().expect_status(Some(key.expose()), 200, "the key of the Secret works").await;

    let deployment = format!("deploy/{RELEASE}-ip-lookup-lookup-svc");
    namespace.kubectl(&["scale", &deployment, "--replicas=3"]);
    let scaling = "lookup.autoscaling.enabled=true";
    namespace.deploy("upgrade", &chart, HELM_TIMEOUT, &[first, scaling]).unwrap();
    assert_eq!(namespace.get(&[&deployment])["spec"]["replicas"], 3, "autoscaling removes no running pod");

    let valkey = namespace.valkey();
    for password in ["old", "new"] {
        let set =
            ["exec", "store", "--", "valkey-cli", "-a", "old", "config", "set", "requirepass", password];
        namespace.kubectl(&set);
        let external = format!("externalRedis.url=redis://store:6379,externalRedis.password={password}");
        namespace.deploy("upgrade", &chart, HELM_TIMEOUT, &[first, scaling, &external]).unwrap();
        namespace.kubectl(&[
            "exec",
            "store",
            "--",
            "valkey-cli",
            "-a",
            password,
            "client",
            "kill",
            "type",
            "normal",
        ]);
        namespace.forward().expect_status(Some(key.expose()), 200, "the pods use their new store").await;
    }
    assert_eq!(namespace.valkey(), valkey, "the bundled Valkey is neither removed nor restarted");
}

/// Discovery of a Service that does not exist finds nothing.
#[tokio::test]
async fn failed_helm_test_names_its_reason_and_is_deleted_in_cluster() {
    if !has_cluster() {
        return;
    }
    let (namespace, chart) = (Namespace::create(), chart_dir());
    let discover =
        format!("edge.profile=custom,edge.discover.namespace={},edge.discover.service=none", namespace.0);
    let notes = namespace.deploy("install", &chart, HELM_TIMEOUT, &[&discover]).unwrap();
    assert!(notes.contains("NO PROXY FOUND"), "{notes}");
    let job = format!("job/{RELEASE}-ip-lookup-selftest");
    let mut uids = BTreeSet::new();
    for _ in 0..2 {
        assert!(namespace.helm(&["test", RELEASE, "--timeout", HELM_TIMEOUT]).is_err());
        let log = namespace.kubectl(&["logs", &job]);
        assert!(log.contains("discovery has found no proxy"), "{log}");
        uids.insert(text(&namespace.get(&[&job])["metadata"]["uid"]).to_owned());
    }
    assert_eq!(uids.len(), 2, "the second test replaces the first one");
    namespace.helm(&["uninstall", RELEASE, "--wait", "--timeout", HELM_TIMEOUT]).unwrap();
    namespace.kubectl(&["wait", "--for=delete", &job, "--timeout=11m"]);
    assert_eq!(namespace.kubectl(&["get", "pods", "-l", &instance(), "-o", "name"]), "");
}

/// The commands of the chart's README.
#[tokio::test]
async fn backup_is_restored_by_a_job_in_cluster() {
    if !has_cluster() {
        return;
    }
    let (namespace, chart) = (Namespace::create(), chart_dir());
    namespace.deploy("install", &chart, HELM_TIMEOUT, &["valkey.backup.enabled=true"]).unwrap();
    let key = use_new_key(&namespace).await;
    let run = |cron: &str| {
        let from = format!("--from=cronjob/{RELEASE}-ip-lookup-{cron}");
        namespace.kubectl(&["create", "job", cron, &from]);
        namespace.kubectl(&["wait", "--for=condition=Complete", &format!("job/{cron}"), "--timeout=180s"]);
    };
    run("backup");
    namespace.quota(&["account", "delete", "you@example.com", "--yes"]);
    namespace.forward().expect_status(Some(&key), 401, "the key is gone").await;
    run("restore");
    namespace.forward().expect_status(Some(&key), 200, "the key is back").await;
}

/// Nothing listens on port 1, so the volume stays empty. `ReadWriteOnce`, because every cluster has such a class.
#[tokio::test]
async fn rollback_restores_shared_geo_volume_in_cluster() {
    if !has_cluster() {
        return;
    }
    let (namespace, chart) = (Namespace::create(), chart_dir());
    let url = "geo.provider=url,geo.url=http://127.0.0.1:1/geo.mmdb";
    let shared = "lookup.replicaCount=1,geo.shared.enabled=true,geo.shared.accessModes={ReadWriteOnce}";
    namespace.deploy("install", &chart, HELM_TIMEOUT, &[url, shared]).unwrap();
    let claim = || namespace.get(&["pvc", &format!("{RELEASE}-ip-lookup-geo")])["metadata"]["uid"].clone();
    let installed = claim();
    namespace.deploy("upgrade", &chart, HELM_TIMEOUT, &[url]).unwrap();
    assert_eq!(claim(), installed, "the volume stays");
    namespace.helm(&["rollback", RELEASE, "1", "--wait", "--timeout", HELM_TIMEOUT]).unwrap();
    assert_eq!(claim(), installed);
    namespace.helm(&["uninstall", RELEASE, "--wait", "--timeout", HELM_TIMEOUT]).unwrap();
    namespace.kubectl(&["wait", "--for=delete", &format!("pvc/{RELEASE}-ip-lookup-geo"), "--timeout=120s"]);
}

/// Runs a Valkey without a password outside of the release, with the image that the chart would use.
fn apply_store(namespace: &Namespace) {
    let images = image_values();
    let arguments: Vec<_> = images.iter().flat_map(|value| ["--set", value.as_str()]).collect();
    let rendered = Chart::render(&arguments).unwrap();
    let container = &rendered.object("StatefulSet", "-valkey")["spec"]["template"]["spec"]["containers"][0];
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "store", "labels": {"app": "store"}},
        "spec": {"containers": [{
            "name": "valkey", "image": container["image"], "imagePullPolicy": container["imagePullPolicy"],
            "command": ["valkey-server", "--save", "", "--appendonly", "no", "--protected-mode", "no"],
            "securityContext": container["securityContext"],
        }]},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "store"},
        "spec": {"selector": {"app": "store"}, "ports": [{"port": 6379}]},
    });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store.json");
    fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": [pod, service]}).to_string())
        .unwrap();
    namespace.kubectl(&["apply", "-f", file.to_str().unwrap()]);
    namespace.kubectl(&["wait", "--for=condition=Ready", "pod/store", "--timeout=120s"]);
}
