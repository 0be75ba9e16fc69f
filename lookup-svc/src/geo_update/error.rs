//! Why an update failed, in words that never hold a URL, a token or a key.

use std::path::PathBuf;
use std::time::Duration;

use crate::geo::GeoError;

/// A failed update. The file in place is untouched.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The command line does not say enough, or says something impossible.
    #[error("{0}")]
    Usage(String),
    /// A file with a secret cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Connecting, sending or receiving failed; the URL is taken out before it gets here.
    #[error("{}", chain(.0))]
    Http(reqwest::Error),
    /// The server redirects in circles, too often, or from https to http.
    #[error("the server redirects in circles or to an unsafe place")]
    Redirect,
    /// 404 or 410.
    #[error("the server does not have this file")]
    NotFound,
    /// 401 or 403.
    #[error("the server refused the credentials (status {0})")]
    Denied(u16),
    /// Another status that is no success.
    #[error("the server answered with status {0}")]
    Status(u16),
    /// 304 to a request without a condition: there may be no file that it could mean.
    #[error("the server answered \"not modified\" (304) though it was asked for the file")]
    NotModified,
    /// The body ended too early, or a resumed part does not fit.
    #[error("the download was cut off")]
    CutOff,
    /// More than `--max-size`.
    #[error("the file is larger than {0} bytes")]
    TooLarge(u64),
    /// More than `--timeout`.
    #[error("not finished within {}", humantime::format_duration(*.0))]
    Deadline(Duration),
    /// A web page: a login form, a captive portal, an error in disguise.
    #[error("the server sent a web page instead of a database")]
    WebPage,
    /// What should be a checksum is none: a web page, broken JSON, too few digits.
    #[error("the provider's checksum cannot be read")]
    ChecksumFormat,
    /// The bytes are not what the provider published.
    #[error("the checksum does not match")]
    Checksum,
    /// Neither gz nor tar.gz nor what it says.
    #[error("the archive cannot be unpacked: {0}")]
    Archive(std::io::Error),
    /// An archive without a database.
    #[error("the archive holds no .mmdb file")]
    NoDatabase,
    /// Downloaded and unpacked, but no usable database.
    #[error("what was downloaded {0}")]
    Unusable(#[source] GeoError),
    /// Writing in the target folder failed.
    #[error("the target folder: {0}")]
    Folder(#[from] std::io::Error),
    /// Another `geo-update` holds the folder.
    #[error("another geo-update is at work in this folder")]
    Busy,
}

impl From<reqwest::Error> for UpdateError {
    fn from(error: reqwest::Error) -> Self {
        if error.is_redirect() {
            return UpdateError::Redirect;
        }
        UpdateError::Http(error.without_url())
    }
}

impl UpdateError {
    /// Whether the same request may do better a moment later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            UpdateError::Http(error) => !error.is_builder(),
            UpdateError::CutOff => true,
            UpdateError::Status(status) => matches!(status, 408 | 429 | 500..=599),
            _ => false,
        }
    }
}

/// reqwest hides the cause ("connection refused") in its sources.
fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
