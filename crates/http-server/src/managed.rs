//! A certificate that this process obtains itself while it serves: it may be missing at first, and its CA checks the host
//! names by TLS-ALPN-01 challenges (RFC 8737) on the served ports.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::{Acceptor, ClientHello},
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::watch};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

/// The protocol that a CA negotiates to validate a host name.
const ACME_TLS: &[u8] = b"acme-tls/1";

/// A certificate that may be missing at first, and the challenges of its CA. Clones share both, so that several ports can
/// use them.
#[derive(Clone, Debug)]
pub struct ManagedCertificate {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Has the private key, the certificate and its chain. In one file, so that they always belong together.
    file: PathBuf,
    /// What the certificate waits for. Empty if there is nothing to report.
    status: watch::Sender<String>,
    /// The TLS settings for the validation of a host name.
    challenges: ArcSwap<HashMap<String, Arc<ServerConfig>>>,
}

impl ManagedCertificate {
    /// Uses the certificate and the private key in `file` as soon as it exists. `status` says what it waits for until then.
    pub fn new(file: PathBuf, status: impl Into<String>) -> Self {
        let (status, _) = watch::channel(status.into());
        Self { shared: Arc::new(Shared { file, status, challenges: ArcSwap::default() }) }
    }

    pub(crate) fn file(&self) -> &Path {
        &self.shared.file
    }

    /// What the certificate waits for. Empty if there is nothing to report.
    pub fn status(&self) -> String {
        self.shared.status.borrow().clone()
    }

    /// Changes the status, which `/readyz` reports, and makes the ports read the file.
    pub fn set_status(&self, status: impl Into<String>) {
        self.shared.status.send_replace(status.into());
    }

    /// Watches the status. The current one counts as a change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<String> {
        let mut status = self.shared.status.subscribe();
        status.mark_changed();
        status
    }

    /// Begins to present challenge certificates, until the result is dropped.
    pub fn begin_challenges(&self) -> Challenges {
        Challenges { certificate: self.clone() }
    }

    pub(crate) fn has_challenges(&self) -> bool {
        !self.shared.challenges.load().is_empty()
    }

    /// Does a TLS handshake while challenges are pending. A client that offers only `acme-tls/1`, and a host name with a
    /// challenge, gets the challenge certificate; its connection is closed, and the result is `None`.
    pub(crate) async fn accept(
        &self,
        socket: TcpStream,
        config: Arc<ServerConfig>,
    ) -> io::Result<Option<TlsStream<TcpStream>>> {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
        let Some(challenge) = self.challenge(&hello.client_hello()) else {
            return hello.into_stream(config).await.map(Some);
        };
        hello.into_stream(challenge).await?.shutdown().await?;
        Ok(None)
    }

    fn challenge(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        if !hello.alpn()?.eq([ACME_TLS]) {
            return None;
        }
        self.shared.challenges.load().get(&hello.server_name()?.to_ascii_lowercase()).cloned()
    }
}

/// The challenge certificates that are presented. Removed on drop.
#[derive(Debug)]
pub struct Challenges {
    certificate: ManagedCertificate,
}

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
        self.certificate.shared.challenges.rcu(|challenges| {
            let mut challenges = HashMap::clone(challenges);
            challenges.insert(name.to_ascii_lowercase(), config.clone());
            challenges
        });
        Ok(())
    }
}

impl Drop for Challenges {
    fn drop(&mut self) {
        self.certificate.shared.challenges.store(Arc::default());
    }
}
