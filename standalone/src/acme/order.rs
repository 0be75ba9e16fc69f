//! An order: account, validation of the host names, certificate.

use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use http_server::Challenges;
use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Identifier, NewAccount, NewOrder, OrderStatus, Problem,
    RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::Acme;
use super::state::FailureKind;

/// How long to wait for the validation, and for the certificate after that.
const POLLING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

const UNKNOWN_ACCOUNT: &str = "accountDoesNotExist";

/// How soon to try again after an order has failed, and why it has failed: with all causes, in one line.
pub fn failure(error: &anyhow::Error) -> (FailureKind, String) {
    match error.downcast_ref() {
        Some(instant_acme::Error::Api(problem)) => {
            let kind = match problem_type(problem) {
                "badNonce" | "serverInternal" | UNKNOWN_ACCOUNT => FailureKind::Temporary,
                "rateLimited" => FailureKind::RateLimited,
                _ => FailureKind::Rejected,
            };
            (kind, explain(problem))
        }
        // An error of `CaClient`.
        Some(instant_acme::Error::Other(_)) => (FailureKind::Temporary, format!("{error:#}")),
        _ => (FailureKind::Rejected, format!("{error:#}")),
    }
}

pub fn is_unknown_account(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(instant_acme::Error::Api(problem)) if problem_type(problem) == UNKNOWN_ACCOUNT)
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

impl Acme {
    /// Returns the private key, the certificate and its chain in PEM format.
    pub(super) async fn order(&mut self) -> anyhow::Result<String> {
        let account = self.account().await?;
        let hosts = &self.state.hosts;
        let identifiers: Vec<_> = hosts.iter().cloned().map(Identifier::Dns).collect();
        let mut order = account.new_order(&NewOrder::new(&identifiers)).await?;
        let challenges = self.certificate.begin_challenges();
        answer_challenges(&mut order, hosts, &challenges).await?;
        let status = match order.poll_ready(&POLLING).await {
            Ok(OrderStatus::Invalid) => Err(anyhow!("the CA could not validate the host names")),
            status => status.map_err(anyhow::Error::from),
        };
        drop(challenges);
        if let Err(error) = status {
            return Err(validation_error(&mut order).await.unwrap_or(error));
        }
        let key = order.finalize().await?;
        Ok(key + &order.poll_certificate(&POLLING).await?)
    }

    /// The stored account, or a new one.
    async fn account(&mut self) -> anyhow::Result<Account> {
        let builder = Account::builder_with_http(Box::new(self.client.clone()));
        let contact = format!("mailto:{}", self.email);
        let account = if let Some(credentials) = &self.state.account {
            let account = builder.from_credentials(serde_json::from_value(credentials.clone())?).await?;
            if self.state.email == self.email {
                return Ok(account);
            }
            account.update_contacts(&[&contact]).await?;
            account
        } else {
            let new = NewAccount {
                contact: &[&contact],
                terms_of_service_agreed: true,
                only_return_existing: false,
            };
            let directory = self.state.directory.clone();
            let (account, credentials) =
                builder.create(&new, directory, self.external_account.as_ref()).await?;
            tracing::info!(directory = self.state.directory, "account created at the CA");
            self.state.account = Some(serde_json::to_value(credentials)?);
            account
        };
        self.state.email.clone_from(&self.email);
        self.state.save(&self.dir)?;
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
        let is_ordered = hosts.iter().any(|ordered| ordered.eq_ignore_ascii_case(&host));
        ensure!(is_ordered, "the CA asks to validate {host}, which is not in the order");
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

/// Says which host names could not be validated, and why. `None` if the CA does not say.
async fn validation_error(order: &mut instant_acme::Order) -> Option<anyhow::Error> {
    let mut reasons = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { continue };
        for problem in state.challenges.iter().filter_map(|challenge| challenge.error.as_ref()) {
            reasons.push(format!("{} could not be validated: {}", state.identifier(), explain(problem)));
        }
    }
    (!reasons.is_empty()).then(|| anyhow!(reasons.join("; ")))
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use bytes::Bytes;
    use http::Request;
    use http_body_util::Full;
    use http_server::ManagedCertificate;
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
            (problem("accountDoesNotExist"), FailureKind::Temporary),
            (problem("rateLimited"), FailureKind::RateLimited),
            (problem("rejectedIdentifier"), FailureKind::Rejected),
            (anyhow!("timed out"), FailureKind::Rejected),
        ] {
            assert_eq!(failure(&error).0, kind, "{error}");
        }
        let error = anyhow!("no route").context("can't reach the CA");
        let error = instant_acme::Error::Other(error.into()).into();
        assert_eq!(failure(&error), (FailureKind::Temporary, "can't reach the CA: no route".to_owned()));
        assert!(is_unknown_account(&problem("accountDoesNotExist")));
        assert_eq!(failure(&problem("caa")).1, "two lines (caa)");
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
