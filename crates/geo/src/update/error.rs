//! Errors of `geo-update`. Of a URL, their messages contain at most the host. They never contain a token or key.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use crate::GeoError;

/// The result of a step of an update.
pub type Result<T, E = UpdateError> = std::result::Result<T, E>;

/// Why an update failed. The installed file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    #[error("{0}")]
    Usage(String),
    #[error("can't build the URL of a database")]
    Url(#[from] url::ParseError),
    #[error("can't read {}", path.display())]
    SecretFile { path: PathBuf, source: std::io::Error },
    #[error("can't create the HTTP client")]
    Client(#[source] reqwest::Error),
    /// Connecting, sending or receiving failed. The URL has been removed from the error.
    #[error("can't download from {host}")]
    Http { host: String, source: reqwest::Error },
    #[error("can't resolve {host}: no network?")]
    Unresolved { host: String },
    #[error("too many redirects, or a redirect from https to http")]
    Redirect,
    /// 404 or 410.
    #[error("the server does not have this file")]
    NotFound,
    /// 401 or 403.
    #[error("the server rejected the credentials (status {0})")]
    CredentialsRejected(u16),
    #[error("the server responded with status {0}")]
    Status(u16),
    #[error("the server responded \"not modified\" (304) to an unconditional request")]
    NotModified,
    #[error("the file is larger than {0} bytes (--max-size)")]
    TooLarge(u64),
    #[error("did not finish within {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
    /// An HTML page: a sign-in form, a captive portal or an error page with status 200.
    #[error("the server sent a web page instead of a database")]
    WebPage,
    /// Not a checksum: a web page, invalid JSON or the wrong number of digits.
    #[error("the provider's checksum is invalid")]
    ChecksumFormat,
    #[error("the checksum does not match")]
    Checksum,
    #[error("can't unpack the archive")]
    Archive(#[source] std::io::Error),
    #[error("the archive contains no .mmdb file")]
    NoDatabase,
    /// Downloaded and unpacked, but not a usable database. The text of the reason continues this one and contains its
    /// own source, so it is not a `#[source]`, which would be printed once more.
    #[error("the downloaded file {0}")]
    Unusable(GeoError),
    /// Unpacking or verifying the download panicked.
    #[error("can't process the download")]
    Panicked(#[source] tokio::task::JoinError),
    #[error("I/O error in the target directory")]
    TargetDir(#[from] std::io::Error),
    #[error("another geo-update is running in this directory")]
    Locked,
}

impl From<reqwest::Error> for UpdateError {
    fn from(error: reqwest::Error) -> Self {
        if error.is_redirect() {
            return UpdateError::Redirect;
        }
        let host = error.url().and_then(|url| url.host_str()).unwrap_or("the server").to_owned();
        let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
        match causes.any(|cause| cause.to_string().starts_with("dns error")) {
            true => UpdateError::Unresolved { host },
            false => UpdateError::Http { host, source: error.without_url() },
        }
    }
}

impl UpdateError {
    /// Whether a retry may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            UpdateError::Http { source, .. } => !source.is_builder(),
            UpdateError::Unresolved { .. } => true,
            UpdateError::Status(status) => matches!(status, 408 | 429 | 500..=599),
            _ => false,
        }
    }
}
