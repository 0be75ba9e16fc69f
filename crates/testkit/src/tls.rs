//! A certificate authority for one test, and a server certificate that it signs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// The files that a TLS server on loopback and its clients need.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Certificate of the authority, which clients must trust.
    pub ca: PathBuf,
    /// Server certificate, by default for `localhost` and `127.0.0.1`.
    pub cert: PathBuf,
    /// Private key of the server.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Creates a new authority and a server certificate, and writes the files into `dir`.
    #[must_use]
    pub fn create(dir: &Path) -> Self {
        Self::create_for(dir, &["localhost", "127.0.0.1"])
    }

    /// Like [`TlsFiles::create`], with a certificate for other names.
    #[must_use]
    pub fn create_for(dir: &Path, names: &[&str]) -> Self {
        let files =
            Self { ca: dir.join("ca.crt"), cert: dir.join("server.crt"), key: dir.join("server.key") };
        let authority = new_authority();
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let key = KeyPair::generate().expect("new key pair");
        let mut params = CertificateParams::new(names).expect("valid subject names");
        // By default both certificates have the same name, so OpenSSL would treat the server's as self-signed.
        params.distinguished_name.push(DnType::CommonName, "test server");
        let cert = params.signed_by(&key, &authority).expect("signed certificate");
        write(&files.ca, &authority.pem());
        write(&files.cert, &cert.pem());
        write(&files.key, &key.serialize_pem());
        files
    }

    /// A client that trusts the authority and resumes no sessions.
    ///
    /// # Panics
    /// If the file of the authority is gone.
    #[must_use]
    pub fn connector(&self) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(&self.ca).expect("the authority's file");
        roots.add(ca).expect("valid certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("supported versions").with_root_certificates(roots);
        let mut config = config.with_no_client_auth();
        config.resumption = Resumption::disabled();
        Arc::new(config).into()
    }
}

fn new_authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("valid parameters");
    params.distinguished_name.push(DnType::CommonName, "test authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("new key pair");
    CertifiedIssuer::self_signed(params, key).expect("self-signed certificate")
}

fn write(file: &Path, pem: &str) {
    std::fs::write(file, pem).expect("temporary directory is writable");
}
