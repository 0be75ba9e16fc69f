//! `--redirect-listen` of the three programs that have it: redirects from plain HTTP that lead to the service, and start
//! errors.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::redirect::Policy;
use serde_json::Value;
use testkit::http;
use testkit::ports::ReservedPort;
use testkit::process::Service;
use testkit::tls::TlsFiles;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
const ANY: &str = "127.0.0.1:0";

fn start_standalone(data: &Path, flags: &[&str]) -> Service {
    let data = data.to_str().unwrap();
    let ports = ["--listen", ANY, "--dashboard-listen", ANY, "--quota-listen", ANY, "--admin-listen", ANY];
    let redirect = ["--redirect-listen", ANY, "--log-level", "info", "--data-dir", data];
    Service::spawn("ip-lookup", &[&ports[..], &redirect, flags].concat(), &[])
}

fn session_key(dir: &Path) -> PathBuf {
    let key = dir.join("session.key");
    std::fs::write(&key, [7; 32]).unwrap();
    key
}

fn start_dashboard(key: &Path, flags: &[&str]) -> Service {
    let listen = ["--listen", ANY, "--admin-listen", ANY, "--redirect-listen", ANY];
    let key = ["--session-key-file", key.to_str().unwrap()];
    Service::spawn("dashboard-api", &[&listen[..], &key, flags].concat(), &[])
}

/// The `Location` of the response to a request for `host`, and its body.
async fn location(redirect: std::net::SocketAddr, host: &str) -> (String, Value) {
    let client = http::builder().redirect(Policy::none()).build().unwrap();
    let request = client.get(format!("http://{redirect}/api/v1/x?a=b")).header("host", host);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 308);
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    (location, response.json().await.unwrap())
}

async fn expect_failure(mut service: Service) -> String {
    let status = service.wait_exit(WAIT_TIMEOUT).await;
    assert!(!status.success(), "{status}: {}", service.logs());
    service.logs()
}

#[tokio::test]
async fn redirect_of_lookup_svc_leads_to_its_https_port() {
    let dir = tempfile::tempdir().unwrap();
    let (files, port) = (TlsFiles::create(dir.path()), ReservedPort::new());
    let (listen, base_url) = (port.addr().to_string(), format!("https://localhost:{}", port.number()));
    let tls = ["--tls-cert", files.cert.to_str().unwrap(), "--tls-key", files.key.to_str().unwrap()];
    let urls = ["--listen", &listen, "--base-url", &base_url, "--redirect-listen", ANY];
    let local = ["--admin-listen", ANY, "--quota-url", "http://127.0.0.1:1"];
    let mut service = Service::spawn("lookup-svc", &[&tls[..], &urls, &local].concat(), &[]);
    let redirect = service.listen_addr("redirect").await;
    service.listen_addr("admin").await;
    let ca = reqwest::Certificate::from_pem(&std::fs::read(&files.ca).unwrap()).unwrap();
    let client = http::builder().tls_certs_only([ca]).build().unwrap();
    let response = client.get(format!("http://{redirect}/api/v1/ip?scope=ip")).send().await.unwrap();
    assert_eq!(response.url().as_str(), format!("{base_url}/api/v1/ip?scope=ip"));
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["error"], "missing_api_key");
}

#[tokio::test]
async fn standalone_redirects_each_host_to_its_url() {
    let data = tempfile::tempdir().unwrap();
    let urls = ["--base-url", "https://ip.example/lookup", "--public-url", "https://keys.example:8443"];
    let hosts = ["--ipv4-host", "v4.ip.example", "--ipv6-host", "v6.ip.example"];
    let mut service = start_standalone(data.path(), &[urls, hosts].concat());
    let redirect = service.listen_addr("redirect").await;
    let path = "/api/v1/x?a=b";
    let docs = "https://ip.example/lookup/docs#https_required";
    for (host, want) in [
        ("ip.example", "https://ip.example/lookup"),
        ("evil.example", "https://ip.example/lookup"),
        ("keys.example", "https://keys.example:8443"),
        ("v4.ip.example", "https://v4.ip.example/lookup"),
        ("v6.ip.example", "https://v6.ip.example/lookup"),
    ] {
        let (location, body) = location(redirect, host).await;
        assert_eq!(location, format!("{want}{path}"));
        assert_eq!((&body["error"], &body["docs"]), (&"https_required".into(), &docs.into()));
    }
}

#[tokio::test]
async fn redirect_of_dashboard_leads_to_its_public_url() {
    let dir = tempfile::tempdir().unwrap();
    let key = session_key(dir.path());
    for (url, want) in [
        ("https://keys.example/", "https://keys.example/api/v1/x?a=b"),
        ("https://keys.example/dashboard", "https://keys.example/dashboard/api/v1/x?a=b"),
    ] {
        let mut service = start_dashboard(&key, &["--public-url", url]);
        let redirect = service.listen_addr("redirect").await;
        assert_eq!(location(redirect, "evil.example").await.0, want);
    }
}

#[tokio::test]
async fn redirect_of_dashboard_without_https_url_is_a_start_error() {
    let dir = tempfile::tempdir().unwrap();
    let key = session_key(dir.path());
    let log = expect_failure(start_dashboard(&key, &[])).await;
    assert!(log.contains("--redirect-listen redirects to --public-url: set it"), "{log}");
    let log = expect_failure(start_dashboard(&key, &["--public-url", "http://localhost:8081"])).await;
    assert!(
        log.contains("--redirect-listen requires an https:// URL in --public-url, not http://localhost:8081"),
        "{log}"
    );
}

/// The head of the response to a request behind a PROXY protocol header; empty if the connection is closed without one.
async fn send_raw(addr: std::net::SocketAddr, header: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let request = format!("{header}GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    // A reset is an end, too.
    let _ = tokio::time::timeout(WAIT_TIMEOUT, stream.read_to_end(&mut response)).await.unwrap();
    String::from_utf8(response).unwrap()
}

#[tokio::test]
async fn redirect_ports_require_the_proxy_protocol_header_if_the_other_ports_do() {
    let (data, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let key = session_key(dir.path());
    let proxied = ["--proxy-protocol", "--trusted-proxies", "127.0.0.1"];
    let (api, keys) = (["--base-url", "https://ip.example"], ["--public-url", "https://keys.example"]);
    let listen = ["--listen", ANY, "--admin-listen", ANY, "--redirect-listen", ANY];
    let quota = ["--quota-url", "http://127.0.0.1:1"];
    for (mut service, want) in [
        (
            Service::spawn("lookup-svc", &[&listen[..], &quota, &proxied, &api].concat(), &[]),
            "https://ip.example/x",
        ),
        (start_dashboard(&key, &[&proxied[..], &keys].concat()), "https://keys.example/x"),
        (start_standalone(data.path(), &[&proxied[..], &api, &keys].concat()), "https://ip.example/x"),
    ] {
        let redirect = service.listen_addr("redirect").await;
        // Requests are handled only once all ports are open.
        service.listen_addr("admin").await;
        let response = send_raw(redirect, "PROXY TCP4 192.0.2.1 192.0.2.2 50000 80\r\n").await;
        assert!(response.contains(&format!("\r\nlocation: {want}\r\n")), "{response}");
        assert_eq!(send_raw(redirect, "").await, "");
    }
}

#[tokio::test]
async fn redirect_to_plain_http_is_a_start_error() {
    let data = tempfile::tempdir().unwrap();
    for (flags, flag) in [(&[][..], "--base-url"), (&["--base-url", "https://ip.example"], "--public-url")] {
        let log = expect_failure(start_standalone(data.path(), flags)).await;
        let want = format!("--redirect-listen requires an https:// URL in {flag}, not http://localhost:");
        assert!(log.contains(&want), "{log}");
    }
    // The failed starts created no account: its password would never have been shown.
    let flags = ["--base-url", "https://ip.example", "--public-url", "https://keys.example"];
    let mut service = start_standalone(data.path(), &flags);
    service.listen_addr("admin").await;
    testkit::wait::eventually_ok(WAIT_TIMEOUT, "banner", async || {
        let text = service.stdout();
        if text.contains("First start.") { Ok(()) } else { Err(text) }
    })
    .await;
    let quota = "http://127.0.0.1:1";
    let args = ["--listen", ANY, "--admin-listen", ANY, "--redirect-listen", ANY, "--quota-url", quota];
    let log = expect_failure(Service::spawn("lookup-svc", &args, &[])).await;
    assert!(log.contains("requires an https:// URL in --base-url, not http://localhost:8080"), "{log}");
}
