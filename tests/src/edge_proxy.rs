//! Real edges (HAProxy, nginx, Envoy, Traefik) in front of lookup-svc, and clients that lie to them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::ports::ReservedPort;
use crate::spawner::ChildGuard;
use crate::tls::TlsFiles;
use crate::wait::eventually_ok;

pub mod config;
pub mod profile;

/// Where the clients of these tests call from; the edge itself calls lookup-svc from 127.0.0.1.
pub const CLIENT: &str = "127.0.0.5";

const START_WITHIN: Duration = Duration::from_secs(30);

/// Every lie that could end in an answer.
pub const LIES: [&str; 13] = [
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

/// Where an edge listens and where it sends to: what its configuration is made of.
#[derive(Debug)]
pub struct Site {
    /// TLS 1.2 and 1.3, HTTP/1.1 and HTTP/2.
    pub tls: ReservedPort,
    /// Without TLS.
    pub plain: ReservedPort,
    /// Without TLS, every connection opened by a PROXY header.
    pub proxied: ReservedPort,
    /// Certificates.
    pub files: TlsFiles,
    /// lookup-svc.
    pub upstream: SocketAddr,
    /// For configuration and temporary files.
    pub dir: TempDir,
}

impl Site {
    /// Ports, certificates and a folder for an edge in front of `upstream`.
    ///
    /// # Panics
    /// When the files can't be written.
    #[must_use]
    pub fn new(upstream: SocketAddr) -> Self {
        let dir = tempfile::Builder::new().prefix("edge-").tempdir().expect("a temporary folder");
        let files = TlsFiles::create(dir.path());
        let port = ReservedPort::new;
        Self { tls: port(), plain: port(), proxied: port(), files, upstream, dir }
    }

    /// Writes a file into the folder.
    ///
    /// # Panics
    /// When it can't.
    #[must_use]
    pub fn write(&self, name: &str, content: &str) -> String {
        let file = self.dir.path().join(name);
        std::fs::write(&file, content).expect("the temporary folder can be written");
        file.to_str().expect("a readable path").to_owned()
    }
}

/// A running edge; killed when dropped.
#[derive(Debug)]
pub struct Edge {
    // First, so that the process is gone before its folder.
    _process: ChildGuard,
    site: Site,
}

impl Edge {
    /// Starts the program and waits until all three ports accept.
    ///
    /// # Panics
    /// When it ends or takes too long; what it printed is in the message.
    pub async fn start(program: &Path, arguments: &[String], site: Site) -> Self {
        let log = site.dir.path().join("edge.log");
        let output = std::fs::File::create(&log).expect("the temporary folder can be written");
        let mut process = ChildGuard::spawn(program.to_str().expect("a readable path"), |command| {
            command.args(arguments).current_dir(site.dir.path()).stdin(Stdio::null());
            command.stdout(output.try_clone().expect("a second handle")).stderr(output);
        });
        let read = || std::fs::read_to_string(&log).unwrap_or_default();
        for port in [&site.tls, &site.plain, &site.proxied] {
            eventually_ok(START_WITHIN, "the edge accepts", async || {
                assert!(process.is_running(), "the edge ended:\n{}", read());
                TcpStream::connect(port.addr())
                    .await
                    .map(drop)
                    .map_err(|error| format!("{error}: {}", read()))
            })
            .await;
        }
        let edge = Self { _process: process, site };
        // Traefik accepts before it has read its routes.
        for tls in [true, false] {
            eventually_ok(START_WITHIN, "the edge passes requests on", async || {
                let status = edge.status(tls);
                if ["200", "401"].contains(&status.as_str()) {
                    Ok(())
                } else {
                    Err(format!("{status}: {}", read()))
                }
            })
            .await;
        }
        edge
    }

    /// The status of a request without a key, by curl.
    fn status(&self, tls: bool) -> String {
        let mut curl = self.curl(tls);
        let output = curl
            .args(["--output", "/dev/null", "--write-out", "%{http_code}"])
            .output()
            .expect("curl starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn curl(&self, tls: bool) -> Command {
        let (scheme, port) = if tls { ("https", &self.site.tls) } else { ("http", &self.site.plain) };
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--noproxy", "*", "--ipv4", "--max-time", "20"]);
        curl.args(["--interface", CLIENT, "--cacert"]).arg(&self.site.files.ca);
        curl.arg(format!("{scheme}://localhost:{}/api/v1/ip", port.number()));
        curl
    }

    /// Asks for everything with curl, from [`CLIENT`], with these further arguments.
    ///
    /// # Panics
    /// When there is no answer, or another status than 200.
    #[must_use]
    pub fn ask(&self, key: &str, tls: bool, arguments: &[&str]) -> Value {
        let mut curl = self.curl(tls);
        curl.args(["--fail-with-body", "--header", &format!("Authorization: Bearer {key}")]).args(arguments);
        let output = curl.output().expect("curl starts");
        let body = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {body} {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_str(&body).expect("JSON")
    }

    /// Asks through the port that wants a PROXY header, as a load balancer for a client at `source`.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn ask_for(&self, key: &str, source: &str) -> Value {
        let addr = self.site.proxied.addr();
        let mut stream = TcpStream::connect(addr).await.expect("the edge accepts");
        let lies = LIES.join("\r\n");
        let request = format!(
            "PROXY TCP4 {source} 127.0.0.1 40000 {}\r\nGET /api/v1/ip HTTP/1.1\r\nHost: localhost\r\n\
             Authorization: Bearer {key}\r\n{lies}\r\nConnection: close\r\n\r\n",
            addr.port()
        );
        stream.write_all(request.as_bytes()).await.expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("a whole answer");
        let (from, to) = (answer.find('{'), answer.rfind('}'));
        let body = from.zip(to).map(|(from, to)| &answer[from..=to]);
        serde_json::from_str(body.unwrap_or_else(|| panic!("no JSON in {answer}"))).expect("JSON")
    }
}

/// Debian's `haproxy` or `nginx`, which live where a user's PATH does not look.
#[must_use]
pub fn system_tool(name: &str) -> Option<PathBuf> {
    crate::tools::require_tool(name).then(|| {
        let sbin = PathBuf::from("/usr/sbin").join(name);
        if sbin.is_file() { sbin } else { PathBuf::from(name) }
    })
}
