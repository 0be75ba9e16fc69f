//! TLS of a port: flags, protocol versions and the facts of a session.

use std::time::{Duration, SystemTime};
use std::{io, path::PathBuf, sync::Arc};

use anyhow::ensure;
use futures_util::future::OptionFuture;
use rustls::{CipherSuite, ProtocolVersion, ServerConfig, crypto::ring, server::Acceptor};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

use crate::certificates::{self, Certificates, ManagedCertificate};

/// Flags for serving HTTPS.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// PEM file with a certificate and its chain; serves HTTPS instead of plain HTTP. Repeat it, each with a
    /// --tls-key, for several host names: clients that ask for none of them get the first. New file contents
    /// are used within 5 s, without a restart
    #[arg(long, env, value_name = "FILE", value_delimiter = ',', requires = "tls_key")]
    pub tls_cert: Vec<PathBuf>,

    /// PEM file with the private key of the certificate at the same position
    #[arg(long, env, value_name = "FILE", value_delimiter = ',', requires = "tls_cert")]
    pub tls_key: Vec<PathBuf>,

    /// Oldest TLS version to accept
    #[arg(long, env, value_enum, value_name = "VERSION", default_value = "1.2")]
    pub tls_min_version: TlsVersion,

    /// A certificate that the process obtains itself; no flag.
    #[arg(skip)]
    pub managed: Option<ManagedCertificate>,
}

base::default_from_flags!(TlsArgs);

/// A version of TLS.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[value(name = "1.2")]
    V1_2,
    /// TLS 1.3.
    #[value(name = "1.3")]
    V1_3,
}

/// The TLS settings of a port. Clones share the certificates.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
}

impl Tls {
    /// Loads the certificates. `None` without `--tls-cert` and without a managed certificate.
    pub fn load(args: &TlsArgs) -> anyhow::Result<Option<Self>> {
        let TlsArgs { tls_cert, tls_key, tls_min_version, managed } = args;
        ensure!(
            tls_cert.len() == tls_key.len(),
            "there are {} --tls-cert and {} --tls-key: each certificate needs its key at the same position",
            tls_cert.len(),
            tls_key.len()
        );
        if tls_cert.is_empty() && managed.is_none() {
            return Ok(None);
        }
        let files = tls_cert.iter().cloned().zip(tls_key.iter().cloned());
        let certificates = Arc::new(Certificates::load(files, managed.clone())?);
        let versions = match tls_min_version {
            TlsVersion::V1_2 => &[&rustls::version::TLS12, &rustls::version::TLS13][..],
            TlsVersion::V1_3 => &[&rustls::version::TLS13],
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)?
            .with_no_client_auth()
            .with_cert_resolver(certificates.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Clients keep their sessions, encrypted with keys that change every six hours. The default, a cache of 256
        // sessions in the server, is too small for a public service.
        config.ticketer = ring::Ticketer::new()?;
        Ok(Some(Self { config: Arc::new(config), certificates }))
    }

    /// Does the TLS handshake. `None` if it was a CA's validation of a host name, which then is complete.
    pub(crate) async fn accept(&self, socket: TcpStream) -> io::Result<Option<(Box<dyn Socket>, TlsInfo)>> {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
        let managed = self.certificates.managed.as_ref();
        if let Some(challenge) = managed.and_then(|managed| managed.challenge(&hello.client_hello())) {
            hello.into_stream(challenge).await?.shutdown().await?;
            return Ok(None);
        }
        let mut stream = hello.into_stream(self.config.clone()).await?;
        let session = stream.get_mut().1;
        // For a client that does not read. These bytes do not count as unsent.
        session.set_buffer_limit(Some(16 * 1024));
        let version = match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => Some("TLSv1.2"),
            Some(ProtocolVersion::TLSv1_3) => Some("TLSv1.3"),
            _ => None,
        };
        let cipher = session.negotiated_cipher_suite().and_then(|suite| iana_name(suite.suite()));
        let info = TlsInfo { version, cipher, server_name: session.server_name().map(Into::into) };
        Ok(Some((Box::new(stream), info)))
    }

    /// The name of each certificate in use, and when it expires.
    pub fn expirations(&self) -> Vec<(String, SystemTime)> {
        let in_use = self.certificates.in_use();
        in_use.map(|(pair, loaded)| (certificates::name(pair), loaded.validity.end)).collect()
    }

    /// Checks the files every `interval`, uses replaced ones and reports when the certificates expire, or the reason why
    /// there is none: an expired one must not take every instance out of service. Never returns.
    pub async fn follow_files(self, interval: Duration, report: impl Fn(Result<String, String>)) {
        let certificates = self.certificates;
        let mut status = certificates.managed.as_ref().map(|managed| managed.status.subscribe());
        // Notices a change since the certificates were loaded.
        status.iter_mut().for_each(|status| status.mark_changed());
        loop {
            report(certificates.summary(SystemTime::now()));
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                // Without a managed certificate this is `None`, and only the interval counts.
                Some(_) = OptionFuture::from(status.as_mut().map(|status| status.changed())) => {}
            }
            let certificates = certificates.clone();
            // Fails only at shutdown, or after a panic, which the panic hook has logged.
            let _ = tokio::task::spawn_blocking(move || certificates.reload()).await;
        }
    }
}

/// The version, cipher suite and server name of a TLS session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// Such as `TLSv1.3`.
    pub version: Option<&'static str>,
    /// The IANA name, such as `TLS_AES_128_GCM_SHA256`.
    pub cipher: Option<&'static str>,
    /// The host name that the client has asked for (SNI), in lower case.
    pub server_name: Option<Box<str>>,
}

/// The IANA name of a suite. rustls names those of TLS 1.3 `TLS13_...`.
fn iana_name(suite: CipherSuite) -> Option<&'static str> {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => Some("TLS_AES_128_GCM_SHA256"),
        CipherSuite::TLS13_AES_256_GCM_SHA384 => Some("TLS_AES_256_GCM_SHA384"),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Some("TLS_CHACHA20_POLY1305_SHA256"),
        other => other.as_str(),
    }
}

/// A connection's socket, with or without TLS.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {
    /// Whether TLS has negotiated HTTP/2 (ALPN). `None` if it has negotiated nothing.
    fn negotiated_http2(&self) -> Option<bool> {
        None
    }

    /// Ends a TLS session before the socket is closed, as far as that is possible without waiting. Otherwise the client
    /// can't distinguish the end from an attack that cuts the connection, and many report an error.
    fn end_session(&mut self) {}
}

impl Socket for TcpStream {}

impl Socket for TlsStream<TcpStream> {
    fn negotiated_http2(&self) -> Option<bool> {
        self.get_ref().1.alpn_protocol().map(|protocol| protocol == b"h2")
    }

    fn end_session(&mut self) {
        let (socket, session) = self.get_mut();
        session.send_close_notify();
        let mut close = Vec::new();
        // Fails if the socket is full or the client has closed it.
        let _ = session.write_tls(&mut close).and_then(|_| socket.try_write(&close));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_supported_suite_has_its_iana_name() {
        let mut names = Vec::new();
        for suite in &rustls::crypto::ring::default_provider().cipher_suites {
            names.push(iana_name(suite.suite()).expect("a name"));
        }
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "TLS_AES_128_GCM_SHA256",
                "TLS_AES_256_GCM_SHA384",
                "TLS_CHACHA20_POLY1305_SHA256",
                "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
                "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            ]
        );
    }

    #[test]
    fn certificate_without_key_is_rejected() {
        assert!(Tls::load(&TlsArgs::default()).expect("valid").is_none());
        let args = TlsArgs { tls_cert: vec!["a.pem".into()], ..TlsArgs::default() };
        let error = Tls::load(&args).expect_err("no key").to_string();
        assert!(error.contains("1 --tls-cert and 0 --tls-key"), "{error}");
    }
}
