//! The alerts, the Grafana dashboard and the example configuration, checked with a real Prometheus.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use e2e::chart::{Chart, NAMESPACE, RELEASE, list, text, venv_tool, yaml_to_json};
use quota_client::wire::Scope;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::http;
use testkit::lookup::{JsonResponse, Lookup, Stack, WAIT_TIMEOUT};
use testkit::ports::ReservedPort;
use testkit::spawner::ChildGuard;
use testkit::tls::TlsFiles;
use testkit::tools::{project_root, require_tool};
use testkit::wait::eventually_ok;

const ALERTS: &str = "deploy/monitoring/alerts.yaml";

fn read(path: &str) -> String {
    fs::read_to_string(project_root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rules of a rule file.
fn rules(yaml: &str) -> Vec<Value> {
    let documents: Value = serde_json::from_str(&yaml_to_json(yaml)).unwrap();
    list(&documents[0]["groups"]).flat_map(|group| list(&group["rules"])).cloned().collect()
}

fn promtool(arguments: &[&str]) -> (bool, String) {
    let output = Command::new("promtool").args(arguments).current_dir(project_root()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn example_configuration_and_alerts_are_valid() {
    if !require_tool("promtool") {
        return;
    }
    let (valid, report) = promtool(&["check", "config", "deploy/monitoring/prometheus.yaml"]);
    assert!(valid && report.contains("1 rule files found"), "{report}");
    let (valid, report) = promtool(&["check", "rules", "--lint=all", "--lint-fatal", ALERTS]);
    assert!(valid, "{report}");
}

#[test]
fn each_alert_fires_in_its_fault_and_is_silent_otherwise() {
    if !require_tool("promtool") || venv_tool("python").is_none() {
        return;
    }
    for rule in rules(&read(ALERTS)) {
        let name = text(&rule["alert"]);
        let file = format!("tests/alerts/{name}.yaml");
        let cases: Value = serde_json::from_str(&yaml_to_json(&read(&file))).unwrap();
        let fires = |test: &Value| {
            list(&test["alert_rule_test"]).any(|check| list(&check["exp_alerts"]).next().is_some())
        };
        assert!(list(&cases[0]["tests"]).any(fires), "no test of {name} in which it fires");
        assert!(!list(&cases[0]["tests"]).all(fires), "no test of {name} in which it is silent");
        let (passed, report) = promtool(&["test", "rules", &file]);
        assert!(passed, "{report}");
    }
}

#[test]
fn each_alert_links_to_its_section_in_the_runbooks() {
    if venv_tool("python").is_none() {
        return;
    }
    let runbooks = read("docs/runbooks.md");
    let sections: Vec<&str> = runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let rules = rules(&read(ALERTS));
    let alerts: Vec<&str> = rules.iter().map(|rule| text(&rule["alert"])).collect();
    assert_eq!(sections, alerts, "the sections of docs/runbooks.md and the alerts, in their order");
    for rule in &rules {
        let anchor = text(&rule["alert"]).to_lowercase();
        assert_eq!(rule["annotations"]["runbook_url"], format!("docs/runbooks.md#{anchor}"));
    }
}

#[test]
fn chart_creates_the_same_alerts_with_its_values() {
    if venv_tool("helm").is_none() {
        return;
    }
    let render = |values: Value| {
        let values = format!("metrics.prometheusRule={values}");
        let chart = Chart::render(&["--set-json", &values]).unwrap();
        list(&chart.object("PrometheusRule", "")["spec"]["groups"][0]["rules"]).cloned().collect::<Vec<_>>()
    };
    // The label is absent if something else than the Prometheus operator scrapes the pods.
    let namespace = format!(r#"namespace=~"{NAMESPACE}|""#);
    let source = read(ALERTS).replace(r#"job=~".+""#, &namespace);
    let source = source.replace(r#"=~".*ip-lookup-backup""#, &format!(r#"="{RELEASE}-ip-lookup-backup""#));
    assert_eq!(render(json!({"enabled": true})), rules(&source));
    let changed = render(json!({
        "enabled": true,
        "pausedKeys": 77,
        "geoDatabaseAgeDays": 78,
        "certificateDays": 79,
        "backupAgeHours": 80,
        "errorRate": 0.076,
        "runbookUrl": "https://wiki.example/runbooks",
    }));
    let rule = |name: &str| changed.iter().find(|rule| rule["alert"] == name).unwrap();
    for (name, threshold) in [
        ("IpLookupKeysPaused", "> 77"),
        ("IpLookupGeoDatabaseOld", "> 78 * 86400"),
        ("IpLookupCertificateExpires", "< 79 * 86400"),
        ("IpLookupErrorRate", "> 0.076"),
        ("IpLookupBackupOld", "> 80 * 3600"),
    ] {
        assert!(text(&rule(name)["expr"]).ends_with(threshold), "{}", rule(name));
    }
    for (name, summary) in [
        ("IpLookupGeoDatabaseOld", "A geo database is older than 78 days"),
        ("IpLookupCertificateExpires", "A certificate expires within 79 days"),
        ("IpLookupBackupOld", "No backup has succeeded for 80 hours"),
    ] {
        assert_eq!(rule(name)["annotations"]["summary"], summary);
    }
    for rule in &changed {
        let url = format!("https://wiki.example/runbooks#{}", text(&rule["alert"]).to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], url);
    }
}

/// A running Prometheus with the example configuration.
struct Prometheus {
    port: ReservedPort,
    _process: ChildGuard,
    _dir: TempDir,
}

impl Prometheus {
    /// Scrapes these targets every second, and evaluates the alerts as often. They fire after a second.
    fn start(targets: &[String]) -> Self {
        let (dir, port) = (tempfile::tempdir().unwrap(), ReservedPort::new());
        let example = read("deploy/monitoring/prometheus.yaml");
        let config = example.replace("15s", "1s").replace(r#"["127.0.0.1:9080"]"#, &format!("{targets:?}"));
        assert_eq!(config.matches(&targets[0]).count(), 1, "the example has one place for targets");
        let alerts = read(ALERTS).lines().map(fire_soon).collect::<Vec<_>>().join("\n");
        let write = |name: &str, content: &str| fs::write(dir.path().join(name), content).unwrap();
        write("prometheus.yaml", &config);
        write("alerts.yaml", &alerts);
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let process = ChildGuard::spawn("prometheus", |command| {
            command.arg(flag("config.file", &dir.path().join("prometheus.yaml")));
            command.arg(flag("storage.tsdb.path", &dir.path().join("data")));
            command.arg(format!("--web.listen-address={}", port.addr()));
            command.stdout(Stdio::null()).stderr(Stdio::null());
        });
        Self { port, _process: process, _dir: dir }
    }

    /// The field `data` of a response of the HTTP API.
    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        let mut url = reqwest::Url::parse(&format!("http://{}/api/v1/{path}", self.port.addr())).unwrap();
        url.query_pairs_mut().extend_pairs(query);
        let response = http::client().get(url).send().await.map_err(|error| error.to_string())?;
        let body = response.text().await.map_err(|error| error.to_string())?;
        let body: Value = serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
        if body["status"] == "success" { Ok(body["data"].clone()) } else { Err(body.to_string()) }
    }

    /// The number of series that a query returns.
    async fn count(&self, query: &str) -> Result<usize, String> {
        Ok(list(&self.get("query", &[("query", query)]).await?["result"]).count())
    }

    /// Names of the alerts that fire.
    async fn firing(&self) -> Result<BTreeSet<String>, String> {
        let alerts = self.get("alerts", &[]).await?;
        let firing = list(&alerts["alerts"]).filter(|alert| alert["state"] == "firing");
        Ok(firing.map(|alert| text(&alert["labels"]["alertname"]).to_owned()).collect())
    }
}

fn fire_soon(line: &str) -> String {
    match line.split_once("for: ") {
        Some((indent, _)) if indent.trim().is_empty() => format!("{indent}for: 1s"),
        _ => line.to_owned(),
    }
}

/// The queries of the dashboard's panels, for all namespaces and jobs.
fn panel_queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("deploy/monitoring/grafana-dashboard.json")).unwrap();
    let targets = list(&dashboard["panels"]).flat_map(|panel| list(&panel["targets"]));
    targets.map(|target| text(&target["expr"]).replace("$namespace", ".*").replace("$job", ".*")).collect()
}

/// Names of metrics in a query: what is before each `{`.
fn metric_names(query: &str) -> impl Iterator<Item = &str> {
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let before_braces = query.match_indices('{').map(|(index, _)| &query[..index]);
    before_braces.filter_map(move |before| before.rsplit(|c| !is_name_char(c)).next())
}

#[tokio::test]
async fn prometheus_fires_in_an_outage_and_has_data_for_every_query() {
    if !require_tool("prometheus") || venv_tool("python").is_none() {
        return;
    }
    let mut stack = Stack::start(&["--burst-limit", "2"], &[]).await;
    let dir = tempfile::tempdir().unwrap();
    let tls = TlsFiles::create(dir.path());
    let tls_flags = ["--tls-cert", tls.cert.to_str().unwrap(), "--tls-key", tls.key.to_str().unwrap()];
    // Its certificate is valid for more than the alert's 14 days.
    let with_tls = Lookup::start(stack.quota.url(), &tls_flags).await;
    let admin_urls = [stack.lookup.admin_url(), with_tls.admin_url(), stack.quota.admin_url()];
    let targets = admin_urls.map(|url| url.trim_start_matches("http://").to_owned());
    let prometheus = Prometheus::start(&targets);

    let key = stack.key_with_scope(Scope::Full).await;
    for status in [200, 200, 429, 429] {
        assert_eq!(JsonResponse::fetch(stack.lookup.get_ip(&key.secret)).await.status, status);
    }
    eventually_ok(WAIT_TIMEOUT, "all targets are up and all rules were evaluated", async || {
        let up = prometheus.count("up == 1").await?;
        let groups = prometheus.get("rules", &[]).await?;
        let rules: Vec<_> = list(&groups["groups"][0]["rules"]).collect();
        match up == 3 && !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok") {
            true => Ok(()),
            false => Err(format!("{up} targets are up, {groups}")),
        }
    })
    .await;
    assert_eq!(prometheus.firing().await.unwrap(), BTreeSet::new(), "nothing is wrong yet");
    let errors = panel_queries().into_iter().find(|query| query.contains("5xx")).unwrap();
    let data = prometheus.get("query", &[("query", &errors)]).await.unwrap();
    let rates: Vec<_> = list(&data["result"]).map(|series| &series["value"][1]).collect();
    assert!(!rates.is_empty() && rates.iter().all(|rate| *rate == "0"), "no error is shown as 0: {data}");

    stack.redis.stop();
    eventually_ok(WAIT_TIMEOUT, "the outage raises its alerts", async || {
        let response = JsonResponse::fetch(stack.lookup.get_ip(&key.secret)).await;
        let firing = prometheus.firing().await?;
        let expected = ["IpLookupErrorRate", "IpLookupStoreUnreachable"].map(str::to_owned);
        match firing == BTreeSet::from(expected) {
            true => Ok(()),
            false => Err(format!("{firing:?}, status {}", response.status)),
        }
    })
    .await;

    for query in panel_queries() {
        eventually_ok(WAIT_TIMEOUT, &query, async || match prometheus.count(&query).await? {
            0 => Err("no data".to_owned()),
            _ => Ok(()),
        })
        .await;
    }
    let names = prometheus.get("label/__name__/values", &[]).await.unwrap();
    let names: BTreeSet<&str> = list(&names).map(text).collect();
    for rule in rules(&read(ALERTS)) {
        // kube-state-metrics exports those of Kubernetes.
        let own = metric_names(text(&rule["expr"])).filter(|name| !name.starts_with("kube_"));
        let missing: Vec<_> = own.filter(|name| !names.contains(name)).collect();
        assert!(missing.is_empty(), "{} queries metrics that do not exist: {missing:?}", rule["alert"]);
    }
}
