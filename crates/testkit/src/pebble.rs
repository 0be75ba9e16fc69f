//! Pebble, the test server of Let's Encrypt: a CA that speaks ACME and validates host names for real, with a DNS server
//! for the names.

use std::fs::{self, File};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http;
use crate::ports::ReservedPort;
use crate::spawner::ChildGuard;
use crate::tls::TlsFiles;
use crate::wait::eventually_ok;

const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A running CA. It loses accounts, orders and its root certificate with each start, as a test server does.
#[derive(Debug)]
pub struct Pebble {
    config: Value,
    env: Vec<(&'static str, String)>,
    port: ReservedPort,
    management: ReservedPort,
    dns_port: ReservedPort,
    dns_management: ReservedPort,
    tls: TlsFiles,
    process: Option<ChildGuard>,
    _dns: ChildGuard,
    // Last field: the processes are killed before their directory is removed.
    dir: TempDir,
}

impl Pebble {
    /// Starts a CA that validates host names on this port of the address that DNS has for them, 127.0.0.1 unless
    /// [`Pebble::set_address`] changes it. It rejects no nonce, unless `env` says otherwise.
    pub async fn start(tls_port: u16, env: &[(&'static str, &str)]) -> Self {
        let mut pebble = Self::stopped(tls_port, env);
        pebble.restart().await;
        pebble
    }

    /// Like [`Pebble::start`], but the CA can't be reached until [`Pebble::restart`].
    ///
    /// # Panics
    /// If the DNS server can't be started.
    #[must_use]
    pub fn stopped(tls_port: u16, env: &[(&'static str, &str)]) -> Self {
        let dir = tempfile::Builder::new().prefix("pebble-").tempdir().expect("temporary directory");
        let tls = TlsFiles::create(dir.path());
        let (port, management) = (ReservedPort::new(), ReservedPort::new());
        let (dns_port, dns_management) = (ReservedPort::new(), ReservedPort::new());
        let config = json!({
            "listenAddress": port.addr().to_string(),
            "managementListenAddress": management.addr().to_string(),
            "certificate": tls.cert,
            "privateKey": tls.key,
            "httpPort": 1,
            "tlsPort": tls_port,
        });
        let dns = ChildGuard::spawn("pebble-challtestsrv", |command| {
            command.args(["-dns01", &dns_port.addr().to_string()]);
            command.args(["-management", &dns_management.addr().to_string()]);
            command.args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""]);
            command.args(["-http01", "", "-https01", "", "-tlsalpn01", ""]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        });
        let defaults =
            [("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "0"), ("PEBBLE_AUTHZREUSE", "0")];
        let env = defaults.iter().chain(env).map(|(name, value)| (*name, (*value).to_owned())).collect();
        let process = None;
        Self { config, env, port, management, dns_port, dns_management, tls, process, _dns: dns, dir }
    }

    /// Sets a field of the configuration, such as `certificateValidityPeriod` in seconds. Takes effect with the next start.
    #[must_use]
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.config[field] = value;
        self
    }

    /// Kills the CA. Connections are refused afterwards.
    pub fn stop(&mut self) {
        // Dropping the guard kills and reaps the process.
        self.process = None;
    }

    /// Suspends the CA, which then accepts connections but does not respond, until [`Pebble::resume`].
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        self.process.as_ref().expect("pebble runs").signal(signal);
    }

    /// Kills the CA if it is running, and starts it on the same port.
    ///
    /// # Panics
    /// If it does not start. The message includes its log.
    pub async fn restart(&mut self) {
        self.stop();
        let file = self.dir.path().join("pebble.json");
        fs::write(&file, json!({ "pebble": self.config }).to_string())
            .expect("temporary directory is writable");
        let log = File::create(self.log_file()).expect("temporary directory is writable");
        self.process = Some(ChildGuard::spawn("pebble", |command| {
            command.arg("-config").arg(&file);
            command.args(["-dnsserver", &self.dns_port.addr().to_string()]);
            command.envs(self.env.iter().map(|(name, value)| (name, value)));
            let errors = log.try_clone().expect("open file");
            command.stdin(Stdio::null()).stdout(log).stderr(errors);
        }));
        let client = self.client();
        eventually_ok(START_TIMEOUT, "pebble responds", async || {
            client.get(self.directory()).send().await.map_err(|error| format!("{error:?} {}", self.log()))
        })
        .await;
    }

    /// URL of the ACME directory.
    #[must_use]
    pub fn directory(&self) -> String {
        format!("https://{}/dir", self.port.addr())
    }

    /// The root certificate of the CA's own HTTPS port, not of the certificates that it issues.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.tls.ca.clone()
    }

    /// The root certificate of the certificates that the CA issues until it is restarted, as PEM.
    ///
    /// # Panics
    /// If the CA does not run.
    pub async fn root(&self) -> String {
        let url = format!("https://{}/roots/0", self.management.addr());
        let response = self.client().get(url).send().await.expect("pebble runs");
        response.text().await.expect("PEM")
    }

    /// Changes the address that DNS has for a host name.
    ///
    /// # Panics
    /// If the DNS server does not run.
    pub async fn set_address(&self, host: &str, address: IpAddr) {
        let body = json!({ "host": format!("{host}."), "addresses": [address] }).to_string();
        eventually_ok(START_TIMEOUT, "the DNS server responds", async || {
            for operation in ["clear-a", "add-a"] {
                let url = format!("http://{}/{operation}", self.dns_management.addr());
                http::client().post(url).body(body.clone()).send().await?.error_for_status()?;
            }
            Ok::<_, reqwest::Error>(())
        })
        .await;
    }

    /// The log since the last start.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// The number of orders since the last start.
    #[must_use]
    pub fn orders(&self) -> usize {
        self.log().matches("Added order ").count()
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("pebble.log")
    }

    fn client(&self) -> reqwest::Client {
        let pem = fs::read(&self.tls.ca).expect("the test's CA file");
        let root = reqwest::Certificate::from_pem(&pem).expect("valid certificate");
        http::builder().tls_certs_only([root]).build().expect("HTTP client")
    }
}
