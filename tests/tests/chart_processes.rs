//! The pods that the chart renders, started as real processes with the same flags, environment and files.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use e2e::chart::pod::{Pod, Services, environment};
use e2e::chart::{Chart, list, text, venv_tool};
use e2e::http;
use e2e::loadgen::Load;
use e2e::lookup::PATIENCE;
use e2e::process::binary;
use e2e::tools::require_tool;
use e2e::wait::eventually_ok;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Our own file, so no licence stands in the way.
const SAMPLE: &str = "lookup-svc/data/sample.mmdb";

/// Values for a machine that is busy and for tests that are not patient.
const VALUES: [&str; 6] = [
    "--set",
    "lookup.extraArgs={--quota-deadline=10s,--request-timeout=12s},quota.extraArgs={--store-timeout=10s}",
    "--set",
    "edge.profile=custom,edge.trustedProxies={127.0.0.1},colo.map.zone-1=FRA",
    "--set",
    "lookup.podLabels.topology\\.kubernetes\\.io/zone=zone-1,shutdown.drainSeconds=2,shutdown.graceSeconds=10",
];

fn ready() -> bool {
    require_tool("redis-server") && venv_tool("helm").is_some()
}

fn render(more: &[&str]) -> Chart {
    Chart::render(&[VALUES.as_slice(), more].concat()).unwrap()
}

/// The release's Valkey, and its Service by name.
async fn start_store(chart: &Chart) -> (Pod, Services) {
    let valkey = Pod::start(chart, chart.object("StatefulSet", "-valkey"), &Services::new()).await;
    let services = [("ipl-ip-lookup-valkey:6379".to_owned(), valkey.addr(6379))].into();
    (valkey, services)
}

async fn get(url: String) -> (u16, Value) {
    let answer = http::client().get(&url).send().await.unwrap();
    let (status, body) = (answer.status().as_u16(), answer.text().await.unwrap());
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

/// Makes an account and a key with the command that NOTES.txt names, through the dashboard pod's sidecar.
fn create_key(dashboard: &Pod) -> String {
    let run = |arguments: &[&str]| {
        let url = format!("http://{}", dashboard.addr(8082));
        let mut command = Command::new(binary("quota-svc"));
        let output =
            command.args(["--quota-url", &url]).args(arguments).args(["--output", "json"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    run(&["account", "create", "you@example.com"]);
    let created =
        run(&["key", "create", "--account", "you@example.com", "--name", "first", "--scope", "full"]);
    let found = created.to_string();
    let start = found.find("ipl_").unwrap_or_else(|| panic!("no key in {found}"));
    found[start..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
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
async fn a_sidecar_in_a_plain_container_works_too() {
    if !ready() {
        return;
    }
    let chart = render(&["--set", "quota.nativeSidecar=false"]);
    let (_valkey, services) = start_store(&chart).await;
    let mut lookup = Pod::start(&chart, chart.object("Deployment", "-lookup-svc"), &services).await;
    assert_eq!(get(format!("http://{}/api/v1/ip/demo", lookup.addr(8080))).await.0, 200);
    lookup.stop(Duration::from_secs(22)).await;
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

#[test]
fn every_environment_variable_is_one_that_the_program_reads() {
    if !ready() {
        return;
    }
    let file = e2e::chart::folder().join("ci/full-values.yaml");
    let chart = Chart::of_file(&file);
    for deployment in chart.of_kind("Deployment") {
        let pod = &deployment["spec"]["template"];
        for container in list(&pod["spec"]["initContainers"]).chain(list(&pod["spec"]["containers"])) {
            let image =
                text(&container["image"]).rsplit('/').next().unwrap().split([':', '@']).next().unwrap();
            let help = Command::new(binary(image)).arg("--help").output().unwrap();
            let help = String::from_utf8(help.stdout).unwrap();
            for (name, value) in environment(&chart, pod, container) {
                let known = name.starts_with("OTEL_") || help.contains(&format!("[env: {name}="));
                assert!(known, "{image} does not read {name}={value}");
            }
        }
    }
}

#[tokio::test]
async fn a_rolling_restart_under_load_fails_no_request() {
    if !ready() {
        return;
    }
    let chart = render(&["--set", "quota.dailyLimit=10000000,quota.burstLimit=60000"]);
    let workload = chart.object("Deployment", "-lookup-svc").clone();
    let grace = Duration::from_secs(
        workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap(),
    );
    let (_valkey, services) = start_store(&chart).await;
    let dashboard = Pod::start(&chart, chart.object("Deployment", "-dashboard-api"), &services).await;
    let key = create_key(&dashboard);
    let mut pods =
        vec![Pod::start(&chart, &workload, &services).await, Pod::start(&chart, &workload, &services).await];
    // What kube-proxy has: the ready pods, a moment late.
    let endpoints = Arc::new(Mutex::new(pods.iter().map(|pod| pod.addr(8080)).collect::<Vec<_>>()));
    let (client, turn) = (http::client(), Arc::new(std::sync::atomic::AtomicUsize::new(0)));
    let load = {
        let endpoints = endpoints.clone();
        Load::http(4, move || {
            let ready = endpoints.lock().unwrap();
            let next = turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            client.get(format!("http://{}/api/v1/ip", ready[next % ready.len()])).bearer_auth(&key)
        })
    };
    for _ in 0..2 {
        let new = Pod::start(&chart, &workload, &services).await;
        endpoints.lock().unwrap().push(new.addr(8080));
        let mut old = pods.remove(0);
        let (addr, admin) = (old.addr(8080), old.addr(9080));
        let before = load.completed();
        let stop = async { old.stop(grace).await };
        let forget = async {
            // The Service goes on sending until the readiness probe has been seen to fail, and then some requests more.
            eventually_ok(PATIENCE, "the stopping pod says that it is not ready", async || {
                let status = get(format!("http://{admin}/readyz")).await.0;
                if status == 503 { Ok(()) } else { Err(status) }
            })
            .await;
            eventually_ok(PATIENCE, "some more requests", async || {
                let more = load.completed() - before;
                if more > 200 { Ok(()) } else { Err(more) }
            })
            .await;
            endpoints.lock().unwrap().retain(|known| *known != addr);
        };
        tokio::join!(stop, forget);
        pods.push(new);
    }
    let report = load.stop().await;
    assert_eq!(report.count("200"), report.samples.len(), "{report}");
    assert!(report.samples.len() > 500, "{report}");
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
