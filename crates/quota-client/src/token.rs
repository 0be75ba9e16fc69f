//! The token that authenticates the clients of quota-svc, read from a file.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use subtle::ConstantTimeEq;

const MIN_LENGTH: usize = 32;
const MAX_LENGTH: usize = 1024;

/// Minimum time between two reads of the file, so that a flood of wrong tokens does not cause a flood of reads.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// A secret that quota-svc and its clients share. Clients send it as `Authorization: Bearer TOKEN`. `Debug` redacts it.
///
/// Kubernetes replaces the file when the Secret changes. Each side keeps its old token until a request's token does not
/// match; then it reads its file again. Clones share the token.
#[derive(Debug, Clone)]
pub struct QuotaToken {
    path: PathBuf,
    content: Arc<RwLock<Content>>,
}

#[derive(Debug)]
struct Content {
    /// `Bearer TOKEN`, marked as sensitive.
    header: HeaderValue,
    read_at: Instant,
}

/// Why a token file can't be used. Safe to log: contains no part of the token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(
        "--quota-token-file is missing. Create a token with `openssl rand -hex 32 > quota-token && chmod 600 quota-token`, \
         and set the flag to this file for quota-svc and for its clients. `ip-lookup` has its token in the file quota-token \
         of its --data-dir"
    )]
    Missing,
    #[error("can't read the quota token file {path}", path = .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error(
        "{path} must contain a token of {MIN_LENGTH} to {MAX_LENGTH} letters, digits or punctuation marks in one line; \
         create one with: openssl rand -hex 32",
        path = .0.display()
    )]
    Invalid(PathBuf),
}

impl QuotaToken {
    /// Reads the token from a file. Warns if other users of the machine can read it.
    pub fn load(path: &Path) -> Result<Self, TokenError> {
        let header = read_header(path)?;
        let mode = fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
        // The group's permissions are not checked: Kubernetes makes mounted secrets readable for the pod's group.
        if mode & 0o007 != 0 {
            let mode = format!("{:o}", mode & 0o777);
            tracing::warn!(file = %path.display(), mode, "other users can read the quota token; run chmod 600 on it");
        }
        let content = Arc::new(RwLock::new(Content { header, read_at: Instant::now() }));
        Ok(Self { path: path.to_owned(), content })
    }

    /// Reads the token from the file that `--quota-token-file` names. Fails without the flag.
    pub fn load_flag(file: Option<&Path>) -> Result<Self, TokenError> {
        Self::load(file.ok_or(TokenError::Missing)?)
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.content.read().unwrap_or_else(PoisonError::into_inner).header.clone()
    }

    /// Whether there is now a different token than in `rejected`, an `Authorization` header that did not match. Reads the
    /// file again, at most once per [`RELOAD_INTERVAL`].
    pub(crate) fn has_replaced(&self, rejected: &HeaderValue) -> bool {
        let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
        if content.header == rejected && content.read_at.elapsed() >= RELOAD_INTERVAL {
            content.read_at = Instant::now();
            match read_header(&self.path) {
                Ok(header) => content.header = header,
                Err(error) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, cause, "still using the previous quota token");
                }
            }
        }
        content.header != rejected
    }

    /// Whether a request has this token in its only `Authorization` header. The comparison takes the same time for every
    /// wrong token of the same length, so that response times reveal nothing about the token.
    pub fn matches(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(AUTHORIZATION).into_iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        let own = self.header();
        is_equal(value, &own) || (self.has_replaced(&own) && is_equal(value, &self.header()))
    }
}

/// Compares two `Authorization` headers, the first one from a request.
fn is_equal(sent: &HeaderValue, own: &HeaderValue) -> bool {
    const SCHEME: &[u8] = b"Bearer ";
    let Some((scheme, token)) = sent.as_bytes().split_at_checked(SCHEME.len()) else { return false };
    scheme.eq_ignore_ascii_case(SCHEME) && token.ct_eq(&own.as_bytes()[SCHEME.len()..]).into()
}

/// Reads a token file into the value of an `Authorization` header. A token is 32 to 1024 visible ASCII characters.
fn read_header(path: &Path) -> Result<HeaderValue, TokenError> {
    let mut text = String::new();
    // The path may name a device or a huge file by mistake.
    let read = File::open(path).and_then(|file| file.take(2 * MAX_LENGTH as u64).read_to_string(&mut text));
    read.map_err(|error| TokenError::Read(path.to_owned(), error))?;
    let token = text.trim();
    let is_valid =
        (MIN_LENGTH..=MAX_LENGTH).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
    let header = is_valid.then(|| HeaderValue::from_str(&format!("Bearer {token}")).ok()).flatten();
    let mut header = header.ok_or_else(|| TokenError::Invalid(path.to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, value.parse().expect("valid value"))).collect()
    }

    fn load(token: &str) -> (Result<QuotaToken, TokenError>, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        fs::write(&file, token).expect("write the token");
        (QuotaToken::load(file.path()), file)
    }

    #[test]
    fn only_the_exact_token_matches() {
        let token = load(TOKEN).0.expect("valid token");
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
        let token = load(TOKEN).0.expect("valid token");
        assert!(!format!("{token:?} {:?}", token.header()).contains("0123"));
        for invalid in ["", &TOKEN[1..], &format!("{TOKEN} {TOKEN}"), &format!("{TOKEN}é"), &"x".repeat(1025)]
        {
            assert!(load(invalid).0.is_err(), "{invalid}");
        }
    }

    #[test]
    fn changed_file_is_read_at_most_once_per_interval_and_invalid_content_is_ignored() {
        let (token, file) = load(TOKEN);
        let token = token.expect("valid token");
        let new = headers(&[&format!("Bearer {}", TOKEN.to_uppercase())]);
        let age = |token: &QuotaToken| {
            let mut content = token.content.write().expect("not poisoned");
            content.read_at = content.read_at.checked_sub(RELOAD_INTERVAL).expect("a clock past its start");
        };
        fs::write(&file, "short").expect("write the token");
        age(&token);
        assert!(!token.matches(&new) && token.matches(&headers(&[&format!("Bearer {TOKEN}")])));
        fs::write(&file, TOKEN.to_uppercase()).expect("write the token");
        assert!(!token.matches(&new), "the file was read a moment ago");
        age(&token);
        assert!(token.matches(&new) && !token.matches(&headers(&[&format!("Bearer {TOKEN}")])));
    }
}
