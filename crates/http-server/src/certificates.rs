//! The certificates of a port: loads them, selects one by host name, and uses replaced files.

use std::{collections::HashMap, ops::Range, path::PathBuf, slice, sync::Arc, time::SystemTime};

use anyhow::{Context, bail, ensure};
use base::watched_files::{self, FileCheck, WatchedFiles};
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConfig, client::verify_server_name, crypto::ring};
use tokio::sync::watch;

/// Maximum size of a file.
const FILE_LIMIT: u64 = 1 << 20;

/// The protocol that a CA negotiates to validate a host name.
const ACME_TLS: &[u8] = b"acme-tls/1";

// Tags of DER elements.
const VERSION: u8 = 0xA0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// A certificate and its key: two files, or one with both. Only the managed one can be without a value.
pub(crate) type CertificateFiles = WatchedFiles<LoadedCertificate, anyhow::Error>;

/// A certificate with its chain and private key.
#[derive(Debug)]
pub struct LoadedCertificate {
    key: Arc<CertifiedKey>,
    /// From when to when clients accept it.
    pub validity: Range<SystemTime>,
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
        let new = |files| CertificateFiles::new("certificate", files, FILE_LIMIT);
        let mut pairs: Vec<_> = paths.map(|(certificate, key)| new(vec![certificate, key])).collect();
        for pair in &pairs {
            reload(pair);
            if let Some(error) = pair.take_error() {
                let key = pair.paths()[1].display();
                bail!(error.context(format!("can't use the certificate {} with the key {key}", name(pair))));
            }
        }
        pairs.extend(managed.iter().map(|managed| new(vec![managed.file.clone()]).may_be_missing()));
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
            let date = Timestamp::try_from(loaded.validity.end).unwrap_or(Timestamp::MAX).strftime("%F");
            format!("{} {state} ({date})", name(pair))
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
    /// Checks a certificate with its chain and its private key, in PEM format. The key may be in the same file.
    pub fn from_pem(certificate: &[u8], key: Option<&[u8]>) -> anyhow::Result<Self> {
        let chain = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<Vec<_>, _>>()
            .context("the certificate is not valid PEM")?;
        ensure!(!chain.is_empty(), "the certificate file has no certificate in PEM format");
        let validity = validity(&chain[0]).context("the certificate is not valid X.509")?;
        let key = PrivateKeyDer::from_pem_slice(key.unwrap_or(certificate))
            .context("the key file has no private key in PEM format")?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider())
            .context("the certificate and the key do not belong together or are not supported")?;
        Ok(Self { key: Arc::new(key), validity })
    }

    /// Whether clients accept it for this host name.
    pub fn is_for(&self, name: &str) -> bool {
        let Ok(name) = ServerName::try_from(name) else { return false };
        let parsed = self.key.end_entity_cert().and_then(ParsedCertificate::try_from);
        parsed.is_ok_and(|certificate| verify_server_name(&certificate, &name).is_ok())
    }
}

/// The name in logs, metrics and the readiness report.
pub(crate) fn name(pair: &CertificateFiles) -> String {
    pair.path().display().to_string()
}

fn reload(pair: &CertificateFiles) {
    let read = |path: &PathBuf| watched_files::read(watched_files::open(path)?, FILE_LIMIT);
    let load = || match pair.paths() {
        [certificate, key] => LoadedCertificate::from_pem(&read(certificate)?, Some(&read(key)?)),
        both => LoadedCertificate::from_pem(&read(&both[0])?, None),
    };
    if pair.check(load) == FileCheck::Removed {
        tracing::warn!(file = name(pair), "certificate or key removed; the certificate stays in use");
    }
}

/// A certificate that this process obtains while it serves: it may be missing at first, and its CA checks the host names by
/// TLS-ALPN-01 challenges (RFC 8737) on the served ports. Clones share the status and the challenges.
#[derive(Clone, Debug)]
pub struct ManagedCertificate {
    /// Has the private key, the certificate and its chain. In one file, so that they always belong together.
    pub(crate) file: PathBuf,
    pub(crate) status: watch::Sender<String>,
    /// The TLS settings for the validation of a host name.
    pub(crate) challenges: watch::Sender<HashMap<String, Arc<ServerConfig>>>,
}

impl ManagedCertificate {
    /// Uses the certificate and key in `file` once it exists. `status` says what it waits for until then.
    pub fn new(file: PathBuf, status: impl Into<String>) -> Self {
        Self { file, status: watch::Sender::new(status.into()), challenges: watch::Sender::default() }
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
        self.challenges.borrow().get(&name.to_ascii_lowercase()).cloned()
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
        let name = name.to_ascii_lowercase();
        self.0.challenges.send_modify(|configs| drop(configs.insert(name, config.into())));
        Ok(())
    }
}

impl Drop for Challenges {
    fn drop(&mut self) {
        self.0.challenges.send_replace(HashMap::new());
    }
}

/// The validity of a DER-encoded X.509 certificate, from `notBefore` to `notAfter`. `None` if malformed.
///
/// The TLS library does not show the fields of a certificate, and x509-parser would add 18 crates for these two.
fn validity(mut certificate: &[u8]) -> Option<Range<SystemTime>> {
    let (_, mut fields) = element(&mut element(&mut certificate)?.1)?;
    // The serial number comes first, or after the version.
    if element(&mut fields)?.0 == VERSION {
        element(&mut fields)?;
    }
    let (_algorithm, _issuer) = (element(&mut fields)?, element(&mut fields)?);
    let (_, mut validity) = element(&mut fields)?;
    Some(time(element(&mut validity)?)?..time(element(&mut validity)?)?)
}

/// Parses `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, the only forms that certificates may have.
fn time((tag, text): (u8, &[u8])) -> Option<SystemTime> {
    let text = str::from_utf8(text).ok()?;
    let century = match tag {
        // RFC 5280: two digits from 50 on mean the 20th century.
        UTC_TIME if text < "50" => "20",
        UTC_TIME => "19",
        GENERALIZED_TIME => "",
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", format!("{century}{text}")).ok()?;
    Some(TimeZone::UTC.to_timestamp(time).ok()?.into())
}

/// Reads a DER element, and returns its tag and content.
fn element<'a>(der: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let [tag, first, rest @ ..] = *der else { return None };
    let (digits, rest) = match first {
        0..=0x7F => (slice::from_ref(first), rest),
        // One to four more bytes have the length.
        0x81..=0x84 => rest.split_at_checked(usize::from(first & 0x7F))?,
        _ => return None,
    };
    let length = digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit));
    let content;
    (content, *der) = rest.split_at_checked(length)?;
    Some((*tag, content))
}

#[cfg(test)]
mod tests;
