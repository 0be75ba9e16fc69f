//! Starts the pods that the chart renders as local processes, with the same flags, environment and files.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::Command;

use e2e::chart::pod::{Pod, Services, environment};
use e2e::chart::release::{create_key, get, render, start_store};
use e2e::chart::{Chart, chart_dir, list, text, venv_tool};
use k8s_openapi::ByteString;
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::http;
use testkit::lookup::WAIT_TIMEOUT;
use testkit::process::binary;
use testkit::redis::Redis;
use testkit::tools::{require_tool, require_valkey};
use testkit::wait::eventually_ok;

fn has_tools() -> bool {
    require_tool("redis-cli") && require_valkey().is_some() && venv_tool("helm").is_some()
}

#[tokio::test]
async fn release_becomes_ready_and_serves_requests() {
    if !has_tools() {
        return;
    }
    let geo = testkit::http::serve(testkit::mmdb::sample::build()).await + "geo.mmdb";
    let chart = render(&["--set", &format!("geo.provider=url,geo.url={geo}")]);
    let (valkey, mut services) = start_store(&chart).await;
    let lookup = Pod::start(&chart, chart.object("Deployment", "-lookup-svc"), &services).await;
    let dashboard = Pod::start(&chart, chart.object("Deployment", "-dashboard-api"), &services).await;

    let key = create_key(&dashboard);
    let request = http::client().get(format!("http://{}/api/v1/ip", lookup.addr(8080))).bearer_auth(&key);
    let body: Value =
        request.header("X-Forwarded-For", "198.51.100.7").send().await.unwrap().json().await.unwrap();
    assert_eq!((&body["ip"], &body["colo"]), (&json!("198.51.100.7"), &json!("FRA")), "{body}");
    let (status, page) = get(format!("http://{}/", dashboard.addr(8081))).await;
    assert_eq!((status, page.to_string().contains("<html")), (200, true), "{page}");
    let readyz = format!("http://{}/readyz", lookup.addr(9080));
    eventually_ok(WAIT_TIMEOUT, "the downloaded database is used", async || {
        let (_, checks) = get(readyz.clone()).await;
        if checks.to_string().contains("geo.mmdb") { Ok(()) } else { Err(checks.to_string()) }
    })
    .await;
    let log = lookup.log("geo-refresh");
    assert!(!log.contains("ERROR"), "{log}");
    assert!(log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "log.format is json: {log}");

    services.insert("ipl-ip-lookup-lookup-svc:80".to_owned(), lookup.addr(8080));
    let (status, log) =
        Pod::run(&chart, &chart.object("Job", "-selftest")["spec"]["template"], &services).await;
    assert!(status.success() && log.contains("ok: "), "helm test: {log}");
    check_queried_metrics(&lookup, &dashboard).await;
    drop(valkey);
}

#[tokio::test]
async fn hung_valkey_fails_its_liveness_probe() {
    if !has_tools() {
        return;
    }
    let chart = render(&[]);
    let (valkey, _) = start_store(&chart).await;
    assert_eq!(valkey.probe("valkey", "livenessProbe").await, Ok(()));
    valkey.signal("valkey", Signal::STOP);
    assert!(
        valkey.probe("valkey", "livenessProbe").await.is_err(),
        "it accepts connections but does not reply"
    );
    valkey.signal("valkey", Signal::CONT);
    assert_eq!(valkey.probe("valkey", "livenessProbe").await, Ok(()));
}

/// A download that fails must neither delay the pod nor end the container: a container that is not running makes the pod
/// unready.
#[tokio::test]
async fn pod_stays_ready_while_geo_downloads_fail() {
    if !has_tools() {
        return;
    }
    let no_retry = r#"geo.extraEnv=[{"name": "IP_LOOKUP_GEO_UPDATE_RETRIES", "value": "0"}]"#;
    // Nothing listens on port 1.
    let chart = render(&[
        "--set",
        "geo.provider=url,geo.url=http://127.0.0.1:1/geo.mmdb,geo.updateEvery=200ms",
        "--set-json",
        no_retry,
    ]);
    let (_valkey, services) = start_store(&chart).await;
    let mut lookup = Pod::start(&chart, chart.object("Deployment", "-lookup-svc"), &services).await;
    eventually_ok(WAIT_TIMEOUT, "two downloads fail", async || {
        let log = lookup.log("geo-refresh");
        if log.matches("update failed").count() > 1 { Ok(()) } else { Err(log) }
    })
    .await;
    assert_eq!(get(format!("http://{}/readyz", lookup.addr(9080))).await.0, 200);
    // Panics if a container has exited with an error.
    lookup.stop(WAIT_TIMEOUT).await;
}

/// Every metric that the alerts and the Grafana dashboard query must exist.
async fn check_queried_metrics(lookup: &Pod, dashboard: &Pod) {
    let enabled = "metrics.prometheusRule.enabled=true,metrics.grafanaDashboard.enabled=true";
    let chart = render(&["--set", enabled]);
    let rules = chart.object("PrometheusRule", "")["spec"].to_string();
    let panels = text(&chart.object("ConfigMap", "-grafana")["data"]["ip-lookup.json"]).to_owned();
    let _: Value = serde_json::from_str(&panels).unwrap();
    let mut metrics = String::new();
    for addr in [lookup.addr(9080), lookup.addr(9082), dashboard.addr(9081), dashboard.addr(9082)] {
        metrics += text(&get(format!("http://{addr}/metrics")).await.1);
    }
    // Finds names by the `{` that follows them and starts the labels.
    let metric_names = |text: &str| -> BTreeSet<String> {
        let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.split('{')
            .filter_map(|before| before.rsplit(|c| !is_name_char(c)).next().map(str::to_owned))
            .collect()
    };
    let prefixes = ["lookup_", "quota_", "geo_", "http_server_", "ip_lookup_", "process_"];
    let queried: BTreeSet<_> = metric_names(&(rules + &panels))
        .into_iter()
        .filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    assert!(queried.len() >= 7, "{queried:?}");
    let exported: BTreeSet<&str> = metrics
        .lines()
        .filter_map(|line| line.split(['{', ' ']).next())
        .filter(|name| *name != "#")
        .collect();
    let missing: Vec<_> = queried.iter().filter(|name| !exported.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "no service exports the metrics {missing:?}");
}

#[tokio::test]
async fn misspelled_flag_fails_pod_start() {
    if !has_tools() {
        return;
    }
    let mut chart = render(&[]);
    for object in chart.objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
        let flag = &mut object["spec"]["template"]["spec"]["containers"][0]["args"][1];
        *flag = text(flag).replace("--admin-listen", "--admin-listn").into();
    }
    let (_valkey, services) = start_store(&chart).await;
    for name in ["-lookup-svc", "-dashboard-api"] {
        let start = Pod::start(&chart, chart.object("Deployment", name), &services);
        let started = catch_panic(start).await;
        assert!(
            started.is_err_and(|message| message.contains("--admin-listn")),
            "{name} started with a misspelled flag"
        );
    }
}

/// Runs the future. A panic becomes an error with the panic's message.
async fn catch_panic<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        match polled {
            Ok(poll) => poll.map(Ok),
            Err(panic) => {
                std::task::Poll::Ready(Err(panic.downcast_ref::<String>().cloned().unwrap_or_default()))
            }
        }
    })
    .await
}

/// Every container that runs one of our images, with its chart and pod.
fn containers(charts: &[Chart]) -> impl Iterator<Item = (&Chart, &Value, &Value)> {
    let pods = charts.iter().flat_map(|chart| chart.pods().map(move |(_, pod)| (chart, pod)));
    let all = pods.flat_map(|(chart, pod)| {
        let all = list(&pod["spec"]["initContainers"]).chain(list(&pod["spec"]["containers"]));
        all.map(move |container| (chart, pod, container))
    });
    all.filter(|(_, _, container)| text(&container["image"]).contains("ip-lookup/"))
}

fn program(container: &Value) -> PathBuf {
    let image = text(&container["image"]).rsplit('/').next().unwrap();
    binary(image.split([':', '@']).next().unwrap())
}

/// Checks that the programs accept their flags, and that the paths in them are mounted.
pub fn check_flags(charts: &[Chart]) {
    let mut checked = BTreeSet::new();
    for (_, _, container) in containers(charts) {
        let arguments: Vec<_> = list(&container["args"]).map(text).collect();
        for (flag, path) in arguments.iter().filter_map(|argument| argument.split_once("=/")) {
            let contains_path =
                |mount: &Value| format!("/{path}/").starts_with(&format!("{}/", text(&mount["mountPath"])));
            assert!(
                list(&container["volumeMounts"]).any(contains_path),
                "{flag}=/{path} is in no volume of {container}"
            );
        }
        if checked.insert((program(container), arguments.clone())) {
            // `--help` comes last, so it succeeds only if all flags before it are valid.
            let output = Command::new(program(container)).args(&arguments).arg("--help").output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    assert!(checked.len() > 20, "{checked:?}");
}

#[test]
fn environment_variables_are_read_by_the_program() {
    if !has_tools() {
        return;
    }
    let charts = [Chart::render_values_file(&chart_dir().join("ci/full-values.yaml"))];
    for (chart, pod, container) in containers(&charts) {
        let help = Command::new(program(container)).arg("--help").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        for (name, value) in environment(chart, pod, container) {
            let is_read = name.starts_with("OTEL_") || help.contains(&format!("[env: {name}="));
            assert!(is_read, "{} does not read {name}={value}", container["name"]);
        }
    }
}

fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), json!(ByteString((*value).into()))));
    let data: serde_json::Map<_, _> = data.collect();
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data})
}

async fn status_of_lookup(pod: &Pod, key: &str) -> u16 {
    let request = http::client().get(format!("http://{}/api/v1/ip", pod.addr(8080))).bearer_auth(key);
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn first_account_secret_gives_a_password_and_a_working_key() {
    if !has_tools() {
        return;
    }
    let (login, password) = ("ada@example.com", "correct horse battery");
    let generated = Command::new(binary("quota-svc")).args(["key", "generate", login]).output().unwrap();
    let key = String::from_utf8(generated.stdout).unwrap();
    let data = [("login", login), ("password", password), ("api-key", &key)];
    let chart = render(&[
        "--set",
        "firstAccount.existingSecret=first,dashboard.extraArgs={--insecure-cookies}",
        "--set-json",
        &format!("extraObjects={}", json!([secret("first", &data)])),
    ]);
    let (_valkey, services) = start_store(&chart).await;
    let dashboard = Pod::start(&chart, chart.object("Deployment", "-dashboard-api"), &services).await;
    let lookup = Pod::start(&chart, chart.object("Deployment", "-lookup-svc"), &services).await;
    assert_eq!(status_of_lookup(&lookup, key.trim()).await, 200);
    let url = format!("http://{}", dashboard.addr(8081));
    let sign_in = http::client().post(format!("{url}/api/v1/session"));
    let sign_in = sign_in.json(&json!({"login": login, "password": password}));
    let response = sign_in.header("origin", &url).header("x-csrf-token", "1").send().await.unwrap();
    assert_eq!(response.status(), 200, "{}", dashboard.log("dashboard-api"));
    // A pod that starts later finds the account.
    let second = Pod::start(&chart, chart.object("Deployment", "-dashboard-api"), &services).await;
    assert!(!second.log("dashboard-api").contains("first account"), "{}", second.log("dashboard-api"));
}

/// As the chart's README describes it, with `kubectl` left out.
#[tokio::test]
async fn moving_to_an_external_redis_keeps_keys_and_valkey() {
    if !has_tools() {
        return;
    }
    let chart = render(&[]);
    let (_valkey, services) = start_store(&chart).await;
    let dashboard = Pod::start(&chart, chart.object("Deployment", "-dashboard-api"), &services).await;
    let key = create_key(&dashboard);
    let redis = Redis::start().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("export.jsonl");
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let token = dashboard.path("/run/secrets/quota/token");
    let export = ["--quota-url", &format!("http://{}", dashboard.addr(8082)), "export", "--to"];
    run(Command::new(binary("quota-svc")).env("IP_LOOKUP_QUOTA_TOKEN_FILE", token).args(export).arg(&file));
    let data_dir = dir.path().join("data");
    let import = ["import", file.to_str().unwrap(), "--data-dir", data_dir.to_str().unwrap()];
    run(Command::new(binary("ip-lookup")).env("IP_LOOKUP_REDIS_URL", redis.url()).args(import));

    let moved = render(&["--set", &format!("externalRedis.url={}", redis.url())]);
    let lookup = Pod::start(&moved, moved.object("Deployment", "-lookup-svc"), &Services::new()).await;
    assert_eq!(status_of_lookup(&lookup, &key).await, 200);
    let spec = |chart: &Chart| chart.object("StatefulSet", "-valkey")["spec"]["template"]["spec"].clone();
    assert_eq!(spec(&moved), spec(&chart), "Valkey is not restarted");
}

/// Starts a Job of a CronJob, with another volume in place of that of the backups.
async fn start_job(chart: &Chart, cron: &str, volume: Value, services: &Services) -> Pod {
    let mut job = chart.object("CronJob", cron)["spec"]["jobTemplate"].clone();
    let volumes = job["spec"]["template"]["spec"]["volumes"].as_array_mut().unwrap();
    let backups = volumes.iter_mut().find(|volume| volume["name"] == "backup").unwrap();
    *backups = volume;
    Pod::start(chart, &job, services).await
}

async fn wait_for_log(pod: &Pod, container: &str, part: &str) {
    eventually_ok(WAIT_TIMEOUT, part, async || {
        let log = pod.log(container);
        if log.contains(part) { Ok(()) } else { Err(log) }
    })
    .await;
}

/// As the chart's README describes it, with `kubectl` left out.
#[tokio::test]
async fn restore_job_adds_the_keys_of_a_backup_to_an_empty_store() {
    if !has_tools() {
        return;
    }
    let mut chart = render(&["--set", "valkey.backup.enabled=true"]);
    let (_valkey, services) = start_store(&chart).await;
    let dashboard = Pod::start(&chart, chart.object("Deployment", "-dashboard-api"), &services).await;
    let key = create_key(&dashboard);
    let volume = json!({"name": "backup", "emptyDir": {}});
    let backup = start_job(&chart, "-backup", volume, &services).await;
    wait_for_log(&backup, "export", "Exported 1 account with 1 key").await;
    let exported = std::fs::read_to_string(backup.path("/backup/latest.jsonl")).unwrap();

    let file = json!({"latest.jsonl": exported});
    chart.objects.push(json!({"kind": "ConfigMap", "metadata": {"name": "backups"}, "data": file}));
    let (_empty, services) = start_store(&chart).await;
    let volume = json!({"name": "backup", "configMap": {"name": "backups"}});
    let restore = start_job(&chart, "-restore", volume, &services).await;
    wait_for_log(&restore, "import", "keys             1").await;
    let lookup = Pod::start(&chart, chart.object("Deployment", "-lookup-svc"), &services).await;
    assert_eq!(status_of_lookup(&lookup, &key).await, 200);
}

/// The operator's own Redis: TLS with a private CA, an ACL user, and the password in a Secret.
#[tokio::test]
async fn external_redis_with_tls_and_acl_user_works() {
    if !has_tools() {
        return;
    }
    let redis = Redis::options().tls().user("ip-lookup", "s3cret", "~* +@all").start().await;
    let ca = std::fs::read_to_string(redis.ca_file()).unwrap();
    let secrets = json!([secret("redis", &[("password", "s3cret")]), secret("redis-ca", &[("ca.crt", &ca)])]);
    let chart = render(&[
        "--set",
        &format!("valkey.enabled=false,externalRedis.url={},externalRedis.username=ip-lookup", redis.url()),
        "--set",
        "externalRedis.existingSecret=redis,externalRedis.tls.caSecret=redis-ca",
        "--set-json",
        &format!("extraObjects={secrets}"),
    ]);
    let lookup = Pod::start(&chart, chart.object("Deployment", "-lookup-svc"), &Services::new()).await;
    let demo = || get(format!("http://{}/api/v1/ip/demo", lookup.addr(8080)));
    eventually_ok(WAIT_TIMEOUT, "the demo responds with 200", async || match demo().await {
        (200, _) => Ok(()),
        other => Err(format!("{other:?} {}", lookup.log("quota-svc"))),
    })
    .await;
}
