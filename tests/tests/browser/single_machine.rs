//! One machine, one command: a complete public service on the ports 80 and 443, with certificates from Pebble, in a network
//! namespace with its own addresses and host names.
//!
//! The CA, the service, curl and the browser are all in there.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use reqwest::tls::TlsInfo;
use serde_json::{Value as Json, json};
use testkit::http;
use testkit::mmdb::{Builder, Value};
use testkit::namespace::Namespace;
use testkit::pebble::Pebble;
use testkit::process::Service;
use testkit::tools::require_tool;
use testkit::wait::eventually_ok;
use tokio::process::Command;

use crate::browser::Browser;

const TEST: &str = "single_machine::as_root_one_command_is_a_complete_public_service";

/// The command of docs/tls.md.
const COMMAND: &str =
    "--api-host ip.example.org --dashboard-host keys.example.org --acme-email you@example.org";

/// The addresses of the server and of its client, from public ranges, so that they are looked up. Nothing leaves the
/// namespace.
const SERVER: [&str; 2] = ["81.2.68.1", "2a02:c0df::1"];
const CLIENT: [&str; 2] = ["81.2.69.142", "2a02:c0de::142"];
/// The client's networks in the test databases.
const CLIENT_NETWORKS: [&str; 2] = ["81.2.69.0/24", "2a02:c0de::/32"];

/// An order takes a second.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Writes databases with all fields of the client's networks, as MaxMind distributes them.
fn write_databases(geo: &Path) {
    let names = |name: &str| ("names", Value::map([("en", Value::from(name))]));
    let coded = |code: &str, name: &str| Value::map([("iso_code", Value::from(code)), names(name)]);
    let location = Value::map([
        ("latitude", Value::F64(52.5)),
        ("longitude", Value::F64(13.4)),
        ("time_zone", Value::from("Europe/Berlin")),
    ]);
    let city = Value::map([
        ("city", Value::map([names("Berlin")])),
        ("continent", Value::map([("code", Value::from("EU"))])),
        ("country", coded("DE", "Germany")),
        ("location", location),
        ("postal", Value::map([("code", Value::from("10115"))])),
        ("subdivisions", Value::Array(vec![coded("BE", "State of Berlin")])),
    ]);
    let network = Value::map([
        ("autonomous_system_number", Value::U32(64_496)),
        ("autonomous_system_organization", Value::from("Example Network")),
    ]);
    let flags = ["is_anonymous", "is_anonymous_vpn", "is_hosting_provider"];
    let anonymizer = Value::map(flags.map(|flag| (flag, Value::Bool(true))));
    fs::create_dir_all(geo).unwrap();
    for (kind, record) in
        [("GeoLite2-City", city), ("GeoLite2-ASN", network), ("GeoIP2-Anonymous-IP", anonymizer)]
    {
        let database =
            CLIENT_NETWORKS.iter().fold(Builder::new(kind), |builder, net| builder.add(net, &record));
        fs::write(geo.join(format!("{kind}.mmdb")), database.finish()).unwrap();
    }
}

/// The response to a client with this address, without the fields that depend on time and the TLS library.
fn expected_response(address: &str) -> Json {
    let (ip, ipv6) = if address.contains(':') { (None, Some(address)) } else { (Some(address), None) };
    json!({
        "status": "success", "ip": ip, "ipv6": ipv6,
        "city": "Berlin", "region": "State of Berlin", "region_code": "DE-BE", "postal_code": "10115",
        "country": "DE", "country_name": "Germany", "continent": "EU", "is_eu": true, "currency": "EUR",
        "latitude": 52.5, "longitude": 13.4, "timezone": "Europe/Berlin",
        "asn": 64_496, "org": "Example Network", "as": "AS64496 Example Network",
        "proxy": true, "hosting": true,
        "http_protocol": "HTTP/2", "tls_version": "TLSv1.3", "colo": "BER",
    })
}

/// A response as curl shows it.
#[derive(Debug)]
struct Response {
    status: u16,
    headers: String,
    body: String,
}

/// The server, in the namespace.
struct Machine {
    folder: PathBuf,
    pebble: Pebble,
    root: String,
}

impl Machine {
    async fn new(folder: PathBuf) -> Self {
        write_databases(&folder.join("data/geo"));
        let pebble = Pebble::start(443, &[]).await;
        for host in ["ip.example.org", "keys.example.org"] {
            pebble.set_address(host, SERVER[0].parse().unwrap()).await;
        }
        let root = pebble.root().await;
        fs::write(folder.join("root.pem"), &root).unwrap();
        Self { folder, pebble, root }
    }

    /// Starts the documented command with the test's CA and data directory, and waits for its banner.
    async fn start(&self) -> (Service, String) {
        let (data, ca, directory) =
            (self.folder.join("data"), self.pebble.ca_file(), self.pebble.directory());
        let (data, ca) = (data.display(), ca.display());
        let flags = format!(
            "{COMMAND} --acme-directory {directory} --acme-ca-file {ca} --data-dir {data} --colo BER \
             --log-level info"
        );
        let service = Service::spawn("ip-lookup", &flags.split(' ').collect::<Vec<_>>(), &[]);
        let banner = eventually_ok(WAIT_TIMEOUT, "banner is printed", async || {
            let text = service.stdout();
            if text.contains("Press Ctrl-C to stop") { Ok(text) } else { Err(service.logs()) }
        })
        .await;
        (service, banner)
    }

    /// Waits until the service has a valid certificate for both hosts, and returns it.
    async fn wait_certificate(&self, service: &Service) -> Vec<u8> {
        let root = reqwest::Certificate::from_pem(self.root.as_bytes()).unwrap();
        let client = http::builder().tls_certs_only([root]).tls_info(true).build().unwrap();
        let certificate = async |host: &str| {
            let response = client.get(format!("https://{host}/openapi.json")).send().await;
            let response = response.map_err(|error| format!("{error:?}\n{}", service.logs()))?;
            assert_eq!(response.status(), 200, "{host}");
            let info = response.extensions().get::<TlsInfo>().unwrap();
            Ok::<_, String>(info.peer_certificate().unwrap().to_owned())
        };
        let api = eventually_ok(WAIT_TIMEOUT, "a valid certificate is served", async || {
            certificate("ip.example.org").await
        })
        .await;
        assert_eq!(certificate("keys.example.org").await.as_ref(), Ok(&api), "one certificate for both");
        api
    }

    async fn curl(&self, url: &str, flags: &[&str]) -> Response {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "10", "-i", "--cacert"]).arg(self.folder.join("root.pem"));
        let output = curl.args(flags).arg(url).stdin(Stdio::null()).output().await.unwrap();
        assert!(output.status.success(), "{url}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, headers: head.to_lowercase(), body: body.to_owned() }
    }

    /// Checks all fields of a lookup by a client with an IPv4 address, and by one with an IPv6 address.
    async fn check_lookups(&self, key: &str) {
        let header = format!("Authorization: Bearer {key}");
        for (version, address) in ["-4", "-6"].into_iter().zip(CLIENT) {
            let flags = [version, "--interface", address, "-H", &header];
            let response = self.curl("https://ip.example.org/api/v1/ip", &flags).await;
            assert_eq!(response.status, 200, "{response:?}");
            let mut body: Json = serde_json::from_str(&response.body).unwrap();
            let fields = body.as_object_mut().unwrap();
            assert_eq!(fields.len(), 26, "{response:?}");
            let [cipher, rtt, offset] =
                ["tls_cipher", "rtt", "timezone_offset"].map(|name| fields.remove(name).unwrap());
            assert!(cipher.as_str().unwrap().starts_with("TLS_"), "{response:?}");
            assert!(rtt.is_number(), "{response:?}");
            assert!([3600, 7200].contains(&offset.as_i64().unwrap()), "winter or summer: {response:?}");
            assert_eq!(body, expected_response(address));
        }
    }

    async fn check_redirects_and_wrong_hosts(&self) {
        for page in ["ip.example.org/docs?a=b", "keys.example.org/"] {
            let response = self.curl(&format!("http://{page}"), &[]).await;
            assert_eq!(response.status, 308, "{response:?}");
            let location = format!("location: https://{page}");
            assert!(response.headers.lines().any(|line| line == location), "{response:?}");
        }
        for host in ["evil.example.org", "keys.example.org"] {
            let header = format!("Host: {host}");
            let response = self.curl("https://ip.example.org/openapi.json", &["-H", &header]).await;
            assert_eq!(response.status, 421, "{response:?}");
            let body: Json = serde_json::from_str(&response.body).unwrap();
            assert_eq!(body["error"], "wrong_host", "{response:?}");
        }
    }
}

/// The value that follows `name` in a line of the banner.
fn value<'a>(banner: &'a str, name: &str) -> &'a str {
    banner.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap().trim()
}

/// Signs in with a browser, which accepts any certificate: curl has verified it.
async fn sign_in(banner: &str) {
    let browser = Browser::start().await.unwrap();
    browser.goto(value(banner, "Dashboard")).await;
    browser.wait_for_text("h1", "Sign in").await;
    browser.fill("#login", value(banner, "Login")).await;
    browser.fill("#password", value(banner, "Password")).await;
    browser.press(".sign-in", "Sign in").await;
    browser.wait_for_text("h1", "API keys").await;
    browser.find("li.row").await;
    assert_eq!(browser.eval("location.origin").await, "https://keys.example.org");
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

#[tokio::test]
async fn as_root_one_command_is_a_complete_public_service() {
    if !["curl", "pebble", "chromium", "chromedriver"].into_iter().all(require_tool) {
        return;
    }
    let names = SERVER.map(|address| format!("{address} ip.example.org keys.example.org\n")).concat();
    let hosts = format!("127.0.0.1 localhost\n::1 localhost\n{names}");
    let namespace = Namespace::enter(TEST, &[SERVER, CLIENT].concat(), &[("hosts", &hosts)]);
    let Some(namespace) = namespace else { return };
    let machine = Machine::new(namespace.folder.clone()).await;
    let (mut service, banner) = machine.start().await;
    let certificate = machine.wait_certificate(&service).await;
    let key = value(&banner, "API key");
    machine.check_lookups(key).await;
    machine.check_redirects_and_wrong_hosts().await;
    sign_in(&banner).await;
    service.term();
    assert!(service.wait_exit(WAIT_TIMEOUT).await.success(), "{}", service.logs());

    let (service, banner) = machine.start().await;
    assert!(!banner.contains("First start"), "{banner}");
    eventually_ok(WAIT_TIMEOUT, "the stored certificate is used", async || {
        let log = service.logs();
        if log.contains("the certificate is valid") { Ok(()) } else { Err(log) }
    })
    .await;
    assert_eq!(machine.wait_certificate(&service).await, certificate);
    assert!(!service.logs().contains("ordering a certificate"), "{}", service.logs());
    assert_eq!(machine.pebble.orders(), 1);
    machine.check_lookups(key).await;
    namespace.finish();
}
