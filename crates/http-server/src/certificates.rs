//! The certificates of a port: loads them, selects one by host name, and uses replaced files.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, ops::Range, path::PathBuf, sync::Arc, time::SystemTime};

use anyhow::{Context, ensure};
use arc_swap::ArcSwapOption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::{client::verify_server_name, crypto::ring, sign::CertifiedKey};

use crate::{expiry, managed::ManagedCertificate};

/// The files of a certificate and its key, and what is in use from them.
#[derive(Debug)]
pub(crate) struct FilePair {
    certificate: PathBuf,
    key: PathBuf,
    /// A hash of what was read last, even if it could not be used; 0 if a file could not be read. Avoids
    /// loading the same contents, and logging their error, again.
    last_read: AtomicU64,
    /// `None` if it has not been obtained yet, which only the managed certificate can be.
    loaded: ArcSwapOption<LoadedCertificate>,
}

/// A certificate with its chain and private key.
#[derive(Debug)]
pub struct LoadedCertificate {
    key: Arc<CertifiedKey>,
    validity: Range<SystemTime>,
}

/// The certificates of a port, in the order of the flags.
#[derive(Debug)]
pub(crate) struct Certificates {
    pairs: Vec<FilePair>,
    /// Its file is the last pair.
    pub(crate) managed: Option<ManagedCertificate>,
}

impl Certificates {
    /// Loads pairs of certificate and key files. Only the file of a managed certificate may be missing.
    pub(crate) fn load(
        paths: impl Iterator<Item = (PathBuf, PathBuf)>,
        managed: Option<ManagedCertificate>,
    ) -> anyhow::Result<Self> {
        let mut pairs: Vec<_> = paths.map(|(certificate, key)| FilePair::new(certificate, key)).collect();
        for pair in &pairs {
            let used = pair.read().and_then(|contents| pair.use_if_changed(Ok(contents)));
            let key = pair.key.display();
            used.with_context(|| format!("can't use the certificate {} with the key {key}", pair.name()))?;
        }
        pairs.extend(managed.iter().map(|managed| FilePair::new(managed.file.clone(), managed.file.clone())));
        let certificates = Self { pairs, managed };
        certificates.reload();
        Ok(certificates)
    }

    /// Loads the files that have changed. If a pair can't be used, the old one stays in use.
    ///
    /// Reads the files instead of their modification times: a symbolic link may be changed to an older file.
    pub(crate) fn reload(&self) {
        for pair in &self.pairs {
            let Err(error) = pair.use_if_changed(pair.read()) else { continue };
            let message = match pair.loaded.load().is_some() {
                true => "can't use the new certificate; the old one stays in use",
                false => "can't use the certificate",
            };
            tracing::warn!(certificate = %pair.name(), error = format!("{error:#}"), "{message}");
        }
    }

    /// When each certificate expires, or what a managed certificate that is missing waits for.
    pub(crate) fn summary(&self, now: SystemTime) -> Result<String, String> {
        if let Some(managed) = self.managed.as_ref().filter(|_| self.in_use().count() < self.pairs.len()) {
            return Err(managed.status());
        }
        let expiry = |(pair, loaded): (&FilePair, Arc<LoadedCertificate>)| {
            let state = match loaded.validity.end.duration_since(now) {
                Ok(left) => format!("expires in {} days", left.as_secs() / 86_400),
                Err(_) => "has EXPIRED".to_owned(),
            };
            format!("{} {state} ({})", pair.name(), loaded.date())
        };
        let status = self.managed.iter().map(ManagedCertificate::status).filter(|status| !status.is_empty());
        Ok(self.in_use().map(expiry).chain(status).collect::<Vec<_>>().join("; "))
    }

    pub(crate) fn in_use(&self) -> impl Iterator<Item = (&FilePair, Arc<LoadedCertificate>)> {
        self.pairs.iter().filter_map(|pair| Some((pair, pair.loaded.load_full()?)))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().filter(|_| self.pairs.len() > 1);
        let named = name.and_then(|name| self.in_use().find(|(_, loaded)| loaded.is_for(name)));
        named.or_else(|| self.in_use().next()).map(|(_, loaded)| loaded.key.clone())
    }
}

impl LoadedCertificate {
    /// Checks a certificate with its chain and its private key, in PEM format and in any order.
    pub fn from_pem(pem: &[u8]) -> anyhow::Result<Self> {
        Self::parse(pem, pem)
    }

    /// Parses both files and checks that the key belongs to the certificate.
    fn parse(certificate: &[u8], key: &[u8]) -> anyhow::Result<Self> {
        let chain = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<Vec<_>, _>>()
            .context("the certificate is not valid PEM")?;
        ensure!(!chain.is_empty(), "the certificate file has no certificate in PEM format");
        let validity = expiry::validity(&chain[0]).context("the certificate is not valid X.509")?;
        let key =
            PrivateKeyDer::from_pem_slice(key).context("the key file has no private key in PEM format")?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider())
            .context("the certificate and the key do not belong together or are not supported")?;
        Ok(Self { key: Arc::new(key), validity })
    }

    /// From when to when clients accept it.
    pub fn validity(&self) -> Range<SystemTime> {
        self.validity.clone()
    }

    /// Whether clients accept it for this host name.
    pub fn is_for(&self, name: &str) -> bool {
        let Ok(name) = ServerName::try_from(name) else { return false };
        let parsed = self.key.end_entity_cert().and_then(ParsedCertificate::try_from);
        parsed.is_ok_and(|certificate| verify_server_name(&certificate, &name).is_ok())
    }

    /// The day on which the certificate expires.
    fn date(&self) -> String {
        humantime::format_rfc3339_seconds(self.validity.end).to_string()[.."YYYY-MM-DD".len()].to_owned()
    }
}

impl FilePair {
    fn new(certificate: PathBuf, key: PathBuf) -> Self {
        Self { certificate, key, last_read: AtomicU64::default(), loaded: ArcSwapOption::empty() }
    }

    /// The name in logs, metrics and the readiness report.
    pub(crate) fn name(&self) -> String {
        self.certificate.display().to_string()
    }

    /// The contents of the certificate file and of the key file.
    fn read(&self) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
        let read = |path: &PathBuf| fs::read(path).with_context(|| format!("can't read {}", path.display()));
        let certificate = read(&self.certificate)?;
        // One file with both is read once, because it may be replaced between two reads.
        let key = if self.key == self.certificate { certificate.clone() } else { read(&self.key)? };
        Ok((certificate, key))
    }

    /// Does nothing if the contents, or the failure to read them, are the same as last time.
    fn use_if_changed(&self, contents: anyhow::Result<(Vec<u8>, Vec<u8>)>) -> anyhow::Result<()> {
        let hasher = BuildHasherDefault::<DefaultHasher>::new();
        let hash = contents.as_ref().map_or(0, |contents| hasher.hash_one(contents));
        if self.last_read.swap(hash, Ordering::Relaxed) == hash {
            return Ok(());
        }
        let (certificate, key) = contents?;
        let new = LoadedCertificate::parse(&certificate, &key)?;
        let message = match &*self.loaded.load() {
            // After a read error or an unusable pair.
            Some(used) if used.key.cert == new.key.cert => {
                tracing::info!(certificate = %self.name(), "the files contain the certificate in use again");
                return Ok(());
            }
            Some(_) => "certificate replaced",
            None => "certificate loaded",
        };
        tracing::info!(certificate = %self.name(), expires = new.date(), "{message}");
        self.loaded.store(Some(Arc::new(new)));
        Ok(())
    }
}

#[cfg(test)]
#[path = "certificates_tests.rs"]
mod tests;
