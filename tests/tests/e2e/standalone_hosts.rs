//! `--api-host` and `--dashboard-host` of `ip-lookup`: the API and the dashboard on one port or two.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::redirect::Policy;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::http;
use testkit::process::{Service, binary};
use testkit::tls::TlsFiles;
use testkit::wait::eventually_ok;
use tokio::process::Command;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
const API: &str = "ip.example";
const DASHBOARD: &str = "keys.example";
const IPV4: &str = "ipv4.ip.example";
const ANY: &str = "127.0.0.1:0";

/// The directory of a service, with a certificate for its host names.
struct Machine {
    folder: TempDir,
    files: TlsFiles,
}

/// A response as curl shows it.
#[derive(Debug)]
struct Response {
    status: u16,
    headers: String,
    body: String,
}

impl Response {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles::create_for(folder.path(), &[API, DASHBOARD, IPV4, "localhost", "127.0.0.1"]);
        Self { folder, files }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Starts the service on free ports. Without `--dashboard-listen` in `flags`, it has one port for both hosts.
    fn start(&self, flags: &[&str]) -> Service {
        let hosts = ["--api-host", API, "--dashboard-host", DASHBOARD];
        let ports = ["--listen", ANY, "--redirect-listen", ANY, "--quota-listen", ANY, "--admin-listen", ANY];
        let tls = ["--tls-cert", self.files.cert.to_str().unwrap()];
        let key = ["--tls-key", self.files.key.to_str().unwrap()];
        let data = self.data();
        let data = ["--data-dir", data.to_str().unwrap(), "--log-level", "info"];
        Service::spawn("ip-lookup", &[&hosts[..], &ports, &tls, &key, &data, flags].concat(), &[])
    }

    /// Sends a request to `https://HOST:PORT/PATH` with curl, connecting to `addr`.
    async fn curl(&self, addr: SocketAddr, host: &str, path: &str, flags: &[&str]) -> Response {
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "10", "-i", "--cacert"])
            .arg(&self.files.ca)
            .args(["--connect-to", &format!("::{addr}")])
            .args(flags)
            .arg(format!("https://{host}:{}{path}", addr.port()))
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{host}{path}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, headers: head.to_lowercase(), body: body.to_owned() }
    }

    /// Signs in as a browser on the dashboard's page does: with its `Origin` and the CSRF header.
    async fn sign_in(&self, addr: SocketAddr, login: &str, password: &str) -> Response {
        let origin = format!("Origin: https://{DASHBOARD}:{}", addr.port());
        let body = json!({"login": login, "password": password}).to_string();
        let flags = ["-H", &origin, "-H", "X-CSRF-Token: 1", "-H", "Content-Type: application/json"];
        self.curl(addr, DASHBOARD, "/api/v1/session", &[&flags[..], &["-d", &body]].concat()).await
    }
}

async fn banner(service: &Service) -> String {
    eventually_ok(WAIT_TIMEOUT, "banner is printed", async || {
        let text = service.stdout();
        if text.contains("Press Ctrl-C to stop") { Ok(text) } else { Err(service.logs()) }
    })
    .await
}

/// The value that follows `name` in a line of the banner.
fn value<'a>(banner: &'a str, name: &str) -> &'a str {
    banner.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap().trim()
}

async fn expect_failure(mut service: Service) -> String {
    let status = service.wait_exit(WAIT_TIMEOUT).await;
    assert!(!status.success(), "{status}: {}", service.logs());
    service.logs()
}

#[tokio::test]
async fn both_hosts_on_one_port_have_https_urls_hsts_and_secure_cookies() {
    let machine = Machine::new();
    let mut service = machine.start(&[]);
    let addr = service.listen_addr("lookup").await;
    let text = banner(&service).await;
    let (api, dashboard) =
        (format!("https://{API}:{}", addr.port()), format!("https://{DASHBOARD}:{}", addr.port()));
    assert_eq!(value(&text, "API "), format!("{api}/api/v1/ip"));
    assert_eq!(value(&text, "Dashboard"), dashboard);
    assert!(!text.contains("X-Forwarded-For"), "{text}");

    let key = format!("Authorization: Bearer {}", value(&text, "API key"));
    let lookup = machine.curl(addr, API, "/api/v1/ip", &["-H", &key]).await;
    assert_eq!(lookup.status, 200, "{lookup:?}");
    let body = lookup.json();
    assert_eq!((&body["http_protocol"], &body["tls_version"]), (&"HTTP/2".into(), &"TLSv1.3".into()));
    let docs = machine.curl(addr, API, "/docs", &[]).await;
    assert!(docs.body.contains(&dashboard) && !docs.body.contains("localhost"), "{docs:?}");
    let page = machine.curl(addr, DASHBOARD, "/", &[]).await;
    assert_eq!(page.status, 200, "{page:?}");
    let settings = machine.curl(addr, DASHBOARD, "/api/v1/settings", &[]).await;
    assert!(settings.body.contains(&api) && !settings.body.contains("localhost"), "{settings:?}");
    for response in [&lookup, &docs, &page, &settings] {
        assert!(response.headers.contains("strict-transport-security: max-age=31536000"), "{response:?}");
    }
    let signed_in = machine.sign_in(addr, value(&text, "Login"), value(&text, "Password")).await;
    assert_eq!(signed_in.status, 200, "{signed_in:?}");
    assert!(signed_in.headers.contains("set-cookie: __host-"), "{signed_in:?}");
    for cookie in signed_in.headers.lines().filter(|line| line.starts_with("set-cookie:")) {
        assert!(cookie.contains("; secure"), "{cookie}");
    }

    // Each host serves only its own service.
    assert_eq!(machine.curl(addr, DASHBOARD, "/api/v1/ip", &["-H", &key]).await.status, 404);
    assert_eq!(machine.curl(addr, API, "/api/v1/settings", &[]).await.status, 404);

    let redirect = service.listen_addr("redirect").await;
    let client = http::builder().redirect(Policy::none()).build().unwrap();
    for (host, want) in [(API, &api), (DASHBOARD, &dashboard), ("evil.example", &api)] {
        let request = client.get(format!("http://{redirect}/docs?a=b")).header("host", host);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 308);
        assert_eq!(response.headers()["location"].to_str().unwrap(), format!("{want}/docs?a=b"));
    }
}

#[tokio::test]
async fn unknown_host_and_sni_of_another_host_get_421() {
    let machine = Machine::new();
    let mut service = machine.start(&["--ipv4-host", IPV4]);
    let addr = service.listen_addr("lookup").await;
    banner(&service).await;
    // The URL's host is sent as SNI, unless it is an address; the header replaces Host and :authority.
    for (sni, host, want) in [
        (API, API, 200),
        (API, "IP.example.:443", 200),
        ("127.0.0.1", API, 200),
        ("127.0.0.1", DASHBOARD, 200),
        ("localhost", DASHBOARD, 200),
        (API, DASHBOARD, 421),
        (DASHBOARD, API, 421),
        (IPV4, IPV4, 200),
        (IPV4, API, 421),
        (API, IPV4, 421),
        (API, "evil.example", 421),
        (API, "ip.example.evil.example", 421),
        ("localhost", "localhost", 421),
        ("127.0.0.1", "127.0.0.1", 421),
    ] {
        for version in ["--http1.1", "--http2"] {
            let header = format!("Host: {host}");
            let response = machine.curl(addr, sni, "/openapi.json", &[version, "-H", &header]).await;
            assert_eq!(response.status, want, "{sni} {host} {version}: {response:?}");
            if want == 421 {
                let docs = format!("https://{API}:{}/docs#wrong_host", addr.port());
                let body = response.json();
                assert_eq!((&body["error"], &body["docs"]), (&"wrong_host".into(), &docs.into()));
                for header in [
                    "cache-control: no-store",
                    "access-control-allow-origin: *",
                    "strict-transport-security: ",
                ] {
                    assert!(response.headers.contains(header), "{header}: {response:?}");
                }
            } else {
                let is_api = response.body.contains("/api/v1/ip/demo");
                assert_eq!(is_api, host != DASHBOARD, "{sni} {host}: the other service's document");
            }
        }
    }
    let admin = service.listen_addr("admin").await;
    let metrics = http::client().get(format!("http://{admin}/metrics")).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    assert!(metrics.contains(r#"operation="wrong_host""#), "{metrics}");
}

#[tokio::test]
async fn dashboard_with_its_own_port_is_served_only_there() {
    let machine = Machine::new();
    let mut service = machine.start(&["--dashboard-listen", ANY]);
    let (api, dashboard) = (service.listen_addr("lookup").await, service.listen_addr("dashboard").await);
    let text = banner(&service).await;
    assert_eq!(value(&text, "Dashboard"), format!("https://{DASHBOARD}:{}", dashboard.port()));
    for (addr, host, want) in
        [(api, API, 200), (dashboard, DASHBOARD, 200), (api, DASHBOARD, 421), (dashboard, API, 421)]
    {
        assert_eq!(machine.curl(addr, host, "/openapi.json", &[]).await.status, want, "{addr} {host}");
    }
    for (addr, sni, host) in [(api, DASHBOARD, API), (dashboard, API, DASHBOARD)] {
        let header = format!("Host: {host}");
        assert_eq!(
            machine.curl(addr, sni, "/openapi.json", &["-H", &header]).await.status,
            421,
            "{sni} {host}"
        );
    }
    let signed_in = machine.sign_in(dashboard, value(&text, "Login"), value(&text, "Password")).await;
    assert_eq!(signed_in.status, 200, "{signed_in:?}");
}

#[tokio::test]
async fn dashboard_without_a_host_is_served_as_http_localhost() {
    let machine = Machine::new();
    let data = machine.data();
    let (cert, key) = (machine.files.cert.to_str().unwrap(), machine.files.key.to_str().unwrap());
    let flags = format!(
        "--api-host {API} --listen {ANY} --dashboard-listen {ANY} --quota-listen {ANY} --admin-listen {ANY} \
         --redirect-listen {ANY} --log-level info --tls-cert {cert} --tls-key {key} --data-dir {}",
        data.display()
    );
    let mut service = Service::spawn("ip-lookup", &flags.split(' ').collect::<Vec<_>>(), &[]);
    let (api, dashboard) = (service.listen_addr("lookup").await, service.listen_addr("dashboard").await);
    let text = banner(&service).await;
    assert_eq!(value(&text, "Dashboard"), format!("http://localhost:{}", dashboard.port()));
    assert_eq!(http::client().get(format!("http://{dashboard}/")).send().await.unwrap().status(), 200);
    assert_eq!(machine.curl(api, API, "/docs", &[]).await.status, 200);
    assert_eq!(machine.curl(api, "localhost", "/docs", &[]).await.status, 421);
}

#[tokio::test]
async fn api_host_without_a_certificate_fails_start_and_creates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let flags = ["--data-dir", data.to_str().unwrap(), "--api-host", API];
    let log = expect_failure(Service::spawn("ip-lookup", &flags, &[])).await;
    assert!(log.contains("--api-host ip.example needs a certificate: set --tls-cert"), "{log}");
    assert!(!data.exists());
}

#[tokio::test]
async fn first_start_without_printed_credentials_prints_reset_password_command() {
    let machine = Machine::new();
    let mut service = machine.start(&["--print-credentials", "off"]);
    let addr = service.listen_addr("lookup").await;
    let text = banner(&service).await;
    assert!(!text.contains("ipl_") && !text.contains("Password "), "{text}");
    let line = text.lines().map(str::trim).find(|line| line.contains("-password ")).unwrap();
    let (program, arguments) = line.split_once(' ').unwrap();
    let line = format!("{} {arguments}", binary(program).display());
    let output = Command::new("sh").args(["-c", &line]).output().await.unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    let output = String::from_utf8(output.stdout).unwrap();
    let password = output.lines().find_map(|line| line.strip_prefix("    ")).unwrap();
    assert_eq!(machine.sign_in(addr, "admin", "").await.status, 401);
    let signed_in = machine.sign_in(addr, "admin", password).await;
    assert_eq!(signed_in.status, 200, "{signed_in:?}");
    service.term();
    assert!(service.wait_exit(WAIT_TIMEOUT).await.success(), "{}", service.logs());
    let again = machine.start(&["--print-credentials", "off"]);
    assert!(!banner(&again).await.contains("First start"));
}
