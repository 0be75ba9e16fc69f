//! The standalone binary `ip-lookup`: first start, banner and startup errors.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use testkit::http;
use testkit::ports::ReservedPort;
use testkit::process::Service;
use testkit::redis::Redis;
use testkit::tls::TlsFiles;
use testkit::tools::project_root;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

fn start(data: &Path, flags: &[&str]) -> Service {
    start_with_log("info", data, flags)
}

fn start_with_log(level: &str, data: &Path, flags: &[&str]) -> Service {
    let data = data.to_str().unwrap();
    let any = "127.0.0.1:0";
    let ports = ["--listen", any, "--dashboard-listen", any, "--quota-listen", any, "--admin-listen", any];
    let flags = [&["--data-dir", data, "--log-level", level], &ports[..], flags].concat();
    Service::spawn("ip-lookup", &flags, &[])
}

/// Waits for the banner and returns its text.
async fn banner(service: &mut Service) -> String {
    service.listen_addr("lookup").await;
    testkit::wait::eventually_ok(WAIT_TIMEOUT, "banner is printed", async || {
        let text = service.stdout();
        if text.contains("Press Ctrl-C to stop") { Ok(text) } else { Err(service.logs()) }
    })
    .await
}

/// Runs a command line from the banner and parses its output.
async fn run(line: &str) -> serde_json::Value {
    let output = tokio::process::Command::new("sh").args(["-c", line]).output().await.unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Waits until the service exits with an error, and returns its log.
async fn expect_failure(mut service: Service) -> String {
    let status = service.wait_exit(WAIT_TIMEOUT).await;
    assert!(!status.success(), "{status}: {}", service.logs());
    service.logs()
}

#[tokio::test]
async fn banner_commands_work_and_secrets_are_shown_once() {
    let data = tempfile::tempdir().unwrap();
    let mut service = start(data.path(), &[]);
    let text = banner(&mut service).await;
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| line.starts_with("curl ")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    let other = run(lines[0]).await;
    assert_eq!((&other["ip"], &other["country"]), (&"8.8.8.8".into(), &"US".into()), "{other}");
    let own = run(lines[1]).await;
    assert_eq!((&own["ip"], &own["http_protocol"]), (&"127.0.0.1".into(), &"HTTP/1.1".into()), "{own}");
    let geo = text.lines().find_map(|line| line.strip_prefix("  Geo data       countries only (20")).unwrap();
    assert!(geo.contains("). Cities and networks: ") && geo.ends_with(" geo-update dbip-lite"), "{geo}");
    let dashboard = text.lines().find_map(|line| line.trim().strip_prefix("Dashboard")).unwrap().trim();
    let page = http::client().get(dashboard).send().await.unwrap();
    assert_eq!(page.status(), 200);
    let value =
        |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap().trim().to_owned();
    let body = serde_json::json!({"login": value("Login"), "password": value("Password")}).to_string();
    let signed_in = http::client()
        .post(format!("{dashboard}/api/v1/session"))
        .header("content-type", "application/json")
        .header("origin", dashboard)
        .header("x-csrf-token", "1")
        .body(body)
        .send()
        .await
        .unwrap();
    assert!(signed_in.status().is_success(), "{} {}", signed_in.status(), signed_in.text().await.unwrap());
    service.signal(Signal::INT);
    assert!(service.wait_exit(WAIT_TIMEOUT).await.success(), "{}", service.logs());
    assert!(service.stdout().ends_with("\nStopping. Press Ctrl-C again to stop at once.\n"));

    let mut again = start(data.path(), &[]);
    let text = banner(&mut again).await;
    assert!(!text.contains("ipl_") && !text.contains("Password"), "{text}");
    assert!(!again.logs().contains("ipl_"));
}

#[tokio::test]
async fn banner_forwards_an_address_only_if_this_machine_is_trusted() {
    let data = tempfile::tempdir().unwrap();
    let mut service = start(data.path(), &["--trusted-proxies", "none"]);
    let text = banner(&mut service).await;
    assert!(text.contains("A loopback or private one has no location:\n\n  curl "), "{text}");
    assert!(!text.contains("X-Forwarded-For"), "{text}");
}

#[tokio::test]
async fn standalone_runs_on_redis() {
    let (data, redis) = (tempfile::tempdir().unwrap(), Redis::start().await);
    let mut service = start(data.path(), &["--redis-url", &redis.url()]);
    let text = banner(&mut service).await;
    let line = text.lines().map(str::trim).find(|line| line.starts_with("curl ")).unwrap();
    assert_eq!(run(line).await["status"], "success");
    assert!(!data.path().join("store.redb").exists());
    assert!(redis.cli(&["DBSIZE"]).await.trim().parse::<u32>().unwrap() > 0);
}

#[tokio::test]
async fn first_start_waits_for_unreachable_redis() {
    let (data, mut redis) = (tempfile::tempdir().unwrap(), Redis::start().await);
    redis.stop();
    let mut service = start_with_log("info,quota_svc=debug", data.path(), &["--redis-url", &redis.url()]);
    service.listen_addr("lookup").await;
    // Enough attempts to see whether each one logs a warning.
    testkit::wait::eventually(WAIT_TIMEOUT, "several attempts to connect", async || {
        let logs = service.logs();
        let waits = logs.contains("the store is not available yet");
        (waits && logs.matches("can't connect to the store").count() > 5).then_some(())
    })
    .await;
    redis.restart().await;
    let text = banner(&mut service).await;
    assert!(text.contains("First start."), "{text}");
    let logs = service.logs();
    let warnings: Vec<_> = logs.lines().filter(|line| line.contains(r#""level":"WARN""#)).collect();
    let [connect, notice] = warnings.as_slice() else { panic!("not two warnings: {warnings:#?}") };
    assert!(connect.contains("can't connect to the store; retrying"), "{connect}");
    assert!(notice.contains("the store is not available yet; retrying for up to 10 s"), "{notice}");
}

#[tokio::test]
async fn interrupt_ends_the_wait_for_unreachable_redis_at_once() {
    let (data, mut redis) = (tempfile::tempdir().unwrap(), Redis::start().await);
    redis.stop();
    let mut service = start(data.path(), &["--redis-url", &redis.url()]);
    testkit::wait::eventually(WAIT_TIMEOUT, "it waits for Redis", async || {
        service.logs().contains("the store is not available yet").then_some(())
    })
    .await;
    service.signal(Signal::INT);
    // The wait alone would last 10 s.
    assert!(service.wait_exit(Duration::from_secs(5)).await.success(), "{}", service.logs());
    assert!(service.stdout().contains("Stopping."));
}

#[tokio::test]
async fn start_without_redis_after_a_start_with_it_warns() {
    let (data, redis) = (tempfile::tempdir().unwrap(), Redis::start().await);
    for (flags, warns) in
        [(&[][..], false), (&["--redis-url", &redis.url()], false), (&[], true), (&[], true)]
    {
        let mut service = start(data.path(), flags);
        banner(&mut service).await;
        assert_eq!(service.logs().contains("an earlier start used --redis-url"), warns, "{flags:?}");
        service.signal(Signal::INT);
        service.wait_exit(WAIT_TIMEOUT).await;
    }
    std::fs::remove_file(data.path().join("uses-redis")).unwrap();
    let mut service = start(data.path(), &[]);
    banner(&mut service).await;
    assert!(!service.logs().contains("an earlier start used --redis-url"));
}

#[tokio::test]
async fn invalid_flags_are_rejected_before_a_port_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for flags in [
        ["--trusted-proxies", "bogus"],
        ["--redis-url", "http://localhost"],
        ["--geo-db", "/nowhere.mmdb"],
        ["--geo-update", "nothing"],
        ["--smtp-url", "smtp://mail.example"],
        ["--redirect-listen", "127.0.0.1:0"],
    ] {
        let log = expect_failure(start(&data, &flags)).await;
        assert!(!log.contains("listening"), "{flags:?}: {log}");
        assert!(!data.exists(), "{flags:?}: {log}");
    }
}

#[tokio::test]
async fn busy_port_at_the_first_start_creates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let port = ReservedPort::new();
    let (_listener, busy) = (port.listen(), port.addr().to_string());
    let names = ["--listen", "--dashboard-listen", "--quota-listen", "--admin-listen", "--redirect-listen"];
    for flag in names {
        let ports = names.map(|name| [name, if name == flag { &busy } else { "127.0.0.1:0" }]);
        let flags = [&ports.concat()[..], &["--data-dir", data.to_str().unwrap()]].concat();
        let urls = ["--base-url", "https://ip.example", "--public-url", "https://keys.example"];
        let log = expect_failure(Service::spawn("ip-lookup", &[&flags[..], &urls].concat(), &[])).await;
        assert!(log.contains(&format!("Error: {flag}: ")) && log.contains("another program uses"), "{log}");
        assert!(!data.exists(), "{flag}");
    }
    let mut service = start(&data, &[]);
    assert!(banner(&mut service).await.contains("First start."));
}

#[tokio::test]
async fn second_instance_on_same_directory_fails() {
    let data = tempfile::tempdir().unwrap();
    let mut first = start(data.path(), &[]);
    banner(&mut first).await;
    let log = expect_failure(start(data.path(), &[])).await;
    let already_runs =
        format!("Error: ip-lookup already runs with the data directory {}", data.path().display());
    assert!(log.contains(&already_runs) && log.contains("in use by another process"), "{log}");
    let busy = first.listen_addr("lookup").await.to_string();
    let ports = ["--dashboard-listen", "--quota-listen", "--admin-listen"].map(|name| [name, "127.0.0.1:0"]);
    let flags =
        [&ports.concat()[..], &["--data-dir", data.path().to_str().unwrap(), "--listen", &busy]].concat();
    let log = expect_failure(Service::spawn("ip-lookup", &flags, &[])).await;
    assert!(log.contains(&already_runs) && log.contains("another program uses this port"), "{log}");
}

#[tokio::test]
async fn damaged_empty_store_and_unwritable_directory_errors_differ() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("store.redb"), b"not a store file").unwrap();
    let log = expect_failure(start(data.path(), &[])).await;
    assert!(log.contains("damaged or not a store file"), "{log}");
    assert_eq!(
        std::fs::read(data.path().join("store.redb")).unwrap(),
        b"not a store file",
        "the file is not modified"
    );
    std::fs::write(data.path().join("store.redb"), b"").unwrap();
    let log = expect_failure(start(data.path(), &[])).await;
    assert!(log.contains("store.redb is empty: accounts and keys that it had are lost"), "{log}");
    let log = expect_failure(start(Path::new("/proc/nowhere"), &[])).await;
    assert!(log.contains("--data-dir"), "{log}");
}

/// Signs in through the dashboard's port, with the `Origin` that a browser at `public_url` sends. Returns the cookie.
async fn sign_in_cookie(service: &mut Service, banner: &str, public_url: &str) -> String {
    let value = |name: &str| banner.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap().trim();
    let body = serde_json::json!({"login": value("Login"), "password": value("Password")});
    let dashboard = service.listen_addr("dashboard").await;
    let request = http::client().post(format!("http://{dashboard}/api/v1/session")).json(&body);
    let response = request.header("origin", public_url).header("x-csrf-token", "1").send().await.unwrap();
    assert!(response.status().is_success(), "{} {}", response.status(), response.text().await.unwrap());
    response.headers()["set-cookie"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn public_urls_are_used_in_banner_links_and_cookies() {
    let data = tempfile::tempdir().unwrap();
    let urls = ["--base-url", "https://ip.example", "--public-url", "https://keys.example/"];
    let mut service = start(data.path(), &[&urls[..], &["--signup", "off"]].concat());
    let text = banner(&mut service).await;
    assert!(text.contains("API            https://ip.example/api/v1/ip\n"), "{text}");
    assert!(text.contains("Dashboard      https://keys.example\n"), "{text}");
    assert!(text.contains(" https://ip.example/api/v1/ip\n\nPress"), "{text}");
    let (api, dashboard) = (service.listen_addr("lookup").await, service.listen_addr("dashboard").await);
    let get = async |url: String| http::client().get(url).send().await.unwrap().text().await.unwrap();
    let error = get(format!("http://{api}/api/v1/ip")).await;
    assert!(error.contains("https://ip.example/docs#missing_api_key"), "{error}");
    let docs = get(format!("http://{api}/docs")).await;
    assert!(docs.contains("https://keys.example"), "{docs}");
    for text in [&error, &docs] {
        assert!(!text.contains("localhost"), "{text}");
    }
    let settings = get(format!("http://{dashboard}/api/v1/settings")).await;
    assert!(settings.contains("https://ip.example") && settings.contains(r#""signup":false"#), "{settings}");
    let cookie = sign_in_cookie(&mut service, &text, "https://keys.example").await;
    assert!(cookie.starts_with("__Host-") && cookie.contains("; Secure"), "{cookie}");
}

#[tokio::test]
async fn dashboard_without_public_url_accepts_loopback_names_only() {
    let data = tempfile::tempdir().unwrap();
    let mut service = start(data.path(), &[]);
    let dashboard = service.listen_addr("dashboard").await;
    banner(&mut service).await;
    let (http, url) = (http::client(), format!("http://{dashboard}/api/v1/settings"));
    let status = async |host: &str| {
        let request = http.get(&url).header("host", format!("{host}:{}", dashboard.port()));
        request.send().await.unwrap().status().as_u16()
    };
    for host in ["localhost", "127.0.0.1", "[::1]"] {
        assert_eq!(status(host).await, 200, "{host}");
    }
    for host in ["rebound.example", "192.0.2.1"] {
        assert_eq!(status(host).await, 421, "{host}");
    }
}

/// `cargo run` builds `ip-lookup` alone. A build of the whole workspace, as in all other tests, adds the Kubernetes client
/// to it.
#[test]
fn slow_default_build_is_clean_and_has_no_kubernetes_client() {
    let cargo = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.args(args).current_dir(project_root()).env_remove("RUSTC_WORKSPACE_WRAPPER");
        command.output().unwrap()
    };
    let tree = cargo(&["tree", "--locked", "--edges", "normal", "--prefix", "none"]);
    let tree = String::from_utf8(tree.stdout).unwrap();
    assert!(tree.contains("standalone v") && !tree.contains("kube"), "{tree}");
    let dir = project_root().join("target/tmp/default-build");
    let lints = cargo(&["clippy", "--locked", "--target-dir", dir.to_str().unwrap(), "--", "-D", "warnings"]);
    assert!(lints.status.success(), "{}", String::from_utf8_lossy(&lints.stderr));
}

#[tokio::test]
async fn https_serves_api_and_dashboard_with_facts_of_the_connection() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = TlsFiles::create(folder.path());
    let (cert, key) = (files.cert.to_str().unwrap(), files.key.to_str().unwrap());
    let mut service = start(data.path(), &["--tls-cert", cert, "--tls-key", key]);
    let text = banner(&mut service).await;
    let line = text.lines().map(str::trim).rfind(|line| line.starts_with("curl ")).unwrap();
    let ca = format!("CURL_CA_BUNDLE={}", files.ca.display());
    let body = run(&format!("{ca} {line} --http2 --tlsv1.3")).await;
    let facts = ["ip", "http_protocol", "tls_version", "tls_cipher"].map(|name| body[name].as_str().unwrap());
    assert_eq!(facts, ["127.0.0.1", "HTTP/2", "TLSv1.3", "TLS_AES_256_GCM_SHA384"], "{body}");
    assert!(body["rtt"].as_u64().is_some_and(|rtt| rtt < 500), "{body}");
    let old = run(&format!("{ca} {line} --http1.1 --tls-max 1.2")).await;
    assert_eq!((&old["http_protocol"], &old["tls_version"]), (&"HTTP/1.1".into(), &"TLSv1.2".into()));
    // Loopback is trusted, so this is a proxy, and the connection is not the client's.
    let forwarded = run(&format!("{ca} {line} -H 'X-Forwarded-For: 192.0.2.1'")).await;
    assert_eq!(forwarded["ip"], "192.0.2.1");
    for name in ["http_protocol", "tls_version", "tls_cipher", "rtt"] {
        assert!(forwarded[name].is_null(), "{name} is that of the proxy's connection: {forwarded}");
    }
    let dashboard = text.lines().find_map(|line| line.trim().strip_prefix("Dashboard")).unwrap().trim();
    assert!(dashboard.starts_with("https://localhost:"), "{text}");
    let document = run(&format!("{ca} curl -s {dashboard}/openapi.json")).await;
    assert!(document["openapi"].is_string(), "{document}");
    let admin = service.listen_addr("admin").await;
    let report = http::client().get(format!("http://{admin}/readyz")).send().await.unwrap();
    assert_eq!(report.status(), 200);
    let report = report.text().await.unwrap();
    assert!(report.contains(&format!(r#""tls":{{"ready":true,"detail":"{cert} expires in "#)), "{report}");
    let metrics = http::client().get(format!("http://{admin}/metrics")).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let expiry = metrics.lines().filter(|line| line.starts_with("tls_certificate_expiry_timestamp_seconds{"));
    assert_eq!(expiry.count(), 1, "{metrics}");
}

#[tokio::test]
async fn key_of_another_certificate_is_a_start_error() {
    let (data, folder, other) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (files, other) = (TlsFiles::create(folder.path()), TlsFiles::create(other.path()));
    let (cert, key) = (files.cert.to_str().unwrap(), other.key.to_str().unwrap());
    let log = expect_failure(start(data.path(), &["--tls-cert", cert, "--tls-key", key])).await;
    assert!(log.contains("do not belong together") && log.contains(cert), "{log}");
}
