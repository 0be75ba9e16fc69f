//! The token that authenticates the clients of quota-svc, read from a file.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

/// Where `ip-lookup` stores its token, seen from the directory in which it was started with the default `--data-dir`.
/// Commands look for it there.
pub const STANDALONE_FILE: &str = "./data/quota-token";

const MIN_LENGTH: usize = 32;
const MAX_LENGTH: usize = 1024;

/// A secret that quota-svc and its clients share. Clients send it as `Authorization: Bearer TOKEN`. `Debug` redacts it.
#[derive(Debug, Clone)]
pub struct QuotaToken(SecretString);

/// Why a token file can't be used. Safe to log: contains no part of the token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file can't be read.
    #[error("can't read the quota token file {path}", path = .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// The file has no valid token.
    #[error(
        "{path} must contain a token of {MIN_LENGTH} to {MAX_LENGTH} letters, digits or punctuation marks in one line; \
         create one with: openssl rand -hex 32",
        path = .0.display()
    )]
    Invalid(PathBuf),
}

impl QuotaToken {
    /// Wraps a token: 32 to 1024 visible ASCII characters.
    pub fn new(token: &str) -> Option<Self> {
        let is_valid =
            (MIN_LENGTH..=MAX_LENGTH).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
        is_valid.then(|| Self(token.into()))
    }

    /// Reads the token from a file. Warns if other users of the machine can read it.
    pub fn load(path: &Path) -> Result<Self, TokenError> {
        let text = read_limited(path).map_err(|error| TokenError::Read(path.to_owned(), error))?;
        let mode = fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
        // The group's permissions are not checked: Kubernetes makes mounted secrets readable for the pod's group.
        if mode & 0o007 != 0 {
            let mode = format!("{:o}", mode & 0o777);
            tracing::warn!(file = %path.display(), mode, "other users can read the quota token; run chmod 600 on it");
        }
        Self::new(text.trim()).ok_or_else(|| TokenError::Invalid(path.to_owned()))
    }

    /// Reads the token of a service: `None` without `--quota-token-file`.
    pub fn load_optional(file: Option<&Path>) -> Result<Option<Self>, TokenError> {
        file.map(Self::load).transpose()
    }

    /// Reads the token of an operator's command. Without `--quota-token-file`, uses [`STANDALONE_FILE`] if it exists and
    /// `quota_url` is on this machine, so that commands for `ip-lookup` need no flag.
    pub fn load_for_command(file: Option<&Path>, quota_url: &str) -> Result<Option<Self>, TokenError> {
        let standalone = Path::new(STANDALONE_FILE);
        match file {
            Some(file) => Self::load(file).map(Some),
            None if is_loopback(quota_url) && standalone.exists() => Self::load(standalone).map(Some),
            None => Ok(None),
        }
    }

    /// The value of the `Authorization` header.
    pub(crate) fn header(&self) -> HeaderValue {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", self.0.expose_secret()))
            .expect("visible ASCII is a valid header value");
        value.set_sensitive(true);
        value
    }

    /// Whether a request has this token in its only `Authorization` header. The comparison takes the same time for every
    /// wrong token of the same length, so that response times reveal nothing about the token.
    pub fn matches(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(AUTHORIZATION).into_iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        match value.as_bytes().split_at_checked(b"Bearer ".len()) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"Bearer ") => {
                token.ct_eq(self.0.expose_secret().as_bytes()).into()
            }
            _ => false,
        }
    }
}

/// Reads a text file, but not more than a valid token can have: the path may name a device or a huge file by mistake.
fn read_limited(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(2 * MAX_LENGTH as u64).read_to_string(&mut text)?;
    Ok(text)
}

/// Whether a URL names this machine.
fn is_loopback(url: &str) -> bool {
    let url = Url::parse(url).ok();
    let host = url.as_ref().and_then(|url| url.host_str()).map(|host| host.trim_matches(['[', ']']));
    host.is_some_and(|host| {
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, value.parse().expect("valid value"))).collect()
    }

    #[test]
    fn only_the_exact_token_matches() {
        let token = QuotaToken::new(TOKEN).expect("valid token");
        assert!(token.matches(&headers(&[&format!("Bearer {TOKEN}")])));
        assert!(token.matches(&headers(&[&format!("bearer {TOKEN}")])));
        assert!(token.matches(&[(AUTHORIZATION, token.header())].into_iter().collect()));
        for wrong in [
            format!("Bearer {TOKEN}0"),
            format!("Bearer {}", &TOKEN[1..]),
            format!("Bearer {}", TOKEN.to_uppercase()),
            format!("Basic {TOKEN}"),
            TOKEN.to_owned(),
            "Bearer ".to_owned(),
            "Bearer".to_owned(),
        ] {
            assert!(!token.matches(&headers(&[&wrong])), "{wrong}");
        }
        assert!(!token.matches(&HeaderMap::new()));
        assert!(!token.matches(&headers(&[&format!("Bearer {TOKEN}"), &format!("Bearer {TOKEN}")])));
    }

    #[test]
    fn token_is_redacted_and_short_tokens_are_rejected() {
        let token = QuotaToken::new(TOKEN).expect("valid token");
        assert!(!format!("{token:?} {:?}", token.header()).contains("0123"));
        for invalid in ["", &TOKEN[1..], &format!("{TOKEN} {TOKEN}"), &format!("{TOKEN}é"), &"x".repeat(1025)]
        {
            assert!(QuotaToken::new(invalid).is_none(), "{invalid}");
        }
    }

    #[test]
    fn default_file_is_used_only_for_loopback_urls() {
        for url in ["http://127.0.0.1:8082", "http://localhost:8082/", "http://[::1]:8082"] {
            assert!(is_loopback(url), "{url}");
        }
        for url in ["http://quota.example:8082", "http://10.0.0.1", "http://localhost.example", "nonsense"] {
            assert!(!is_loopback(url), "{url}");
        }
    }
}
