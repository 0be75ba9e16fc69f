//! A certificate authority that lives for one test, and a server certificate of it.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// The files a TLS server on loopback and its clients need.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The authority's certificate: what a client must trust.
    pub ca: PathBuf,
    /// The server's certificate, for `localhost` and `127.0.0.1`.
    pub cert: PathBuf,
    /// The server's private key.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Makes a new authority and a certificate, and writes them into `dir`.
    ///
    /// # Panics
    /// When the files can't be written.
    #[must_use]
    pub fn create(dir: &Path) -> Self {
        let files =
            Self { ca: dir.join("ca.crt"), cert: dir.join("server.crt"), key: dir.join("server.key") };
        let authority = new_authority();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let key = KeyPair::generate().expect("a key pair");
        let mut params = CertificateParams::new(names).expect("valid subject names");
        // By default both would have one name, and OpenSSL would take the certificate for its own issuer.
        params.distinguished_name.push(DnType::CommonName, "test server");
        let cert = params.signed_by(&key, &authority).expect("a signed certificate");
        write(&files.ca, &authority.pem());
        write(&files.cert, &cert.pem());
        write(&files.key, &key.serialize_pem());
        files
    }
}

fn new_authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("no subject names, so none that is wrong");
    params.distinguished_name.push(DnType::CommonName, "test authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key pair");
    CertifiedIssuer::self_signed(params, key).expect("a self-signed certificate")
}

fn write(file: &Path, pem: &str) {
    std::fs::write(file, pem).expect("the temporary folder can be written");
}
