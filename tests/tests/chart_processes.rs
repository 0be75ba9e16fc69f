//! The pods that the chart renders, started as real processes with the same flags, environment and files.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::Command;

use e2e::chart::pod::{Pod, Services, environment};
use e2e::chart::release::{create_key, get, render, start_store};
use e2e::chart::{Chart, ci_values, folder, list, text, venv_tool};
use e2e::http;
use e2e::lookup::PATIENCE;
use e2e::process::binary;
use e2e::redis::Redis;
use e2e::tools::require_tool;
use e2e::wait::eventually_ok;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Our own file, so no licence stands in the way.
const SAMPLE: &str = "lookup-svc/data/sample.mmdb";

fn ready() -> bool {
    require_tool("redis-server") && venv_tool("helm").is_some()
}

#[tokio::test]
async fn the_release_becomes_ready_and_answers() {
    if !ready() {
        return;
    }
    let geo = serve_geo_database().await;
    let chart = render(&["--set", &format!("geo.provider=url,geo.url={geo}")]);
    let (valkey, mut services) = start_store(&chart).await;
    let lookup = Pod::start(&chart, chart.object("Deployment", "-lookup-svc"), &services).await;
    let dashboard = Pod::start(&chart, chart.object("Deployment", "-dashboard-api"), &services).await;

    let key = create_key(&dashboard);
    let ask = http::client().get(format!("http://{}/api/v1/ip", lookup.addr(8080))).bearer_auth(&key);
    let answer: Value =
        ask.header("X-Forwarded-For", "198.51.100.7").send().await.unwrap().json().await.unwrap();
    assert_eq!((&answer["ip"], &answer["colo"]), (&json!("198.51.100.7"), &json!("FRA")), "{answer}");
    // lookup-svc's own sidecar judges and does nothing else.
    assert_eq!(get(format!("http://{}/internal/v1/accounts", lookup.addr(8082))).await.0, 404);
    let (status, page) = get(format!("http://{}/", dashboard.addr(8081))).await;
    assert_eq!((status, page.to_string().contains("<html")), (200, true), "{page}");
    let (_, checks) = get(format!("http://{}/readyz", lookup.addr(9080))).await;
    assert!(!checks.to_string().contains("built-in sample"), "the downloaded database is used: {checks}");
    assert!(!lookup.log("geo-refresh").contains("ERROR"), "{}", lookup.log("geo-refresh"));

    services.insert("ipl-ip-lookup-lookup-svc:80".to_owned(), lookup.addr(8080));
    let (status, log) = Pod::run(&chart, chart.object("Pod", "-selftest"), &services).await;
    assert!(status.success() && log.contains("ok: "), "helm test: {log}");
    metrics_of_the_alerts_exist(&lookup, &dashboard).await;
    drop(valkey);
}

/// Alerts and the Grafana dashboard ask for metrics by name: every one of them must be there.
async fn metrics_of_the_alerts_exist(lookup: &Pod, dashboard: &Pod) {
    let on = "metrics.prometheusRule.enabled=true,metrics.grafanaDashboard.enabled=true";
    let chart = render(&["--set", on]);
    let rules = chart.object("PrometheusRule", "")["spec"].to_string();
    let panels = text(&chart.object("ConfigMap", "-grafana")["data"]["ip-lookup.json"]).to_owned();
    let _: Value = serde_json::from_str(&panels).unwrap();
    let mut metrics = String::new();
    for addr in [lookup.addr(9080), lookup.addr(9082), dashboard.addr(9081)] {
        metrics += text(&get(format!("http://{addr}/metrics")).await.1);
    }
    // A metric's name stands before its labels.
    let words = |text: &str| -> BTreeSet<String> {
        let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.split('{').filter_map(|before| before.rsplit(|c| !name(c)).next().map(str::to_owned)).collect()
    };
    let prefixes = ["lookup_", "quota_", "geo_", "http_server_"];
    let asked: BTreeSet<_> =
        words(&(rules + &panels)).into_iter().filter(|w| prefixes.iter().any(|p| w.starts_with(p))).collect();
    assert!(asked.len() >= 7, "{asked:?}");
    for name in asked {
        assert!(metrics.contains(&format!("\n{name}")), "nobody has the metric {name}");
    }
}

#[tokio::test]
async fn the_store_wants_its_password_and_forgets_nothing() {
    if !ready() {
        return;
    }
    let chart = render(&[]);
    let (valkey, _) = start_store(&chart).await;
    let cli = |arguments: &[&str]| {
        let port = valkey.addr(6379).rsplit(':').next().unwrap().to_owned();
        let output = Command::new("redis-cli").args(["-p", &port]).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(cli(&["GET", "x"]).contains("NOAUTH"));
    assert!(cli(&["--no-auth-warning", "-a", "wrong", "GET", "x"]).contains("NOAUTH"));
    let secret: k8s_openapi::api::core::v1::Secret =
        serde_json::from_value(chart.object("Secret", "-store").clone()).unwrap();
    let password = String::from_utf8(secret.data.unwrap()["password"].0.clone()).unwrap();
    let config = |name: &str| cli(&["--no-auth-warning", "-a", &password, "CONFIG", "GET", name]);
    assert!(config("maxmemory-policy").contains("noeviction"));
    assert!(config("appendonly").contains("yes"));
    assert!(cli(&["--no-auth-warning", "-a", &password, "FLUSHALL"]).contains("unknown command"));
}

#[tokio::test]
async fn a_typo_in_a_flag_is_seen() {
    if !ready() {
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
        let started = panic_message(start).await;
        assert!(started.is_err_and(|message| message.contains("--admin-listn")), "{name} took no notice");
    }
}

/// Runs it to its end or to its panic, whose message is the error.
async fn panic_message<T>(future: impl Future<Output = T>) -> Result<T, String> {
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

/// Every container of ours in every `ci/*-values.yaml`, with its pod.
fn containers(charts: &[Chart]) -> impl Iterator<Item = (&Chart, &Value, &Value)> {
    let pods = charts.iter().flat_map(|chart| {
        let workloads = chart.of_kind("Deployment").map(|workload| &workload["spec"]["template"]);
        workloads.chain(chart.of_kind("Pod")).map(move |pod| (chart, pod))
    });
    pods.flat_map(|(chart, pod)| {
        let all = list(&pod["spec"]["initContainers"]).chain(list(&pod["spec"]["containers"]));
        all.map(move |container| (chart, pod, container))
    })
}

fn program(container: &Value) -> PathBuf {
    let image = text(&container["image"]).rsplit('/').next().unwrap();
    binary(image.split([':', '@']).next().unwrap())
}

#[test]
fn every_flag_of_every_values_file_is_understood_and_every_file_is_mounted() {
    if !ready() {
        return;
    }
    let charts: Vec<_> = ci_values().iter().map(|values| Chart::of_file(values)).collect();
    let mut seen = BTreeSet::new();
    for (_, _, container) in containers(&charts) {
        let arguments: Vec<_> = list(&container["args"]).map(text).collect();
        for path in arguments.iter().filter_map(|argument| argument.split_once("=/")) {
            let below = |mount: &Value| {
                format!("/{}/", path.1).starts_with(&format!("{}/", text(&mount["mountPath"])))
            };
            assert!(list(&container["volumeMounts"]).any(below), "{path:?} is in no volume of {container}");
        }
        if seen.insert((program(container), arguments.clone())) {
            // Help comes last: what is before it has been read and found good.
            let output = Command::new(program(container)).args(&arguments).arg("--help").output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    assert!(seen.len() > 20, "{seen:?}");
}

#[test]
fn every_environment_variable_is_one_that_the_program_reads() {
    if !ready() {
        return;
    }
    let charts = [Chart::of_file(&folder().join("ci/full-values.yaml"))];
    for (chart, pod, container) in containers(&charts) {
        let help = Command::new(program(container)).arg("--help").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        for (name, value) in environment(chart, pod, container) {
            let known = name.starts_with("OTEL_") || help.contains(&format!("[env: {name}="));
            assert!(known, "{} does not read {name}={value}", container["name"]);
        }
    }
}

/// Your own Redis: TLS with an authority of yours, a user of its access list, the password in a Secret.
#[tokio::test]
async fn an_external_redis_with_tls_and_a_user_serves_as_store() {
    if !ready() {
        return;
    }
    let redis = Redis::options().tls().user("ip-lookup", "s3cret", "~* +@all").start().await;
    let secret = |name: &str, key: &str, value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {key: ByteString(value.into())}});
    let authority = std::fs::read_to_string(redis.ca_file()).unwrap();
    let secrets = json!([secret("redis", "password", "s3cret"), secret("redis-ca", "ca.crt", &authority)]);
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
    eventually_ok(PATIENCE, "the demo answers", async || match demo().await {
        (200, _) => Ok(()),
        other => Err(format!("{other:?} {}", lookup.log("quota-svc"))),
    })
    .await;
}

/// A database as a provider would serve it: the built-in sample under an address of its own.
async fn serve_geo_database() -> String {
    let sample = e2e::chart::root().join(SAMPLE);
    let bytes = std::fs::read(sample).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/geo.mmdb", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // A request of this kind comes in one piece.
            let _ = stream.read(&mut [0; 4096]).await;
            let head =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", bytes.len());
            let _ = stream.write_all(&[head.as_bytes(), &bytes].concat()).await;
        }
    });
    url
}
