//! The certificates of a port: loads them, selects one by host name, and uses replaced files.

use std::{ops::Range, path::PathBuf, sync::Arc, time::SystemTime};

use anyhow::{Context, ensure};
use base::watched_files::{self, FileCheck, WatchedFiles};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::{client::verify_server_name, crypto::ring, sign::CertifiedKey};

use crate::{expiry, managed::ManagedCertificate};

/// Maximum size of a file.
const FILE_LIMIT: u64 = 1 << 20;

/// A certificate and its key: two files, or one with both. Only the managed one can be without a value.
pub(crate) type CertificateFiles = WatchedFiles<LoadedCertificate, anyhow::Error>;

/// A certificate with its chain and private key.
#[derive(Debug)]
pub struct LoadedCertificate {
    key: Arc<CertifiedKey>,
    validity: Range<SystemTime>,
}

/// The certificates of a port, in the order of the flags.
#[derive(Debug)]
pub(crate) struct Certificates {
    pairs: Vec<CertificateFiles>,
    /// Its file is the last pair.
    pub(crate) managed: Option<ManagedCertificate>,
}

impl Certificates {
    /// Loads pairs of certificate and key files. Only the file of a managed certificate may be missing.
    pub(crate) fn load(
        paths: impl Iterator<Item = (PathBuf, PathBuf)>,
        managed: Option<ManagedCertificate>,
    ) -> anyhow::Result<Self> {
        let mut pairs = Vec::new();
        for (certificate, key) in paths {
            let pair = CertificateFiles::new("certificate", vec![certificate, key], FILE_LIMIT);
            reload(&pair);
            let key = pair.paths()[1].display();
            let context = || format!("can't use the certificate {} with the key {key}", name(&pair));
            match pair.take_error() {
                Some(error) => return Err(error).with_context(context),
                None => pairs.push(pair),
            }
        }
        if let Some(managed) = &managed {
            let file = vec![managed.file.clone()];
            pairs.push(CertificateFiles::new("certificate", file, FILE_LIMIT).may_be_missing());
        }
        let certificates = Self { pairs, managed };
        certificates.reload();
        Ok(certificates)
    }

    /// Loads the files that have changed. If a pair can't be used, the old one stays in use.
    pub(crate) fn reload(&self) {
        self.pairs.iter().for_each(reload);
    }

    /// When each certificate expires, or what a managed certificate that is missing waits for.
    pub(crate) fn summary(&self, now: SystemTime) -> Result<String, String> {
        if let Some(managed) = self.managed.as_ref().filter(|_| self.in_use().count() < self.pairs.len()) {
            return Err(managed.status());
        }
        let expiry = |(pair, loaded): (&CertificateFiles, Arc<LoadedCertificate>)| {
            let state = match loaded.validity.end.duration_since(now) {
                Ok(left) => format!("expires in {} days", left.as_secs() / 86_400),
                Err(_) => "has EXPIRED".to_owned(),
            };
            format!("{} {state} ({})", name(pair), loaded.date())
        };
        let status = self.managed.iter().map(ManagedCertificate::status).filter(|status| !status.is_empty());
        Ok(self.in_use().map(expiry).chain(status).collect::<Vec<_>>().join("; "))
    }

    pub(crate) fn in_use(&self) -> impl Iterator<Item = (&CertificateFiles, Arc<LoadedCertificate>)> {
        self.pairs.iter().filter_map(|pair| Some((pair, pair.value()?)))
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

/// The name in logs, metrics and the readiness report.
pub(crate) fn name(pair: &CertificateFiles) -> String {
    pair.path().display().to_string()
}

fn reload(pair: &CertificateFiles) {
    let read = |path: &PathBuf| watched_files::read(watched_files::open(path)?, FILE_LIMIT);
    let load = || match pair.paths() {
        [certificate, key] => LoadedCertificate::parse(&read(certificate)?, &read(key)?),
        both => LoadedCertificate::from_pem(&read(&both[0])?),
    };
    if pair.check(load) == FileCheck::Removed {
        tracing::warn!(file = name(pair), "certificate or key removed; the certificate stays in use");
    }
}

#[cfg(test)]
mod tests;
