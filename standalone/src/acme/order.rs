//! An order: account, validation of the host names, certificate.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http_server::{Challenges, LoadedCertificate, ManagedCertificate};
use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, ExternalAccountKey, Identifier, NewAccount, NewOrder,
    OrderStatus, Problem, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::args::AcmeArgs;
use super::files::{ACCOUNT, AcmeFiles, StoredAccount};
use super::http_client::{CaClient, RequestError};
use super::schedule::FailureKind;

/// Maximum time for an order. A CA validates from several places, one after the other if it is busy.
const TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// How long to wait for the validation, and for the certificate after that.
const POLLING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

/// A certificate to order: for which host names, and from which CA.
pub struct CertificateOrder {
    /// ACME directory of the CA.
    pub directory: String,
    /// In lower case, sorted.
    pub hosts: Vec<String>,
    email: String,
    client: CaClient,
    /// The key ID and the key of the external account binding.
    external_account: Option<(String, ExternalAccountKey)>,
    /// Presents the challenge certificates.
    certificate: ManagedCertificate,
}

/// How soon to try again after an order has failed.
pub fn failure_kind(error: &anyhow::Error) -> FailureKind {
    match error.downcast_ref() {
        Some(instant_acme::Error::Other(error)) if error.is::<RequestError>() => FailureKind::Temporary,
        Some(instant_acme::Error::Api(problem)) => match problem_type(problem) {
            "badNonce" | "serverInternal" => FailureKind::Temporary,
            "rateLimited" => FailureKind::RateLimited,
            _ => FailureKind::Rejected,
        },
        _ => FailureKind::Rejected,
    }
}

/// Why an order has failed: with all causes, in one line.
pub fn failure_reason(error: &anyhow::Error) -> String {
    match error.downcast_ref() {
        Some(instant_acme::Error::Api(problem)) => explain(problem),
        _ => format!("{error:#}"),
    }
}

fn is_unknown_account(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(instant_acme::Error::Api(problem)) if problem_type(problem) == "accountDoesNotExist")
}

/// The last part of `urn:ietf:params:acme:error:…`.
fn problem_type(problem: &Problem) -> &str {
    problem.r#type.as_deref().and_then(|kind| kind.rsplit(':').next()).unwrap_or_default()
}

/// The CA's explanation, in one line.
fn explain(problem: &Problem) -> String {
    let mut text = problem.detail.clone().unwrap_or_else(|| "no explanation".to_owned());
    for part in &problem.subproblems {
        text += &format!("; {part}");
    }
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{line} ({})", problem_type(problem))
}

impl CertificateOrder {
    /// Reads the files of the flags.
    pub fn new(
        args: &AcmeArgs,
        email: &str,
        hosts: Vec<String>,
        certificate: ManagedCertificate,
    ) -> anyhow::Result<Self> {
        let external_account = match (&args.acme_eab_kid, &args.acme_eab_key_file) {
            (Some(kid), Some(file)) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("can't read --acme-eab-key-file {}", file.display()))?;
                let key = data_encoding::BASE64URL_NOPAD
                    .decode(text.trim().trim_end_matches('=').as_bytes())
                    .with_context(|| format!("--acme-eab-key-file {} is not Base64url", file.display()))?;
                Some((kid.clone(), ExternalAccountKey::new(kid.clone(), &key)))
            }
            _ => None,
        };
        Ok(Self {
            directory: args.acme_directory.clone(),
            hosts,
            email: email.to_owned(),
            client: CaClient::new(args.acme_ca_file.as_deref())?,
            external_account,
            certificate,
        })
    }

    pub fn names(&self) -> String {
        self.hosts.join(", ")
    }

    /// Whether a certificate is for all host names.
    pub fn covers(&self, certificate: &LoadedCertificate) -> bool {
        self.hosts.iter().all(|host| certificate.is_for(host))
    }

    /// Returns the private key, the certificate and its chain in PEM format.
    pub async fn obtain(&self, files: &AcmeFiles) -> anyhow::Result<String> {
        let attempt = async {
            match self.order(files).await {
                // The CA has deleted the account, as test CAs do.
                Err(error) if is_unknown_account(&error) => {
                    tracing::warn!("the CA does not know the account any more; creating a new one");
                    std::fs::remove_file(files.path(ACCOUNT))?;
                    self.order(files).await
                }
                result => result,
            }
        };
        tokio::time::timeout(TIMEOUT, attempt).await.context("the CA did not complete the order in time")?
    }

    async fn order(&self, files: &AcmeFiles) -> anyhow::Result<String> {
        let account = self.account(files).await?;
        let identifiers: Vec<_> = self.hosts.iter().cloned().map(Identifier::Dns).collect();
        let mut order = account.new_order(&NewOrder::new(&identifiers)).await?;
        let challenges = self.certificate.begin_challenges();
        answer_challenges(&mut order, &self.hosts, &challenges).await?;
        let status = order.poll_ready(&POLLING).await;
        drop(challenges);
        match status {
            Ok(OrderStatus::Invalid) => return Err(validation_error(&mut order, None).await),
            Err(instant_acme::Error::Api(problem)) => {
                return Err(validation_error(&mut order, Some(problem)).await);
            }
            status => status?,
        };
        let key = order.finalize().await?;
        Ok(key + &order.poll_certificate(&POLLING).await?)
    }

    /// The stored account, or a new one.
    async fn account(&self, files: &AcmeFiles) -> anyhow::Result<Account> {
        let builder = Account::builder_with_http(Box::new(self.client.clone()));
        let (directory, email) = (&self.directory, &self.email);
        let eab_kid = self.external_account.as_ref().map(|(kid, _)| kid.clone());
        let contact = format!("mailto:{email}");
        let stored: Option<StoredAccount> = files.read(ACCOUNT);
        let stored = stored.filter(|stored| stored.directory == *directory && stored.eab_kid == eab_kid);
        if let Some(stored) = stored {
            let account =
                builder.from_credentials(serde_json::from_value(stored.credentials.clone())?).await?;
            if stored.email != *email {
                account.update_contacts(&[&contact]).await?;
                files.write_json(ACCOUNT, &StoredAccount { email: email.clone(), ..stored })?;
            }
            return Ok(account);
        }
        let new =
            NewAccount { contact: &[&contact], terms_of_service_agreed: true, only_return_existing: false };
        let external = self.external_account.as_ref().map(|(_, key)| key);
        let (account, credentials) = builder.create(&new, directory.clone(), external).await?;
        let credentials = serde_json::to_value(credentials)?;
        let (directory, email) = (directory.clone(), email.clone());
        files.write_json(ACCOUNT, &StoredAccount { directory, email, eab_kid, credentials })?;
        tracing::info!(directory = self.directory, "account created at the CA");
        Ok(account)
    }
}

/// Presents the certificates that prove control of the host names, and tells the CA to validate them. A CA that asks for
/// another name gets no proof of it.
async fn answer_challenges(
    order: &mut instant_acme::Order,
    hosts: &[String],
    challenges: &Challenges,
) -> anyhow::Result<()> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        let host = authorization.identifier().to_string();
        if !hosts.iter().any(|ordered| ordered.eq_ignore_ascii_case(&host)) {
            bail!("the CA asks to validate {host}, which is not in the order");
        }
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => bail!("the authorization of {host} is {status:?}"),
        }
        let Some(mut challenge) = authorization.challenge(ChallengeType::TlsAlpn01) else {
            bail!("the CA does not offer TLS-ALPN-01 for {host}");
        };
        let (certificate, key) =
            challenge_certificate(&host, challenge.key_authorization().digest().as_ref())
                .context("can't create the challenge certificate")?;
        challenges.present(&host, certificate, key).context("can't use the challenge certificate")?;
        challenge.set_ready().await?;
    }
    Ok(())
}

/// A self-signed certificate with the extension of RFC 8737.
fn challenge_certificate(
    host: &str,
    digest: &[u8],
) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), rcgen::Error> {
    let mut params = CertificateParams::new([host.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok((certificate.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der()).into()))
}

/// Says which host name could not be validated, and why. `problem` is the order's own error.
async fn validation_error(order: &mut instant_acme::Order, problem: Option<Problem>) -> anyhow::Error {
    let mut reasons = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        // The reasons are only for the log: without them the order's own error remains.
        let Ok(state) = authorization.refresh().await else { continue };
        for problem in state.challenges.iter().filter_map(|challenge| challenge.error.as_ref()) {
            reasons.push(format!("{} could not be validated: {}", state.identifier(), explain(problem)));
        }
    }
    match (reasons.is_empty(), problem) {
        (true, Some(problem)) => instant_acme::Error::from(problem).into(),
        (true, None) => anyhow!("the CA could not validate the host names"),
        (false, _) => anyhow!(reasons.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use bytes::Bytes;
    use http::Request;
    use http_body_util::Full;
    use instant_acme::{BodyWrapper, BytesResponse, HttpClient};
    use serde_json::json;

    use super::*;

    fn problem(kind: &str) -> anyhow::Error {
        let text = format!(r#"{{"type":"urn:ietf:params:acme:error:{kind}","detail":"two\nlines"}}"#);
        let problem: Problem = serde_json::from_str(&text).unwrap();
        instant_acme::Error::from(problem).into()
    }

    /// A CA that sends the same object for every request: directory, account, order, authorization and challenge in one.
    struct Ca {
        /// The host name that it asks to validate.
        host: &'static str,
    }

    impl HttpClient for Ca {
        fn request(
            &self,
            _: Request<BodyWrapper<Bytes>>,
        ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
            let url = "https://ca.example/";
            let challenge = json!({ "type": "tls-alpn-01", "url": url, "token": "t", "status": "pending" });
            let object = json!({
                "newNonce": url, "newAccount": url, "newOrder": url,
                "status": "pending", "authorizations": [url], "finalize": url,
                "identifier": { "type": "dns", "value": self.host }, "challenges": [challenge],
                "type": "tls-alpn-01", "url": url,
            });
            let response = http::Response::builder().header("Replay-Nonce", "n").header("Location", url);
            let response = response.body(Full::new(Bytes::from(object.to_string()))).unwrap();
            Box::pin(async { Ok(response.into()) })
        }
    }

    async fn challenges_of(host: &'static str) -> anyhow::Result<()> {
        let new = NewAccount { contact: &[], terms_of_service_agreed: true, only_return_existing: false };
        let builder = Account::builder_with_http(Box::new(Ca { host }));
        let (account, _) = builder.create(&new, "https://ca.example/".to_owned(), None).await?;
        let hosts = ["ip.example".to_owned(), "keys.example".to_owned()];
        let identifiers = hosts.clone().map(Identifier::Dns);
        let mut order = account.new_order(&NewOrder::new(&identifiers)).await?;
        let challenges = ManagedCertificate::new("none.pem".into(), "").begin_challenges();
        answer_challenges(&mut order, &hosts, &challenges).await
    }

    #[tokio::test]
    async fn challenge_for_a_host_that_is_not_in_the_order_ends_the_order() {
        challenges_of("keys.example").await.unwrap();
        for host in ["other.example", "a.ip.example", "example"] {
            let error = challenges_of(host).await.unwrap_err();
            assert!(
                error.to_string().contains(&format!("validate {host}, which is not in the order")),
                "{error}"
            );
        }
    }

    #[test]
    fn failures_are_retried_by_their_kind() {
        for (error, kind) in [
            (problem("badNonce"), FailureKind::Temporary),
            (problem("serverInternal"), FailureKind::Temporary),
            (problem("rateLimited"), FailureKind::RateLimited),
            (problem("rejectedIdentifier"), FailureKind::Rejected),
            (anyhow!("timed out"), FailureKind::Rejected),
        ] {
            assert_eq!(failure_kind(&error), kind, "{error}");
        }
        let status = RequestError::Status(http::StatusCode::BAD_GATEWAY);
        let error = instant_acme::Error::Other(Box::new(status)).into();
        assert_eq!(failure_kind(&error), FailureKind::Temporary);
        assert!(is_unknown_account(&problem("accountDoesNotExist")));
        assert_eq!(failure_reason(&problem("caa")), "two lines (caa)");
    }

    #[test]
    fn challenge_certificate_has_the_name_and_the_critical_digest() {
        let (certificate, key) = challenge_certificate("a.example", &[7; 32]).unwrap();
        let der = certificate.as_ref();
        let has = |bytes: &[u8]| der.windows(bytes.len()).any(|window| window == bytes);
        assert!(has(b"a.example"));
        // id-pe-acmeIdentifier (1.3.6.1.5.5.7.1.31), critical, with the digest as a string in a string.
        let digest =
            [&[0x06, 8, 0x2B, 6, 1, 5, 5, 7, 1, 31, 1, 1, 0xFF, 4, 34, 4, 32][..], &[7; 32]].concat();
        assert!(has(&digest), "{der:02X?}");
        assert!(matches!(key, PrivateKeyDer::Pkcs8(_)));
    }
}
