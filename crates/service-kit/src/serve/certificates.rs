//! The certificates of a port: loads them, selects one by host name, and uses replaced files.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, ensure};
use arc_swap::ArcSwap;
use opentelemetry::{KeyValue, metrics::Meter};
use rustls::{
    client::verify_server_name,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::{ClientHello, ParsedCertificate, ResolvesServerCert},
    sign::CertifiedKey,
};
use sha2::{Digest, Sha256};

use super::expiry;
use crate::readiness::Condition;

/// The files of a certificate and its key.
#[derive(Debug)]
struct FilePair {
    certificate: PathBuf,
    key: PathBuf,
    /// What was read last, even if it could not be used. Avoids loading it, and logging its error, again.
    last_read: Mutex<Fingerprint>,
}

/// A hash of both files. `None` if one of them could not be read.
type Fingerprint = Option<[u8; 32]>;

/// A certificate in use.
#[derive(Debug)]
struct LoadedCertificate {
    key: Arc<CertifiedKey>,
    not_after: SystemTime,
}

/// The certificates of a port, in the order of the flags.
#[derive(Debug)]
pub(super) struct Certificates {
    files: Vec<FilePair>,
    /// One per pair of files.
    loaded: Vec<ArcSwap<LoadedCertificate>>,
}

impl Certificates {
    /// Loads pairs of certificate and key files.
    pub(super) fn load(paths: impl Iterator<Item = (PathBuf, PathBuf)>) -> anyhow::Result<Self> {
        let (mut files, mut loaded) = (Vec::new(), Vec::new());
        for (certificate, key) in paths {
            let pair = FilePair { certificate, key, last_read: Mutex::default() };
            let (first, fingerprint) = pair
                .read()
                .and_then(|contents| Ok((contents.load()?, contents.hash())))
                .with_context(|| format!("can't use the certificate {pair}"))?;
            *pair.last_read.lock().unwrap_or_else(PoisonError::into_inner) = Some(fingerprint);
            tracing::info!(certificate = %pair.name(), expires = first.date(), "certificate loaded");
            loaded.push(ArcSwap::from_pointee(first));
            files.push(pair);
        }
        Ok(Self { files, loaded })
    }

    /// Loads the files that have changed. If a pair can't be used, the old one stays in use.
    ///
    /// Reads the files instead of their modification times: a symbolic link may be changed to an older file.
    fn reload(&self) {
        for (pair, loaded) in self.files.iter().zip(&self.loaded) {
            match pair.load_if_changed() {
                Ok(None) => {}
                Ok(Some(new)) => {
                    tracing::info!(certificate = %pair.name(), expires = new.date(), "certificate replaced");
                    loaded.store(Arc::new(new));
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(certificate = %pair.name(), error, "can't use the replaced certificate; the old one stays in use");
                }
            }
        }
    }

    pub(super) async fn follow_files(self: Arc<Self>, interval: Duration, condition: Condition) {
        loop {
            condition.set_ready(self.summary(SystemTime::now()));
            tokio::time::sleep(interval).await;
            let certificates = self.clone();
            // Fails only at shutdown, or after a panic, which the panic hook has logged.
            let _ = tokio::task::spawn_blocking(move || certificates.reload()).await;
        }
    }

    /// When each certificate expires.
    fn summary(&self, now: SystemTime) -> String {
        let line = |(pair, loaded): (&FilePair, &ArcSwap<LoadedCertificate>)| {
            let loaded = loaded.load();
            let state = match loaded.not_after.duration_since(now) {
                Ok(left) => format!("expires in {} days", left.as_secs() / 86_400),
                Err(_) => "has EXPIRED".to_owned(),
            };
            format!("{} {state} ({})", pair.name(), loaded.date())
        };
        self.files.iter().zip(&self.loaded).map(line).collect::<Vec<_>>().join("; ")
    }

    pub(super) fn publish(self: &Arc<Self>, meter: &Meter) {
        let certificates = self.clone();
        meter
            .i64_observable_gauge("tls_certificate_expiry_timestamp")
            .with_unit("s")
            .with_description("When a certificate in use expires, as Unix time")
            .with_callback(move |gauge| {
                for (pair, loaded) in certificates.files.iter().zip(&certificates.loaded) {
                    let since_epoch = loaded.load().not_after.duration_since(UNIX_EPOCH).unwrap_or_default();
                    let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
                    gauge.observe(seconds, &[KeyValue::new("certificate", pair.name())]);
                }
            })
            .build();
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().filter(|_| self.loaded.len() > 1);
        let name = name.and_then(|name| ServerName::try_from(name).ok());
        let named = name.and_then(|name| self.loaded.iter().find(|loaded| loaded.load().is_for(&name)));
        named.or(self.loaded.first()).map(|loaded| loaded.load().key.clone())
    }
}

impl LoadedCertificate {
    fn is_for(&self, name: &ServerName<'_>) -> bool {
        let parsed = self.key.end_entity_cert().and_then(ParsedCertificate::try_from);
        parsed.is_ok_and(|certificate| verify_server_name(&certificate, name).is_ok())
    }

    /// The day on which the certificate expires.
    fn date(&self) -> String {
        let time = humantime::format_rfc3339_seconds(self.not_after).to_string();
        time.split('T').next().unwrap_or_default().to_owned()
    }
}

impl FilePair {
    /// The name in logs, metrics and the readiness report.
    fn name(&self) -> String {
        self.certificate.display().to_string()
    }

    fn read(&self) -> anyhow::Result<Contents> {
        let read = |path: &Path| fs::read(path).with_context(|| format!("can't read {}", path.display()));
        Ok(Contents { certificate: read(&self.certificate)?, key: read(&self.key)? })
    }

    fn load_if_changed(&self) -> anyhow::Result<Option<LoadedCertificate>> {
        let contents = self.read();
        let fingerprint = contents.as_ref().ok().map(Contents::hash);
        let mut last_read = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        if *last_read == fingerprint {
            return Ok(None);
        }
        *last_read = fingerprint;
        contents?.load().map(Some)
    }
}

impl std::fmt::Display for FilePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with the key {}", self.certificate.display(), self.key.display())
    }
}

/// The contents of a pair of files.
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Contents {
    fn hash(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        // The length separates the files.
        hash.update(self.certificate.len().to_le_bytes());
        hash.update(&self.certificate);
        hash.update(&self.key);
        hash.finalize().into()
    }

    /// Checks that the key belongs to the certificate.
    fn load(&self) -> anyhow::Result<LoadedCertificate> {
        let chain = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<Vec<_>, _>>()
            .context("the certificate is not valid PEM")?;
        ensure!(!chain.is_empty(), "the certificate file has no certificate in PEM format");
        let not_after = expiry::not_after(&chain[0]).context("the certificate is not valid X.509")?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .context("the key file has no private key in PEM format")?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider())
            .context("the certificate and the key do not belong together or are not supported")?;
        Ok(LoadedCertificate { key: Arc::new(key), not_after })
    }
}

#[cfg(test)]
#[path = "certificates_tests.rs"]
mod tests;
