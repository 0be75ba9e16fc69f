//! Obtains and renews the certificate of the public host names from a CA by ACME (RFC 8555). The CA validates each name by
//! TLS-ALPN-01 (RFC 8737) on the HTTPS port, so no other port and no web root is needed.

mod http_client;
mod order;
mod state;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use http_client::CaClient;
use http_server::{LoadedCertificate, ManagedCertificate};
use humantime::format_rfc3339_seconds;
use instant_acme::{ExternalAccountKey, LetsEncrypt};
use service_kit::command_line;
use state::{FailureKind, Failures, State};

/// Has the private key, the certificate and its chain. In one file, so that they always belong together.
const CERTIFICATE: &str = "certificate.pem";

/// How often the clock is compared with the time of the next attempt: it may be set while the process waits.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum time for an order. A CA validates from several places, one after the other if it is busy.
const ORDER_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Flags for certificates by ACME.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "ACME")]
pub struct AcmeArgs {
    /// Get a certificate for --api-host, --dashboard-host, --ipv4-host and --ipv6-host from a CA, and renew it. The CA gets this address as your
    /// contact. With this flag you accept the terms of service of the CA, for Let's Encrypt: https://letsencrypt.org/repository/
    #[arg(long, env, value_name = "EMAIL", value_parser = email, conflicts_with = "tls_cert")]
    pub acme_email: Option<String>,
    /// ACME directory of the CA. For tests: https://acme-staging-v02.api.letsencrypt.org/directory, which has higher limits
    /// and issues certificates that browsers reject
    #[arg(long, env, value_name = "URL", value_parser = https_url, default_value = LetsEncrypt::Production.url(), requires = "acme_email")]
    pub acme_directory: String,
    /// PEM file with the root certificates to trust for the connection to --acme-directory, instead of the system's
    #[arg(long, env, value_name = "FILE", requires = "acme_email")]
    pub acme_ca_file: Option<PathBuf>,
    /// Key ID of the external account binding, for CAs that require it
    #[arg(long, env, value_name = "ID", requires_all = ["acme_eab_key_file", "acme_email"])]
    pub acme_eab_kid: Option<String>,
    /// File with the HMAC key of the external account binding, in Base64url as the CA shows it
    #[arg(long, env, value_name = "FILE", requires_all = ["acme_eab_kid", "acme_email"])]
    pub acme_eab_key_file: Option<PathBuf>,
}

fn email(text: &str) -> Result<String, String> {
    let is_valid = matches!(text.split_once('@'), Some((user, host)) if !user.is_empty() && host.contains('.'))
        && !text.contains(|c: char| c.is_whitespace() || c.is_control() || "?,<>".contains(c));
    if is_valid { Ok(text.to_owned()) } else { Err("must be an email address".to_owned()) }
}

fn https_url(text: &str) -> Result<String, String> {
    let url = service_kit::web_url(text)?;
    if url.scheme() == "https" { Ok(url.into()) } else { Err("must start with https://".to_owned()) }
}

/// Keeps the certificate of the host names valid.
pub struct Acme {
    email: String,
    client: CaClient,
    external_account: Option<ExternalAccountKey>,
    /// The directory of the files, created with the first one.
    dir: PathBuf,
    /// As in the file, or newer if the file can't be written.
    state: State,
    /// For the ports that serve the host names.
    pub certificate: ManagedCertificate,
}

impl Acme {
    /// Reads the files that the flags name, but writes nothing yet. `None` without `--acme-email`.
    pub fn new(args: &AcmeArgs, hosts: Vec<String>, data_dir: &Path) -> anyhow::Result<Option<Self>> {
        let Some(email) = args.acme_email.clone() else { return Ok(None) };
        let hosts = check_hosts(hosts)?;
        let external_account = match (&args.acme_eab_kid, &args.acme_eab_key_file) {
            (Some(kid), Some(file)) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("can't read --acme-eab-key-file {}", file.display()))?;
                let key = data_encoding::BASE64URL_NOPAD
                    .decode(text.trim().trim_end_matches('=').as_bytes())
                    .with_context(|| format!("--acme-eab-key-file {} is not Base64url", file.display()))?;
                Some(ExternalAccountKey::new(kid.clone(), &key))
            }
            _ => None,
        };
        let client = CaClient::new(args.acme_ca_file.as_deref())?;
        let dir = data_dir.join("acme");
        let certificate = ManagedCertificate::new(dir.join(CERTIFICATE), "");
        let state = State::load(&dir, &args.acme_directory, args.acme_eab_kid.as_deref(), hosts);
        let acme = Self { email, client, external_account, dir, state, certificate };
        if acme.current().is_none() {
            acme.certificate.set_status(acme.waiting());
        }
        Ok(Some(acme))
    }

    /// Orders a certificate whenever one is due. Never returns.
    pub async fn run(mut self) -> Infallible {
        let current = self.current();
        if current.is_none() {
            // For the person who started the process, if standard output is still open.
            let (hosts, directory) = (self.hosts(), &self.state.directory);
            let _ = command_line::print(&format!("Waiting for a certificate for {hosts} from {directory} …"));
        }
        if let Some(failures) = &self.state.failures {
            self.report(failures);
        } else if let Some(certificate) = current {
            let renewal = format_rfc3339_seconds(state::renewal_time(&certificate.validity));
            tracing::info!(%renewal, "the certificate is valid");
        }
        loop {
            let now = SystemTime::now();
            let validity = self.current().map(|certificate| certificate.validity);
            let due = state::next_attempt(validity, self.state.failures.as_ref(), now);
            match due.duration_since(now) {
                Ok(wait) if !wait.is_zero() => tokio::time::sleep(wait.min(CLOCK_CHECK_INTERVAL)).await,
                _ => self.attempt().await,
            }
        }
    }

    fn hosts(&self) -> String {
        self.state.hosts.join(", ")
    }

    fn waiting(&self) -> String {
        format!("waiting for a certificate for {} from {}", self.hosts(), self.state.directory)
    }

    /// The stored certificate, if it is for all host names and from this CA.
    fn current(&self) -> Option<LoadedCertificate> {
        let pem = std::fs::read(self.dir.join(CERTIFICATE)).ok()?;
        let certificate = LoadedCertificate::from_pem(&pem, None).ok()?;
        (self.state.issued && self.covers(&certificate)).then_some(certificate)
    }

    fn covers(&self, certificate: &LoadedCertificate) -> bool {
        self.state.hosts.iter().all(|host| certificate.is_for(host))
    }

    async fn attempt(&mut self) {
        if self.current().is_none() {
            self.certificate.set_status(format!("{}: ordering it", self.waiting()));
        }
        let earlier = self.state.failures.clone().unwrap_or_default();
        if let Err(error) = self.obtain(&earlier).await {
            if order::is_unknown_account(&error) {
                // Test CAs delete accounts.
                tracing::warn!(
                    "the CA does not know the account any more; the next attempt creates a new one"
                );
                self.state.account = None;
            }
            let (kind, reason) = order::failure(&error);
            let failures = earlier.add(kind, reason, SystemTime::now());
            self.report(&failures);
            self.state.failures = Some(failures);
            if let Err(error) = self.state.save(&self.dir) {
                tracing::error!(
                    error = format!("{error:#}"),
                    "can't save the time of the next attempt; a restart will forget it"
                );
            }
        }
    }

    /// Orders a certificate and writes it, so that the ports use it.
    async fn obtain(&mut self, earlier: &Failures) -> anyhow::Result<()> {
        let (hosts, directory) = (self.hosts(), self.state.directory.clone());
        tracing::info!(hosts, directory, "ordering a certificate");
        // A process that is restarted again and again must not order each time. Also shows that files can be written.
        let interrupted = "the last attempt was interrupted".to_owned();
        self.state.failures =
            Some(earlier.clone().add(FailureKind::Temporary, interrupted, SystemTime::now()));
        self.state.save(&self.dir)?;
        let ordered = tokio::time::timeout(ORDER_TIMEOUT, self.order()).await;
        let pem = ordered.context("the CA did not complete the order in time")??;
        let certificate = LoadedCertificate::from_pem(pem.as_bytes(), None)
            .context("the certificate from the CA can't be used")?;
        ensure!(self.covers(&certificate), "the certificate from the CA is not for all host names");
        state::write(&self.dir, CERTIFICATE, pem.as_bytes())?;
        (self.state.issued, self.state.failures) = (true, None);
        self.state.save(&self.dir)?;
        self.certificate.set_status("");
        let validity = certificate.validity;
        let expires = format_rfc3339_seconds(validity.end);
        // Without this check, a clock that is wrong by months would order certificates without end.
        ensure!(
            state::renewal_time(&validity) > SystemTime::now(),
            "a new certificate is already due for renewal, because it expires at {expires}: check the clock of this machine"
        );
        tracing::info!(hosts, directory, %expires, "certificate received");
        let _ = command_line::print(&format!(
            "Certificate for {hosts} received; it expires at {expires} and will be renewed before then."
        ));
        Ok(())
    }

    /// Logs why the last attempt failed and when the next one is, and sets the status.
    fn report(&self, failures: &Failures) {
        let what = match self.current() {
            Some(_) => format!("can't renew the certificate for {}", self.hosts()),
            None => self.waiting(),
        };
        let next = format_rfc3339_seconds(failures.retry_at());
        let status = format!("{what}: {}; next attempt at {next}", failures.reason);
        tracing::warn!(failures.temporary, failures.rejected, "{status}");
        self.certificate.set_status(status);
    }
}

fn check_hosts(mut hosts: Vec<String>) -> anyhow::Result<Vec<String>> {
    hosts.sort();
    hosts.dedup();
    ensure!(
        !hosts.is_empty(),
        "--acme-email needs a host name: set --api-host, and --dashboard-host if the dashboard is public"
    );
    for host in &hosts {
        ensure!(
            matches!(url::Host::parse(host), Ok(url::Host::Domain(name)) if name.contains('.')),
            "a CA issues no certificate for {host}: give the full host name, such as ip.example.org"
        );
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    struct Flags {
        #[arg(long)]
        tls_cert: Option<PathBuf>,
        #[command(flatten)]
        acme: AcmeArgs,
    }

    fn parse(flags: &str) -> Result<Flags, clap::Error> {
        Flags::try_parse_from(["test"].into_iter().chain(flags.split_whitespace()))
    }

    #[test]
    fn email_alone_selects_lets_encrypt() {
        let flags = parse("--acme-email you@example.org").unwrap();
        assert_eq!(flags.acme.acme_directory, "https://acme-v02.api.letsencrypt.org/directory");
        assert_eq!(flags.tls_cert, None);
        assert_eq!(parse("").unwrap().acme.acme_email, None);
    }

    #[test]
    fn flags_that_do_not_belong_together_are_rejected() {
        for flags in [
            "--acme-email you@example.org --tls-cert a.pem",
            "--acme-directory https://ca.example/directory",
            "--acme-ca-file ca.pem",
            "--acme-email you@example.org --acme-eab-kid 1",
            "--acme-email you@example.org --acme-eab-key-file key",
            "--acme-eab-kid 1 --acme-eab-key-file key",
            "--acme-email you@example.org --acme-directory http://ca.example/directory",
            "--acme-email nobody",
            "--acme-email you@example.org,me@example.org",
        ] {
            assert!(parse(flags).is_err(), "{flags}");
        }
        assert!(parse("--acme-email you@example.org --acme-eab-kid 1 --acme-eab-key-file key").is_ok());
    }

    #[test]
    fn hosts_are_sorted_and_names_without_a_certificate_are_rejected() {
        let hosts = |hosts: &[&str]| check_hosts(hosts.iter().map(|host| (*host).to_owned()).collect());
        assert_eq!(
            hosts(&["keys.example", "ip.example", "ip.example"]).unwrap(),
            ["ip.example", "keys.example"]
        );
        assert!(hosts(&[]).unwrap_err().to_string().contains("--api-host"));
        for host in ["localhost", "192.0.2.1", "[::1]", "a b.example", ""] {
            assert!(hosts(&[host]).is_err(), "{host}");
        }
    }
}
