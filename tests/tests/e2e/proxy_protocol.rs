//! PROXY protocol from real HAProxy: the client's address and TLS facts arrive, with and without TLS of the service, and
//! the same bytes from anybody else close the connection.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use e2e::edge_proxy::{CLIENT, FORGED_HEADERS, system_tool};
use quota_client::wire::Scope;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::lookup::{Stack, WAIT_TIMEOUT};
use testkit::ports::ReservedPort;
use testkit::process::Service;
use testkit::spawner::ChildGuard;
use testkit::tls::TlsFiles;
use testkit::tools::require_tool;
use testkit::wait::{eventually, eventually_ok};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};

const PROXY_PROTOCOL: &str = "--proxy-protocol";
/// HAProxy and the tests' load balancer, on this machine.
const BALANCER: &str = "127.0.0.1";
const UNTRUSTED: &str = "127.0.0.2";

/// A way to forward connections: the options of a `bind` and of a `server` line of HAProxy.
#[derive(Clone, Copy)]
struct Route {
    name: &'static str,
    bind: &'static str,
    server: &'static str,
}

const V1: Route = Route { name: "v1", bind: "", server: "send-proxy" };
const V2: Route = Route { name: "v2", bind: "", server: "send-proxy-v2" };
const V2_CHECKSUM: Route =
    Route { name: "v2-checksum", bind: "", server: "send-proxy-v2 proxy-v2-options crc32c,unique-id" };
/// `TLS` stands for the options of a port with TLS.
const V2_TLS: Route =
    Route { name: "v2-tls", bind: "TLS", server: "send-proxy-v2 proxy-v2-options ssl,ssl-cipher" };
/// HAProxy sends the TLV `SSL`, but forwards the client's TLS.
const V2_FORWARDED_TLS: Route =
    Route { name: "v2-forwarded-tls", bind: "", server: "send-proxy-v2 proxy-v2-options ssl,ssl-cipher" };
const V2_NEW_TLS: Route = Route {
    name: "v2-new-tls",
    bind: "TLS",
    server: "ssl verify none send-proxy-v2 proxy-v2-options ssl,ssl-cipher",
};

/// HAProxy in TCP mode, with one port per route; killed when dropped.
struct Haproxy {
    _process: ChildGuard,
    ports: Vec<(&'static str, ReservedPort)>,
    files: TlsFiles,
    dir: TempDir,
}

impl Haproxy {
    /// Starts it in front of `upstream`. `None` if it is not installed. `checks` are the health checks' options.
    async fn start(upstream: SocketAddr, routes: &[Route], checks: &str) -> Option<Self> {
        let program = system_tool("haproxy")?;
        let dir = tempfile::tempdir().unwrap();
        let files = TlsFiles::create(dir.path());
        let pem = dir.path().join("server.pem");
        let texts = [&files.cert, &files.key].map(|file| std::fs::read_to_string(file).unwrap());
        std::fs::write(&pem, texts.concat()).unwrap();
        let tls = format!("ssl crt {} alpn h2,http/1.1", pem.display());
        let mut config = format!(
            "global\n    stats socket {}\ndefaults\n    mode tcp\n    timeout connect 5s\n    timeout client 30s\n    \
             timeout server 30s\n    option httpchk\n    http-check send meth GET uri /docs ver HTTP/1.1 hdr Host localhost\n    \
             http-check expect status 200\n",
            dir.path().join("stats").display()
        );
        let mut ports = Vec::new();
        for Route { name, bind, server } in routes {
            let port = ReservedPort::new();
            let bind = bind.replace("TLS", &tls);
            let _ = write!(
                config,
                "listen {name}\n    bind {} {bind}\n    unique-id-format %rt\n    server lookup {upstream} {server} {checks}\n",
                port.addr()
            );
            ports.push((*name, port));
        }
        let file = dir.path().join("haproxy.cfg");
        std::fs::write(&file, &config).unwrap();
        let output = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut process = ChildGuard::spawn(program.to_str().unwrap(), |command| {
            command.arg("-db").arg("-f").arg(&file).stdin(Stdio::null());
            command.stdout(output.try_clone().unwrap()).stderr(output);
        });
        for (_, port) in &ports {
            eventually_ok(WAIT_TIMEOUT, "HAProxy listens", async || {
                let log = || std::fs::read_to_string(dir.path().join("log")).unwrap();
                assert!(process.is_running(), "HAProxy exited: {}\n{config}", log());
                TcpStream::connect(port.addr()).await.map(drop).map_err(|error| format!("{error}: {}", log()))
            })
            .await;
        }
        Some(Self { _process: process, ports, files, dir })
    }

    fn port(&self, route: Route) -> u16 {
        let (_, port) = self.ports.iter().find(|(name, _)| *name == route.name).unwrap();
        port.number()
    }

    /// The state of each server as CSV. Fails until HAProxy listens on the stats socket, which it does only after it has
    /// opened its ports.
    async fn show_stat(&self) -> std::io::Result<String> {
        let mut socket = UnixStream::connect(self.dir.path().join("stats")).await?;
        socket.write_all(b"show stat\n").await?;
        let mut table = String::new();
        socket.read_to_string(&mut table).await?;
        Ok(table)
    }

    /// Sends `GET /api/v1/ip` with forged headers through a route, with curl from [`CLIENT`]. Returns the body.
    fn get_ip(&self, route: Route, scheme: &str, ca: &Path, key: &str, flags: &[&str]) -> Value {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--fail-with-body", "--noproxy", "*", "--max-time", "20", "--interface", CLIENT]);
        curl.args(["-H", &format!("Authorization: Bearer {key}"), "--cacert"]).arg(ca).args(flags);
        curl.args(FORGED_HEADERS.iter().flat_map(|header| ["-H", header]));
        let output =
            curl.arg(format!("{scheme}://127.0.0.1:{}/api/v1/ip", self.port(route))).output().unwrap();
        let body = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{} {flags:?}: {body} {}",
            route.name,
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_str(&body).unwrap()
    }
}

/// Checks a client's address and connection facts. Behind a load balancer the round-trip time is unknown.
fn check(body: &Value, ip: &str, protocol: &str, tls: Option<(&str, &str)>) {
    let facts = ["ip", "http_protocol", "tls_version", "tls_cipher", "rtt"].map(|name| body[name].clone());
    let (version, cipher) = tls.unzip();
    assert_eq!(facts, [json!(ip), json!(protocol), json!(version), json!(cipher), Value::Null], "{body}");
}

fn tools_available() -> bool {
    require_tool("curl") && system_tool("haproxy").is_some()
}

async fn stack(flags: &[&str]) -> (Stack, String) {
    let stack = Stack::start(&["--burst-limit", "10000"], &[&[PROXY_PROTOCOL], flags].concat()).await;
    let key = stack.key_with_scope(Scope::Full).await.secret;
    (stack, key)
}

#[tokio::test]
async fn haproxy_names_the_client_and_its_tls_session() {
    if !tools_available() {
        return;
    }
    let (stack, key) = stack(&[]).await;
    let routes = [V1, V2, V2_CHECKSUM, V2_TLS];
    let haproxy = Haproxy::start(stack.lookup.addr(), &routes, "").await.unwrap();
    let ca = &haproxy.files.ca;
    for route in [V1, V2, V2_CHECKSUM] {
        check(&haproxy.get_ip(route, "http", ca, &key, &[]), CLIENT, "HTTP/1.1", None);
        let http2 = ["--http2-prior-knowledge"];
        check(&haproxy.get_ip(route, "http", ca, &key, &http2), CLIENT, "HTTP/2", None);
    }
    for (flags, protocol, version, cipher) in [
        (
            "--http2 --tlsv1.3 --tls13-ciphers TLS_AES_128_GCM_SHA256",
            "HTTP/2",
            "TLSv1.3",
            "TLS_AES_128_GCM_SHA256",
        ),
        ("--http1.1 --tlsv1.3", "HTTP/1.1", "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
        (
            "--http2 --tls-max 1.2 --ciphers ECDHE-ECDSA-AES128-GCM-SHA256",
            "HTTP/2",
            "TLSv1.2",
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        ),
    ] {
        let flags: Vec<_> = flags.split(' ').collect();
        let body = haproxy.get_ip(V2_TLS, "https", ca, &key, &flags);
        check(&body, CLIENT, protocol, Some((version, cipher)));
    }
}

#[tokio::test]
async fn header_precedes_tls_of_the_service() {
    if !tools_available() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let files = TlsFiles::create(dir.path());
    let (cert, tls_key) = (files.cert.to_str().unwrap(), files.key.to_str().unwrap());
    let (stack, key) = stack(&["--tls-cert", cert, "--tls-key", tls_key]).await;
    let routes = [V1, V2, V2_FORWARDED_TLS, V2_NEW_TLS];
    let haproxy = Haproxy::start(stack.lookup.addr(), &routes, "").await.unwrap();
    for route in [V1, V2, V2_FORWARDED_TLS] {
        let body = haproxy.get_ip(route, "https", &files.ca, &key, &["--http2", "--tlsv1.3"]);
        check(&body, CLIENT, "HTTP/2", Some(("TLSv1.3", "TLS_AES_256_GCM_SHA384")));
    }
    // HAProxy ends the client's TLS 1.2 and uses TLS 1.3 to the service. The client's is the one that counts.
    let flags = ["--http1.1", "--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384"];
    let body = haproxy.get_ip(V2_NEW_TLS, "https", &haproxy.files.ca, &key, &flags);
    check(&body, CLIENT, "HTTP/1.1", Some(("TLSv1.2", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")));
}

#[tokio::test]
async fn health_checks_of_haproxy_succeed() {
    if !tools_available() {
        return;
    }
    let (stack, _) = stack(&[]).await;
    let checks = "check check-send-proxy inter 100ms";
    let haproxy = Haproxy::start(stack.lookup.addr(), &[V1, V2], checks).await.unwrap();
    for route in [V1, V2] {
        // The field `check_status` of the server's line is L7OK after a check that got the status 200.
        eventually_ok(WAIT_TIMEOUT, "HAProxy's health check succeeds", async || {
            let table = haproxy.show_stat().await.map_err(|error| format!("show stat: {error}"))?;
            let line =
                table.lines().find(|line| line.starts_with(&format!("{},lookup,", route.name))).unwrap();
            if line.contains(",L7OK,200,") { Ok(()) } else { Err(line.to_owned()) }
        })
        .await;
    }
}

/// Connects from an address of this machine and sends bytes. Returns what the server sends until it closes.
async fn exchange(source: &str, addr: SocketAddr, bytes: &[u8]) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((source.parse::<IpAddr>().unwrap(), 0).into()).unwrap();
    let mut stream = socket.connect(addr).await.unwrap();
    let mut response = Vec::new();
    let exchange = async {
        // Both fail if the server has already closed the connection.
        let _ = stream.write_all(bytes).await;
        let _ = stream.read_to_end(&mut response).await;
    };
    tokio::time::timeout(WAIT_TIMEOUT, exchange).await.expect("the server closes the connection");
    String::from_utf8_lossy(&response).into_owned()
}

/// Accepts connections until one ends with `request`. Returns its bytes. Other connections come from the check that HAProxy
/// listens.
async fn record(listener: &TcpListener, request: &[u8]) -> Vec<u8> {
    let mut recorded = Vec::new();
    let recording = async {
        while !recorded.ends_with(request) {
            recorded.clear();
            let (mut connection, _) = listener.accept().await.unwrap();
            // HAProxy resets the connection of such a check.
            while !recorded.ends_with(request)
                && connection.read_buf(&mut recorded).await.is_ok_and(|read| read > 0)
            {}
        }
    };
    let result = tokio::time::timeout(WAIT_TIMEOUT, recording).await;
    assert!(result.is_ok(), "not the request: {}", recorded.escape_ascii());
    recorded
}

fn request(key: &str, headers: &str) -> String {
    format!(
        "GET /api/v1/ip HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n{headers}Connection: close\r\n\r\n"
    )
}

/// The JSON body of a response with status 200.
fn body(response: &str) -> Value {
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let start = response.find('{').unwrap();
    serde_json::from_str(&response[start..]).unwrap()
}

#[tokio::test]
async fn bytes_of_haproxy_from_an_untrusted_peer_close_the_connection() {
    if !tools_available() {
        return;
    }
    let (stack, key) = stack(&[]).await;
    let recorder = TcpListener::bind((BALANCER, 0)).await.unwrap();
    let routes = [V1, V2, V2_TLS];
    let haproxy = Haproxy::start(recorder.local_addr().unwrap(), &routes, "").await.unwrap();
    let (addr, request) = (stack.lookup.addr(), request(&key, ""));
    for route in routes {
        let scheme = if route.bind.is_empty() { "http" } else { "https" };
        let curl = ChildGuard::spawn("curl", |command| {
            command.args(["-sk", "--http1.1", "--noproxy", "*", "--interface", CLIENT]);
            command.args(["-H", &format!("Authorization: Bearer {key}"), "-H", "Host: localhost"]);
            command.args(["-H", "Connection: close", "-H", "User-Agent:", "-H", "Accept:"]);
            command.arg(format!("{scheme}://127.0.0.1:{}/api/v1/ip", haproxy.port(route)));
        });
        let recorded = record(&recorder, request.as_bytes()).await;
        drop(curl);
        let trusted = body(&exchange(BALANCER, addr, &recorded).await);
        let tls = (route.name == V2_TLS.name).then_some(("TLSv1.3", "TLS_AES_256_GCM_SHA384"));
        check(&trusted, CLIENT, "HTTP/1.1", tls);
        assert_eq!(exchange(UNTRUSTED, addr, &recorded).await, "", "{}", route.name);
    }
    // A request without a PROXY header gets no response, not even from the load balancer.
    for source in [BALANCER, UNTRUSTED] {
        assert_eq!(exchange(source, addr, request.as_bytes()).await, "", "{source}");
    }
    eventually(WAIT_TIMEOUT, "both reasons are logged", async || {
        let logs = stack.lookup.service.logs();
        let logged = |text: &str| logs.contains(text);
        let both = logged("the peer is not a trusted proxy") && logged("does not begin with a PROXY header");
        both.then_some(())
    })
    .await;
    let logs = stack.lookup.service.logs();
    assert!(!logs.contains(CLIENT) && !logs.contains(UNTRUSTED), "addresses are not logged: {logs}");
}

#[tokio::test]
async fn client_in_proxy_header_decides_whether_forwarding_headers_are_trusted() {
    let (stack, key) = stack(&["--trusted-proxies", "127.0.0.1,198.51.100.7"]).await;
    let addr = stack.lookup.addr();
    let sent = "X-Forwarded-For: 203.0.113.9\r\nX-Edge-HTTP-Protocol: HTTP/3\r\nX-Edge-TLS-Version: TLSv1.3\r\n\
                X-Edge-TLS-Cipher: TLS_AES_128_GCM_SHA256\r\nX-Edge-RTT: 41\r\n";
    for header in [
        "PROXY TCP4 192.0.2.1 127.0.0.1 1000 443\r\n",
        // No client: the peer is a trusted proxy, but the headers may come from anybody.
        "PROXY UNKNOWN\r\n",
        "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    ] {
        let ip = if header.contains("192.0.2.1") { "192.0.2.1" } else { BALANCER };
        let response = exchange(BALANCER, addr, format!("{header}{}", request(&key, sent)).as_bytes()).await;
        check(&body(&response), ip, "HTTP/1.1", None);
    }
    // A trusted proxy in front of the load balancer.
    let header = "PROXY TCP4 198.51.100.7 127.0.0.1 1000 443\r\n";
    let response =
        body(&exchange(BALANCER, addr, format!("{header}{}", request(&key, sent)).as_bytes()).await);
    let facts = ["ip", "http_protocol", "tls_version", "rtt"].map(|name| response[name].clone());
    assert_eq!(facts, [json!("203.0.113.9"), json!("HTTP/3"), json!("TLSv1.3"), json!(41)], "{response}");
}

#[tokio::test]
async fn standalone_requires_proxy_headers_on_api_and_dashboard() {
    let data = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0";
    let ports = ["--listen", any, "--dashboard-listen", any, "--quota-listen", any, "--admin-listen", any];
    let data_dir = ["--data-dir", data.path().to_str().unwrap(), "--log-level", "info"];
    let mut service = Service::spawn("ip-lookup", &[&ports[..], &data_dir, &[PROXY_PROTOCOL]].concat(), &[]);
    for (server, path) in [("lookup", "/docs"), ("dashboard", "/")] {
        let addr = service.listen_addr(server).await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let header = "PROXY TCP4 192.0.2.1 127.0.0.1 1000 443\r\n";
        let response = exchange(BALANCER, addr, format!("{header}{request}").as_bytes()).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        assert_eq!(exchange(BALANCER, addr, request.as_bytes()).await, "", "{server}");
    }
    // The commands of the banner work on this machine.
    let banner = eventually_ok(WAIT_TIMEOUT, "the banner", async || {
        let text = service.stdout();
        if text.contains("Press Ctrl-C to stop") { Ok(text) } else { Err(service.logs()) }
    })
    .await;
    let line = banner.lines().map(str::trim).rfind(|line| line.starts_with("curl ")).unwrap();
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    let body: Value = serde_json::from_slice(&output.stdout).unwrap();
    check(&body, "127.0.0.1", "HTTP/1.1", None);
}

#[tokio::test]
async fn proxy_protocol_without_trusted_proxies_is_a_start_error() {
    let data = tempfile::tempdir().unwrap();
    let flags = [PROXY_PROTOCOL, "--trusted-proxies", "none", "--data-dir", data.path().to_str().unwrap()];
    let any = "127.0.0.1:0";
    let ports = ["--listen", any, "--dashboard-listen", any, "--quota-listen", any, "--admin-listen", any];
    for (bin, flags) in [
        ("ip-lookup", [&flags[..], &ports].concat()),
        ("lookup-svc", vec![PROXY_PROTOCOL, "--listen", any, "--admin-listen", any]),
        ("dashboard-api", vec![PROXY_PROTOCOL, "--listen", any, "--admin-listen", any]),
    ] {
        let mut service = Service::spawn(bin, &flags, &[]);
        let status = service.wait_exit(WAIT_TIMEOUT).await;
        let logs = service.logs();
        assert!(
            !status.success()
                && logs.contains("--proxy-protocol requires --trusted-proxies or --discover-proxies"),
            "{bin}: {logs}"
        );
    }
}
