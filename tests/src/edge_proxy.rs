//! Real edge proxies (HAProxy, nginx, Envoy, Traefik) in front of lookup-svc, and clients that forge headers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use testkit::ports::ReservedPort;
use testkit::spawner::ChildGuard;
use testkit::tls::TlsFiles;
use testkit::wait::eventually_ok;

pub mod config;
pub mod profile;
pub mod recorder;

/// Source address of the test clients. The edge proxy connects to lookup-svc from 127.0.0.1.
pub const CLIENT: &str = "127.0.0.5";

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The request ID that a client sends.
pub const FORGED_REQUEST_ID: &str = "forged-request-id";

/// The trace ID that a client sends.
pub const FORGED_TRACE_ID: &str = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";

/// Every header with which a client could try to change the response, with a forged value.
pub const FORGED_HEADERS: [&str; 15] = [
    // FORGED_REQUEST_ID and FORGED_TRACE_ID.
    "X-Request-Id: forged-request-id",
    "traceparent: 00-f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff-f0f1f2f3f4f5f6f7-01",
    "X-Forwarded-For: 203.0.113.9",
    "X-Forwarded-For: 203.0.113.9, 203.0.113.9",
    "X-Real-IP: 203.0.113.9",
    "Forwarded: for=203.0.113.9",
    "CF-Connecting-IP: 203.0.113.9",
    "X-Edge-Client-IP: 203.0.113.9",
    "X_Edge_Client_IP: 203.0.113.9",
    "X-Edge-HTTP-Protocol: HTTP/3",
    "X-Edge-TLS-Version: TLSv1.1",
    "X-Edge-TLS-Cipher: FORGED",
    "X-Edge-RTT: 59999",
    "X-Edge-Colo: XXX",
    "Proxy: FORGED",
];

/// The input of a proxy configuration: listen ports, certificates and upstream.
#[derive(Debug)]
pub struct EdgeSetup {
    /// Port with TLS 1.2 and 1.3, HTTP/1.1 and HTTP/2.
    pub tls: ReservedPort,
    /// Port without TLS.
    pub plain: ReservedPort,
    /// Port without TLS; every connection starts with a PROXY protocol header.
    pub proxy_protocol: ReservedPort,
    pub files: TlsFiles,
    /// Address of lookup-svc.
    pub upstream: SocketAddr,
    /// For configuration and temporary files.
    pub dir: TempDir,
}

impl EdgeSetup {
    /// Reserves ports and creates certificates and a directory for a proxy in front of `upstream`.
    #[must_use]
    pub fn new(upstream: SocketAddr) -> Self {
        let dir = tempfile::Builder::new().prefix("edge-").tempdir().expect("temporary directory");
        let files = TlsFiles::create(dir.path());
        let port = ReservedPort::new;
        Self { tls: port(), plain: port(), proxy_protocol: port(), files, upstream, dir }
    }

    /// Writes a file into the directory and returns its path.
    #[must_use]
    pub fn write(&self, name: &str, content: &str) -> String {
        let file = self.dir.path().join(name);
        std::fs::write(&file, content).expect("temporary directory is writable");
        file.to_str().expect("UTF-8 path").to_owned()
    }
}

/// A response of lookup-svc, received through the edge proxy.
#[derive(Debug)]
pub struct EdgeResponse {
    /// Status line and headers.
    pub head: String,
    pub body: Value,
}

impl EdgeResponse {
    fn parse(response: &str) -> Self {
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {response}"));
        // The body may be chunked.
        let (start, end) = (body.find('{'), body.rfind('}'));
        let body = start.zip(end).map(|(start, end)| &body[start..=end]);
        let body = serde_json::from_str(body.unwrap_or_else(|| panic!("no JSON in {response}")));
        Self { head: head.to_owned(), body: body.expect("JSON response body") }
    }

    /// The header `X-Request-Id`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn request_id(&self) -> &str {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
        let header = headers.find(|(name, _)| name.eq_ignore_ascii_case("X-Request-Id"));
        header.unwrap_or_else(|| panic!("no X-Request-Id in {}", self.head)).1
    }
}

/// A running edge proxy; killed when dropped.
#[derive(Debug)]
pub struct EdgeProxy {
    // First field: the process is killed before its directory is removed.
    _process: ChildGuard,
    setup: EdgeSetup,
}

impl EdgeProxy {
    /// Starts the program and waits until all three ports accept connections and requests reach lookup-svc.
    ///
    /// # Panics
    /// If it exits or takes too long. The message includes its output.
    pub async fn start(program: &Path, arguments: &[String], setup: EdgeSetup) -> Self {
        let log = setup.dir.path().join("edge.log");
        let output = std::fs::File::create(&log).expect("temporary directory is writable");
        let mut process = ChildGuard::spawn(program.to_str().expect("UTF-8 path"), |command| {
            command.args(arguments).current_dir(setup.dir.path()).stdin(Stdio::null());
            command.stdout(output.try_clone().expect("second file handle")).stderr(output);
        });
        let read_log = || std::fs::read_to_string(&log).unwrap_or_default();
        for port in [&setup.tls, &setup.plain, &setup.proxy_protocol] {
            eventually_ok(START_TIMEOUT, "edge proxy accepts connections", async || {
                assert!(process.is_running(), "edge proxy exited:\n{}", read_log());
                TcpStream::connect(port.addr())
                    .await
                    .map(drop)
                    .map_err(|error| format!("{error}: {}", read_log()))
            })
            .await;
        }
        let edge = Self { _process: process, setup };
        // Traefik accepts connections before it has loaded its routes.
        for tls in [true, false] {
            eventually_ok(START_TIMEOUT, "edge proxy forwards requests", async || {
                let status = edge.status(tls);
                if ["200", "401"].contains(&status.as_str()) {
                    Ok(())
                } else {
                    Err(format!("{status}: {}", read_log()))
                }
            })
            .await;
        }
        edge
    }

    /// The status code of a request without a key, sent by curl.
    fn status(&self, tls: bool) -> String {
        let mut curl = self.curl(tls);
        let output = curl
            .args(["--output", "/dev/null", "--write-out", "%{http_code}"])
            .output()
            .expect("curl starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn curl(&self, tls: bool) -> Command {
        let (scheme, port) = if tls { ("https", &self.setup.tls) } else { ("http", &self.setup.plain) };
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--noproxy", "*", "--ipv4", "--max-time", "20"]);
        curl.args(["--interface", CLIENT, "--cacert"]).arg(&self.setup.files.ca);
        curl.arg(format!("{scheme}://localhost:{}/api/v1/ip", port.number()));
        curl
    }

    /// Sends `GET /api/v1/ip` with curl from [`CLIENT`], with extra curl arguments.
    ///
    /// # Panics
    /// If the status is not 200.
    #[must_use]
    pub fn get_ip(&self, key: &str, tls: bool, arguments: &[&str]) -> EdgeResponse {
        let mut curl = self.curl(tls);
        curl.args(["--include", "--fail-with-body", "--header", &format!("Authorization: Bearer {key}")]);
        let output = curl.args(arguments).output().expect("curl starts");
        let [response, errors] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{arguments:?}: {response} {errors}");
        EdgeResponse::parse(&response)
    }

    /// Sends `GET /api/v1/ip` with forged headers to the PROXY protocol port, as a load balancer would forward it for a
    /// client at `source`.
    pub async fn get_ip_via_proxy_protocol(&self, key: &str, source: &str) -> EdgeResponse {
        let addr = self.setup.proxy_protocol.addr();
        let mut stream = TcpStream::connect(addr).await.expect("edge proxy accepts connections");
        let forged = FORGED_HEADERS.join("\r\n");
        let request = format!(
            "PROXY TCP4 {source} 127.0.0.1 40000 {}\r\nGET /api/v1/ip HTTP/1.1\r\nHost: localhost\r\n\
             Authorization: Bearer {key}\r\n{forged}\r\nConnection: close\r\n\r\n",
            addr.port()
        );
        stream.write_all(request.as_bytes()).await.expect("request sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).await.expect("complete response");
        EdgeResponse::parse(&response)
    }
}

/// The path of `haproxy` or `nginx`, which Debian installs outside a user's PATH. `None` means that the test must be
/// skipped.
#[must_use]
pub fn system_tool(name: &str) -> Option<PathBuf> {
    testkit::tools::require_tool(name).then(|| {
        let sbin = PathBuf::from("/usr/sbin").join(name);
        if sbin.is_file() { sbin } else { PathBuf::from(name) }
    })
}
