//! Obtains and renews the certificate of the public host names from a CA by ACME (RFC 8555). The CA validates each name by
//! TLS-ALPN-01 (RFC 8737) on the HTTPS port, so no other port and no web root is needed.

mod args;
mod files;
mod http_client;
mod order;
mod schedule;

use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
pub use args::AcmeArgs;
use files::{AcmeFiles, CERTIFICATE, STATE};
use http_server::{LoadedCertificate, ManagedCertificate};
use order::CertificateOrder;
use schedule::{FailureKind, Failures, State};
use service_kit::command_line;

/// How often the clock is compared with the time of the next attempt: it may be set while the process waits.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Keeps the certificate of the host names valid.
pub struct Acme {
    order: CertificateOrder,
    files: AcmeFiles,
    /// As in the file, or newer if the file can't be written.
    state: State,
    certificate: ManagedCertificate,
}

impl Acme {
    /// Reads the files that the flags name, but writes nothing yet. `None` without `--acme-email`.
    pub fn new(args: &AcmeArgs, hosts: Vec<String>, data_dir: &Path) -> anyhow::Result<Option<Self>> {
        let Some(email) = &args.acme_email else { return Ok(None) };
        let hosts = check_hosts(hosts)?;
        let files = AcmeFiles::new(data_dir);
        let certificate = ManagedCertificate::new(files.path(CERTIFICATE), "");
        let order = CertificateOrder::new(args, email, hosts, certificate.clone())?;
        let acme = Self { order, state: files.read(STATE).unwrap_or_default(), files, certificate };
        if acme.current().is_none() {
            acme.certificate.set_status(acme.waiting());
        }
        Ok(Some(acme))
    }

    /// For the ports that serve the host names.
    pub fn certificate(&self) -> ManagedCertificate {
        self.certificate.clone()
    }

    /// Orders a certificate whenever one is due. Never returns.
    pub async fn run(mut self) -> Infallible {
        if self.current().is_none() {
            // For the person who started the process, if standard output is still open.
            let _ = command_line::print(&format!(
                "Waiting for a certificate for {} from {} …",
                self.order.names(),
                self.order.directory
            ));
        }
        match (self.failures(), self.current()) {
            (Some(failures), _) => self.report(failures),
            (None, Some(certificate)) => {
                let renewal =
                    humantime::format_rfc3339_seconds(schedule::renewal_time(&certificate.validity()));
                tracing::info!(%renewal, "the certificate is valid");
            }
            (None, None) => {}
        }
        loop {
            let now = SystemTime::now();
            let validity = self.current().map(|certificate| certificate.validity());
            let due = schedule::next_attempt(validity, self.failures(), now);
            match due.duration_since(now) {
                Ok(wait) if !wait.is_zero() => tokio::time::sleep(wait.min(CLOCK_CHECK_INTERVAL)).await,
                _ => self.attempt().await,
            }
        }
    }

    /// The stored certificate, if it is for all host names and from this CA.
    fn current(&self) -> Option<LoadedCertificate> {
        let from_this_ca = self.state.issued_by.as_ref() == Some(&self.order.directory);
        let certificate =
            LoadedCertificate::from_pem(&std::fs::read(self.files.path(CERTIFICATE)).ok()?).ok()?;
        (from_this_ca && self.order.covers(&certificate)).then_some(certificate)
    }

    /// The failed attempts since the last certificate. A change of the host names or the CA makes them irrelevant.
    fn failures(&self) -> Option<&Failures> {
        let CertificateOrder { directory, hosts, .. } = &self.order;
        self.state.failures.as_ref().filter(|failures| failures.is_for(directory, hosts))
    }

    fn waiting(&self) -> String {
        format!("waiting for a certificate for {} from {}", self.order.names(), self.order.directory)
    }

    async fn attempt(&mut self) {
        if self.current().is_none() {
            self.certificate.set_status(format!("{}: ordering it", self.waiting()));
        }
        let earlier = self.failures().cloned();
        let earlier = earlier.unwrap_or_else(|| Failures::new(&self.order.directory, &self.order.hosts));
        match self.obtain(&earlier).await {
            Ok(certificate) => {
                let (hosts, directory) = (self.order.names(), &self.order.directory);
                let expires = humantime::format_rfc3339_seconds(certificate.validity().end);
                tracing::info!(hosts, directory, %expires, "certificate received");
                let _ = command_line::print(&format!(
                    "Certificate for {hosts} received; it expires at {expires} and will be renewed before then."
                ));
            }
            Err(error) => {
                let failures = earlier.add(
                    order::failure_kind(&error),
                    order::failure_reason(&error),
                    SystemTime::now(),
                );
                self.report(&failures);
                self.state.failures = Some(failures);
                if let Err(error) = self.files.write_json(STATE, &self.state) {
                    tracing::error!(
                        error = format!("{error:#}"),
                        "can't save the time of the next attempt; a restart will forget it"
                    );
                }
            }
        }
    }

    /// Orders a certificate and writes it, so that the ports use it.
    async fn obtain(&mut self, earlier: &Failures) -> anyhow::Result<LoadedCertificate> {
        tracing::info!(
            hosts = self.order.names(),
            directory = self.order.directory,
            "ordering a certificate"
        );
        // A process that is restarted again and again must not order each time. Also shows that files can be written.
        let interrupted = "the last attempt was interrupted".to_owned();
        self.state.failures =
            Some(earlier.clone().add(FailureKind::Temporary, interrupted, SystemTime::now()));
        self.files.write_json(STATE, &self.state)?;
        let pem = self.order.obtain(&self.files).await?;
        let certificate = LoadedCertificate::from_pem(pem.as_bytes())
            .context("the certificate from the CA can't be used")?;
        if !self.order.covers(&certificate) {
            bail!("the certificate from the CA is not for all host names");
        }
        self.files.write(CERTIFICATE, pem.as_bytes())?;
        self.state = State { issued_by: Some(self.order.directory.clone()), failures: None };
        self.files.write_json(STATE, &self.state)?;
        self.certificate.set_status("");
        // Without this check, a clock that is wrong by months would order certificates without end.
        if schedule::renewal_time(&certificate.validity()) <= SystemTime::now() {
            bail!(
                "a new certificate is already due for renewal, because it expires at {}: check the clock of this machine",
                humantime::format_rfc3339_seconds(certificate.validity().end)
            );
        }
        Ok(certificate)
    }

    /// Logs why the last attempt failed and when the next one is, and sets the status.
    fn report(&self, failures: &Failures) {
        let what = match self.current() {
            Some(_) => format!("can't renew the certificate for {}", self.order.names()),
            None => self.waiting(),
        };
        let next = humantime::format_rfc3339_seconds(failures.retry_at());
        let status = format!("{what}: {}; next attempt at {next}", failures.reason);
        tracing::warn!(attempts = failures.attempts(), "{status}");
        self.certificate.set_status(status);
    }
}

fn check_hosts(hosts: Vec<String>) -> anyhow::Result<Vec<String>> {
    let mut hosts: Vec<_> = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    hosts.sort();
    hosts.dedup();
    if hosts.is_empty() {
        bail!(
            "--acme-email needs a host name: set --api-host, and --dashboard-host if the dashboard is public"
        );
    }
    for host in &hosts {
        let parsed = url::Host::parse(host).with_context(|| format!("invalid host name {host}"))?;
        if !matches!(parsed, url::Host::Domain(name) if name.contains('.')) {
            bail!("a CA issues no certificate for {host}: give the full host name, such as ip.example.org");
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_normalized_and_names_without_a_certificate_are_rejected() {
        let hosts = |hosts: &[&str]| check_hosts(hosts.iter().map(|host| (*host).to_owned()).collect());
        assert_eq!(
            hosts(&["keys.Example", "ip.example", "IP.example"]).unwrap(),
            ["ip.example", "keys.example"]
        );
        assert!(hosts(&[]).unwrap_err().to_string().contains("--api-host"));
        for host in ["localhost", "192.0.2.1", "[::1]", "a b.example", ""] {
            assert!(hosts(&[host]).is_err(), "{host}");
        }
    }
}
