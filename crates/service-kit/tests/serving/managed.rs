//! A certificate that the process obtains itself: missing at first, and the challenges of its CA.

use std::{fs, io, sync::Arc};

use http_server::{Challenges, Lifecycle, ManagedCertificate, Server, Tls, TlsArgs};
use poem::{EndpointExt, endpoint::make_sync};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::harness::{TIMEOUT, TestServer, args};

const NAME: &str = "a.example";

/// A server with a managed certificate.
struct Managed {
    server: TestServer,
    certificate: ManagedCertificate,
    _folder: TempDir,
}

/// Accepts only this certificate. Like a CA, and unlike the TLS library, it accepts the extension of a challenge.
#[derive(Debug)]
struct Only(CertificateDer<'static>, CryptoProvider);

impl ServerCertVerifier for Only {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match *certificate == self.0 {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(Error::General("another certificate".to_owned())),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.1.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.1.signature_verification_algorithms,
        ) {
            // The library can't read the certificate of a challenge.
            Err(Error::InvalidCertificate(_)) => Ok(HandshakeSignatureValid::assertion()),
            result => result,
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.1.signature_verification_algorithms.supported_schemes()
    }
}

/// A self-signed certificate for `name`.
fn self_signed(name: &str, extensions: Vec<CustomExtension>) -> (CertificateDer<'static>, KeyPair, String) {
    let mut params = CertificateParams::new([name.to_owned()]).expect("valid name");
    params.custom_extensions = extensions;
    let key = KeyPair::generate().expect("key");
    let certificate = params.self_signed(&key).expect("certificate");
    let pem = key.serialize_pem() + &certificate.pem();
    (certificate.der().clone(), key, pem)
}

/// Starts a server. `pem` is the content of the managed file, if it exists.
async fn serve(pem: Option<&str>) -> Managed {
    let folder = TempDir::new().expect("folder");
    let file = folder.path().join("certificate.pem");
    if let Some(pem) = pem {
        fs::write(&file, pem).expect("write");
    }
    let certificate = ManagedCertificate::new(file, "waiting");
    let tls = TlsArgs { managed: Some(certificate.clone()), ..TlsArgs::default() };
    let tls = Tls::load(&tls).expect("may be missing").expect("TLS");
    let server = Server::bind("test", ([127, 0, 0, 1], 0).into(), &args()).await.expect("bind");
    let (addr, lifecycle) = (server.local_addr(), Lifecycle::new(&args()));
    let endpoint = make_sync(|_| "hello").map_to_response().boxed();
    let task = tokio::spawn(server.tls(Some(tls)).serve(endpoint, lifecycle.clone()));
    Managed { server: TestServer { addr, lifecycle, task }, certificate, _folder: folder }
}

impl Managed {
    /// Does a handshake as a client that accepts only `trusted` and offers these protocols.
    async fn connect(
        &self,
        name: &str,
        trusted: &CertificateDer<'static>,
        protocols: &[&str],
    ) -> io::Result<TlsStream<TcpStream>> {
        service_kit::runtime::install_crypto_provider();
        let mut config = ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Only(trusted.clone(), ring::default_provider())))
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).expect("valid name");
        let socket = TcpStream::connect(self.server.addr).await?;
        let handshake = TlsConnector::from(Arc::new(config)).connect(name, socket);
        timeout(TIMEOUT, handshake).await.expect("in time")
    }

    fn present(&self, name: &str) -> (Challenges, CertificateDer<'static>) {
        let extension = CustomExtension::new_acme_identifier(&[7; 32]);
        let (challenge, key, _) = self_signed(name, vec![extension]);
        let challenges = self.certificate.begin_challenges();
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("valid key");
        challenges.present(name, challenge.clone(), key).expect("valid certificate");
        (challenges, challenge)
    }
}

fn protocol(stream: &TlsStream<TcpStream>) -> Option<&[u8]> {
    stream.get_ref().1.alpn_protocol()
}

#[tokio::test]
async fn handshake_without_certificate_fails_with_an_alert() {
    let managed = serve(None).await;
    let (other, ..) = self_signed(NAME, Vec::new());
    let error = managed.connect(NAME, &other, &["h2"]).await.expect_err("no certificate").to_string();
    assert!(error.contains("received fatal alert"), "{error}");
}

#[tokio::test]
async fn challenge_works_before_there_is_a_certificate() {
    let managed = serve(None).await;
    let (_challenges, challenge) = managed.present(NAME);
    assert!(managed.connect(NAME, &challenge, &["acme-tls/1"]).await.is_ok());
    assert!(managed.connect(NAME, &challenge, &["http/1.1"]).await.is_err());
}

#[tokio::test]
async fn challenge_certificate_is_presented_only_to_its_validation() {
    let (certificate, _, pem) = self_signed(NAME, Vec::new());
    let managed = serve(Some(&pem)).await;
    let error = managed.connect(NAME, &certificate, &["acme-tls/1"]).await.expect_err("no challenge yet");
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");

    let (challenges, challenge) = managed.present(NAME);
    let mut validation = managed.connect("A.example", &challenge, &["acme-tls/1"]).await.expect("handshake");
    assert_eq!(protocol(&validation), Some(&b"acme-tls/1"[..]));
    let closed = timeout(TIMEOUT, validation.read(&mut [0; 1])).await.expect("in time");
    assert_eq!(closed.expect("orderly close"), 0);

    for (protocols, want) in [
        (&["acme-tls/1", "h2"][..], Some(&b"h2"[..])),
        (&["http/1.1", "acme-tls/1"], Some(&b"http/1.1"[..])),
        (&[], None),
    ] {
        let client = managed.connect(NAME, &certificate, protocols).await.expect("handshake");
        assert_eq!(protocol(&client), want);
    }
    let mut client = managed.connect(NAME, &certificate, &[]).await.expect("handshake");
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("send");
    client.flush().await.expect("send");
    let mut response = String::new();
    client.read_to_string(&mut response).await.expect("response");
    assert!(response.ends_with("hello"), "{response}");
    let (other, ..) = self_signed("b.example", Vec::new());
    assert!(managed.connect("b.example", &other, &["acme-tls/1"]).await.is_err(), "no challenge for it");

    drop(challenges);
    let error = managed.connect(NAME, &challenge, &["acme-tls/1"]).await.expect_err("the challenge is over");
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
}
