//! A mail server (aiosmtpd) with TLS and a password, which records what it receives.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tempfile::TempDir;

use crate::ports::ReservedPort;
use crate::spawner::ChildGuard;
use crate::tls::TlsFiles;
use crate::tools::{project_root, require_installed};
use crate::wait::{eventually, eventually_ok};

const WAIT: Duration = Duration::from_secs(30);

/// A received message.
#[derive(Clone, Debug, Deserialize)]
pub struct Received {
    pub to: Vec<String>,
    /// By name in lowercase, decoded.
    pub headers: BTreeMap<String, String>,
    pub text: String,
}

impl Received {
    /// What follows `prefix` in the text, up to the end of its line, such as the token of a link.
    ///
    /// # Panics
    /// If the text has no such line.
    #[must_use]
    pub fn after(&self, prefix: &str) -> String {
        let line = self.text.lines().find_map(|line| line.strip_prefix(prefix));
        line.unwrap_or_else(|| panic!("{prefix} is missing in {}", self.text)).to_owned()
    }
}

/// A running mail server. It accepts the user of [`SmtpServer::flags`], and rejects recipients that begin with `rejected@`.
#[derive(Debug)]
pub struct SmtpServer {
    mode: &'static str,
    port: ReservedPort,
    pub tls: TlsFiles,
    _process: ChildGuard,
    // Last field: the process is killed before its directory is removed.
    dir: TempDir,
}

impl SmtpServer {
    /// Starts a server. `mode` is `smtp` (STARTTLS) or `smtps` (TLS from the start). `None` means that the test must return
    /// immediately, as with [`require_installed`].
    ///
    /// # Panics
    /// If it can't be started.
    pub async fn start(mode: &'static str) -> Option<Self> {
        let lib = require_installed(".venv/bin/aiosmtpd")?;
        let (dir, port) = (tempfile::tempdir().unwrap(), ReservedPort::new());
        let tls = TlsFiles::create(dir.path());
        std::fs::write(dir.path().join("password"), "päss:%41word\n").unwrap();
        let process = ChildGuard::spawn(lib.with_file_name("python").to_str().unwrap(), |command| {
            command.arg(project_root().join("crates/testkit/src/smtp/server.py"));
            command.args([mode, &port.number().to_string()]).args([&tls.cert, &tls.key]);
            command.arg(dir.path().join("messages")).stdin(Stdio::null());
        });
        eventually_ok(WAIT, "the mail server listens", async || {
            tokio::net::TcpStream::connect(port.addr()).await.map(drop)
        })
        .await;
        Some(Self { mode, port, tls, _process: process, dir })
    }

    /// The flags of a service that sends mail through this server.
    #[must_use]
    pub fn flags(&self) -> [String; 6] {
        let url = format!("{}://mailer%40example.org@localhost:{}", self.mode, self.port.number());
        let password = self.dir.path().join("password").display().to_string();
        let from = "IP Lookup <noreply@example.org>".to_owned();
        let [a, b, c] = ["--smtp-url", "--smtp-password-file", "--mail-from"].map(str::to_owned);
        [a, url, b, password, c, from]
    }

    /// The variable with which a service trusts this server.
    #[must_use]
    pub fn trust(&self) -> (&'static str, &str) {
        ("SSL_CERT_FILE", self.tls.ca.to_str().unwrap())
    }

    /// All messages so far.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        let lines = std::fs::read_to_string(self.dir.path().join("messages")).unwrap_or_default();
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits for this number of messages, and returns the last one.
    pub async fn wait_for(&self, count: usize) -> Received {
        let enough = async || self.received().get(count - 1).cloned();
        eventually(WAIT, format!("{count} messages"), enough).await
    }
}
