//! The certificates of a port: loads them, selects one by host name, and uses replaced files.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use anyhow::{Context, ensure};
use arc_swap::ArcSwapOption;
use rustls::{
    client::verify_server_name,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::{ClientHello, ParsedCertificate, ResolvesServerCert},
    sign::CertifiedKey,
};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::{expiry, managed::ManagedCertificate};

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

/// A certificate with its chain and private key.
#[derive(Debug)]
pub struct LoadedCertificate {
    key: Arc<CertifiedKey>,
    validity: Range<SystemTime>,
}

/// The certificates of a port, in the order of the flags.
#[derive(Debug)]
pub(crate) struct Certificates {
    files: Vec<FilePair>,
    /// One per pair of files. `None` if it has not been obtained yet, which only the managed certificate can be.
    loaded: Vec<ArcSwapOption<LoadedCertificate>>,
    /// Its file is the last pair.
    managed: Option<ManagedCertificate>,
}

impl Certificates {
    /// Loads pairs of certificate and key files. Only the file of a managed certificate may be missing.
    pub(crate) fn load(
        paths: impl Iterator<Item = (PathBuf, PathBuf)>,
        managed: Option<ManagedCertificate>,
    ) -> anyhow::Result<Self> {
        let (mut files, mut loaded) = (Vec::new(), Vec::new());
        for (certificate, key) in paths {
            let pair = FilePair::new(certificate, key);
            let (first, fingerprint) = pair
                .read()
                .and_then(|contents| Ok((contents.load()?, contents.hash())))
                .with_context(|| format!("can't use the certificate {pair}"))?;
            *pair.last_read.lock().unwrap_or_else(PoisonError::into_inner) = Some(fingerprint);
            tracing::info!(certificate = %pair.name(), expires = first.date(), "certificate loaded");
            loaded.push(ArcSwapOption::from_pointee(first));
            files.push(pair);
        }
        if let Some(managed) = &managed {
            files.push(FilePair::new(managed.file().to_owned(), managed.file().to_owned()));
            loaded.push(ArcSwapOption::empty());
        }
        let certificates = Self { files, loaded, managed };
        certificates.reload();
        Ok(certificates)
    }

    pub(crate) fn managed(&self) -> Option<&ManagedCertificate> {
        self.managed.as_ref()
    }

    /// Loads the files that have changed. If a pair can't be used, the old one stays in use.
    ///
    /// Reads the files instead of their modification times: a symbolic link may be changed to an older file.
    fn reload(&self) {
        for (pair, loaded) in self.files.iter().zip(&self.loaded) {
            match pair.load_if_changed() {
                Ok(None) => {}
                // After a read error or an unusable pair.
                Ok(Some(new)) if loaded.load().as_ref().is_some_and(|used| used.key.cert == new.key.cert) => {
                    tracing::info!(certificate = %pair.name(), "the files contain the certificate in use again");
                }
                Ok(Some(new)) => {
                    let expires = new.date();
                    match loaded.swap(Some(Arc::new(new))) {
                        Some(_) => {
                            tracing::info!(certificate = %pair.name(), expires, "certificate replaced");
                        }
                        None => tracing::info!(certificate = %pair.name(), expires, "certificate loaded"),
                    }
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    let name = pair.name();
                    match loaded.load().is_some() {
                        true => {
                            tracing::warn!(certificate = %name, error, "can't use the new certificate; the old one stays in use");
                        }
                        false => tracing::warn!(certificate = %name, error, "can't use the certificate"),
                    }
                }
            }
        }
    }

    /// Never returns.
    pub(crate) async fn follow_files(
        self: Arc<Self>,
        interval: Duration,
        report: impl Fn(Result<String, String>),
    ) {
        let mut status = self.managed.as_ref().map(ManagedCertificate::subscribe);
        loop {
            report(self.missing().map_or_else(|| Ok(self.summary(SystemTime::now())), Err));
            tokio::select! {
                _ = tokio::time::sleep(interval) => {}
                _ = changed(&mut status) => {}
            }
            let certificates = self.clone();
            // Fails only at shutdown, or after a panic, which the panic hook has logged.
            let _ = tokio::task::spawn_blocking(move || certificates.reload()).await;
        }
    }

    /// What a managed certificate that is missing waits for. `None` if there is a certificate.
    fn missing(&self) -> Option<String> {
        let managed = self.managed.as_ref()?;
        self.loaded.last()?.load().is_none().then(|| managed.status())
    }

    /// When each certificate expires.
    fn summary(&self, now: SystemTime) -> String {
        let line = |(pair, loaded): (&FilePair, &ArcSwapOption<LoadedCertificate>)| {
            let Some(loaded) = &*loaded.load() else { return format!("{} is missing", pair.name()) };
            let state = match loaded.validity.end.duration_since(now) {
                Ok(left) => format!("expires in {} days", left.as_secs() / 86_400),
                Err(_) => "has EXPIRED".to_owned(),
            };
            format!("{} {state} ({})", pair.name(), loaded.date())
        };
        let lines = self.files.iter().zip(&self.loaded).map(line);
        let status =
            self.managed.as_ref().map(ManagedCertificate::status).filter(|status| !status.is_empty());
        lines.chain(status).collect::<Vec<_>>().join("; ")
    }

    /// The name of each certificate in use, and when it expires.
    pub(crate) fn expirations(&self) -> Vec<(String, SystemTime)> {
        let pairs = self.files.iter().zip(&self.loaded);
        pairs.filter_map(|(pair, loaded)| Some((pair.name(), loaded.load_full()?.validity.end))).collect()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut loaded = self.loaded.iter().filter_map(ArcSwapOption::load_full);
        let name = hello.server_name().filter(|_| self.loaded.len() > 1);
        let name = name.and_then(|name| ServerName::try_from(name).ok());
        let named = name.and_then(|name| loaded.clone().find(|loaded| loaded.matches(&name)));
        named.or_else(|| loaded.next()).map(|loaded| loaded.key.clone())
    }
}

/// Waits for a change of the status. Never returns without one.
async fn changed(status: &mut Option<watch::Receiver<String>>) {
    match status {
        // Fails only if the sender is dropped, which the certificates own.
        Some(status) => drop(status.changed().await),
        None => std::future::pending().await,
    }
}

impl LoadedCertificate {
    /// Checks a certificate with its chain and its private key, in PEM format and in any order.
    pub fn from_pem(pem: &[u8]) -> anyhow::Result<Self> {
        Contents { certificate: pem.to_owned(), key: pem.to_owned() }.load()
    }

    /// From when to when clients accept it.
    pub fn validity(&self) -> Range<SystemTime> {
        self.validity.clone()
    }

    /// Whether clients accept it for this host name.
    pub fn is_for(&self, name: &str) -> bool {
        ServerName::try_from(name).is_ok_and(|name| self.matches(&name))
    }

    fn matches(&self, name: &ServerName<'_>) -> bool {
        let parsed = self.key.end_entity_cert().and_then(ParsedCertificate::try_from);
        parsed.is_ok_and(|certificate| verify_server_name(&certificate, name).is_ok())
    }

    /// The day on which the certificate expires.
    fn date(&self) -> String {
        let time = humantime::format_rfc3339_seconds(self.validity.end).to_string();
        time.split('T').next().unwrap_or_default().to_owned()
    }
}

impl FilePair {
    fn new(certificate: PathBuf, key: PathBuf) -> Self {
        Self { certificate, key, last_read: Mutex::default() }
    }

    /// The name in logs, metrics and the readiness report.
    fn name(&self) -> String {
        self.certificate.display().to_string()
    }

    fn read(&self) -> anyhow::Result<Contents> {
        let read = |path: &Path| fs::read(path).with_context(|| format!("can't read {}", path.display()));
        let certificate = read(&self.certificate)?;
        // One file with both is read once, because it may be replaced between two reads.
        let key = if self.key == self.certificate { certificate.clone() } else { read(&self.key)? };
        Ok(Contents { certificate, key })
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

    /// Parses both files and checks that the key belongs to the certificate.
    fn load(&self) -> anyhow::Result<LoadedCertificate> {
        let chain = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<Vec<_>, _>>()
            .context("the certificate is not valid PEM")?;
        ensure!(!chain.is_empty(), "the certificate file has no certificate in PEM format");
        let validity = expiry::validity(&chain[0]).context("the certificate is not valid X.509")?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .context("the key file has no private key in PEM format")?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider())
            .context("the certificate and the key do not belong together or are not supported")?;
        Ok(LoadedCertificate { key: Arc::new(key), validity })
    }
}

#[cfg(test)]
#[path = "certificates_tests.rs"]
mod tests;
