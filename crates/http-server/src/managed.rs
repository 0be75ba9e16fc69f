//! A certificate that this process obtains itself while it serves: it may be missing at first, and its CA
//! checks the host names by TLS-ALPN-01 challenges (RFC 8737) on the served ports.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConfig, crypto::ring, server::ClientHello};
use tokio::sync::watch;

/// The protocol that a CA negotiates to validate a host name.
const ACME_TLS: &[u8] = b"acme-tls/1";

/// A certificate that may be missing at first, and the challenges of its CA. Clones share the status and the
/// challenges, so that several ports can use them.
#[derive(Clone, Debug)]
pub struct ManagedCertificate {
    /// Has the private key, the certificate and its chain. In one file, so that they always belong together.
    pub(crate) file: PathBuf,
    pub(crate) status: watch::Sender<String>,
    /// The TLS settings for the validation of a host name.
    pub(crate) challenges: Arc<ArcSwap<HashMap<String, Arc<ServerConfig>>>>,
}

impl ManagedCertificate {
    /// Uses the certificate and key in `file` once it exists. `status` says what it waits for until then.
    pub fn new(file: PathBuf, status: impl Into<String>) -> Self {
        Self { file, status: watch::Sender::new(status.into()), challenges: Arc::default() }
    }

    /// What the certificate waits for. Empty if there is nothing to report.
    pub fn status(&self) -> String {
        self.status.borrow().clone()
    }

    /// Changes the status, which `/readyz` reports, and makes the ports read the file.
    pub fn set_status(&self, status: impl Into<String>) {
        self.status.send_replace(status.into());
    }

    /// Begins to present challenge certificates, until the result is dropped.
    pub fn begin_challenges(&self) -> Challenges {
        Challenges(self.clone())
    }

    /// The TLS settings for a client that offers only `acme-tls/1`, and a host name with a challenge.
    pub(crate) fn challenge(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        let is_validation = hello.alpn()?.eq([ACME_TLS]);
        let name = hello.server_name().filter(|_| is_validation)?;
        self.challenges.load().get(&name.to_ascii_lowercase()).cloned()
    }
}

/// The challenge certificates that are presented. Removed on drop.
#[derive(Debug)]
pub struct Challenges(ManagedCertificate);

impl Challenges {
    /// Presents a certificate to the CA when it validates this host name.
    pub fn present(
        &self,
        name: &str,
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), rustls::Error> {
        // Not checked, unlike other certificates: rustls's check rejects the challenge's critical extension.
        let certified = CertifiedKey::new(vec![certificate], ring::sign::any_supported_type(&key)?);
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![ACME_TLS.to_vec()];
        let config = Arc::new(config);
        self.0.challenges.rcu(|challenges| {
            let mut challenges = HashMap::clone(challenges);
            challenges.insert(name.to_ascii_lowercase(), config.clone());
            challenges
        });
        Ok(())
    }
}

impl Drop for Challenges {
    fn drop(&mut self) {
        self.0.challenges.store(Arc::default());
    }
}
