//! The `geo-update` command: downloads databases, verifies them and installs them atomically by rename.

use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use base::flags::{parse_args, parse_duration};
use base::progress::{Progress, WriteLine};
use jiff::Timestamp;
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::GeoError;

mod download;
mod install;
mod source;

const DAY: Duration = Duration::from_secs(86_400);
/// Maximum delay before a failed update is repeated.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(15 * 60);

/// Download, verify and install geo databases
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  PROGRAM geo-update dbip-lite --to data/geo
  PROGRAM geo-update maxmind --to data/geo --accept-license --every 1d \\
    --maxmind-account-id 123456 --maxmind-license-key-file license.key")]
pub struct GeoUpdateArgs {
    /// dbip-lite (free, no account), maxmind, ipinfo, or the URL of an .mmdb, .mmdb.gz or .tar.gz file
    // Secret, because a URL may contain a password or a token.
    #[arg(env = "GEO_UPDATE_SOURCE", hide_env_values = true)]
    pub source: SecretString,

    /// Directory to install the databases in; the server reads it if you pass it to --geo-db
    // `ip-lookup`, which has a directory of its own for them, makes it optional.
    #[arg(long, env = "GEO_UPDATE_TO", value_name = "DIR", required = true)]
    pub to: Option<PathBuf>,

    /// Keep running and check for newer databases at this interval. 0, like no interval, updates them once
    // The last value counts: that of a process which `update_in_child` starts.
    #[arg(long, env = "GEO_UPDATE_EVERY", value_name = "TIME", value_parser = parse_duration, overrides_with = "every")]
    pub every: Option<Duration>,

    /// Databases to download, comma-separated. Defaults: city,asn (dbip-lite),
    /// GeoLite2-City,GeoLite2-ASN (maxmind), ipinfo_lite (ipinfo)
    #[arg(long, env = "GEO_UPDATE_EDITIONS", value_name = "NAMES", value_delimiter = ',')]
    pub editions: Vec<String>,

    /// Confirm that you have read and accept the provider's license (required for maxmind and ipinfo)
    #[arg(long, env = "GEO_UPDATE_ACCEPT_LICENSE")]
    pub accept_license: bool,

    /// MaxMind account ID
    #[arg(long, env, value_name = "ID", hide_env_values = true)]
    pub maxmind_account_id: Option<SecretString>,

    /// File with the MaxMind account ID
    #[arg(long, env, value_name = "FILE", conflicts_with = "maxmind_account_id")]
    pub maxmind_account_id_file: Option<PathBuf>,

    /// MaxMind license key. Prefer the environment variable or a file
    #[arg(long, env, value_name = "KEY", hide_env_values = true)]
    pub maxmind_license_key: Option<SecretString>,

    /// File with the MaxMind license key
    #[arg(long, env, value_name = "FILE", conflicts_with = "maxmind_license_key")]
    pub maxmind_license_key_file: Option<PathBuf>,

    /// IPinfo token. Prefer the environment variable or a file
    #[arg(long, env, value_name = "TOKEN", hide_env_values = true)]
    pub ipinfo_token: Option<SecretString>,

    /// File with the IPinfo token
    #[arg(long, env, value_name = "FILE", conflicts_with = "ipinfo_token")]
    pub ipinfo_token_file: Option<PathBuf>,

    /// Expected SHA-256 of the downloaded file, in hex. Allowed only if the source is a URL
    #[arg(long, env = "GEO_UPDATE_SHA256", value_name = "HEX")]
    pub sha256: Option<String>,

    /// Maximum size of a downloaded file, and of the unpacked file. The chart sets it
    #[arg(long, hide = true, default_value_t = 2 << 30)]
    pub max_size: u64,

    /// Maximum number of retries
    #[arg(long, env = "GEO_UPDATE_RETRIES", hide = true, default_value_t = 6)]
    pub retries: u32,

    /// Maximum time per database, including retries. Only tests change it and the next two.
    #[arg(skip = Duration::from_secs(60 * 60))]
    pub timeout: Duration,

    /// Retry if no data arrives for this long.
    #[arg(skip = Duration::from_secs(30))]
    pub idle_timeout: Duration,

    /// Delay before the first retry. Doubles with each retry, up to 1 minute.
    #[arg(skip = Duration::from_secs(1))]
    pub retry_delay: Duration,

    /// Base URL to use instead of the provider's
    #[arg(long, hide = true)]
    pub provider_url: Option<Url>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateResult {
    Installed,
    /// The provider has no newer file.
    Unchanged,
}

/// The destination of the output. The default is standard error, with a bar if that is a terminal.
#[derive(Clone, Default)]
pub struct Report(Option<WriteLine>);

impl Report {
    /// Passes plain lines to `write`.
    pub fn to_lines(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(write)))
    }

    /// Passes lines to the log.
    pub fn to_log() -> Self {
        Self::to_lines(|line| tracing::info!("geo-update: {line}"))
    }

    pub fn line(&self, text: &str) {
        match &self.0 {
            Some(write) => write(text),
            None => eprintln!("{text}"),
        }
    }

    fn start(&self, label: &str) -> Progress {
        match &self.0 {
            Some(write) => Progress::lines(write.clone()),
            None => Progress::start(&format!(
                "{label} [{{bar:30}}] {{bytes}}/{{total_bytes}} {{binary_bytes_per_sec}} {{eta}}"
            )),
        }
    }
}

/// Runs the command: once, or with `--every` until SIGTERM or SIGINT. A signal during a download leaves no temporary
/// files. The process must already have installed a rustls crypto provider.
pub async fn run(args: GeoUpdateArgs, report: Report) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    if args.every == Some(Duration::ZERO) {
        stop_with_parent();
    }
    let work = async {
        match args.every.filter(|every| !every.is_zero()) {
            Some(every) => update_repeatedly(every, &report).await,
            None => update(&args, &report).await.map(|_| ()),
        }
    };
    tokio::select! {
        result = work => result,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => anyhow::bail!("interrupted"),
    }
}

/// Updates the databases of a source that needs no account, at the start and daily.
#[derive(Debug)]
pub struct DailyUpdate(GeoUpdateArgs);

impl DailyUpdate {
    /// Fails if the source is unknown or needs an account.
    pub fn new(source: &SecretString, to: &Path) -> anyhow::Result<Self> {
        let source = OsStr::new(source.expose_secret());
        let args = parse_args([source, OsStr::new("--to"), to.as_os_str()])?;
        source::plan(&args, Timestamp::now())
            .context("this source needs the command geo-update, which can be repeated with --every")?;
        Ok(Self(args))
    }

    /// Runs forever. A failed update is logged and repeated.
    pub async fn run(self) {
        let report = Report::to_log();
        loop {
            let delay = match update(&self.0, &report).await {
                Ok(_) => DAY + jitter(),
                Err(error) => {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "geo-update failed; the next attempt is in 15 minutes"
                    );
                    MAX_RETRY_DELAY
                }
            };
            tokio::time::sleep(delay).await;
        }
    }
}

/// Up to an hour, so that many services do not download at the same time.
fn jitter() -> Duration {
    let nanoseconds = Timestamp::now().subsec_nanosecond().unsigned_abs();
    Duration::from_secs(u64::from(nanoseconds) % 3600)
}

/// Runs each update in a process of its own: in the chart, a container that is not running makes its pod unready, so this
/// process must survive an update that is killed.
async fn update_repeatedly(every: Duration, report: &Report) -> ! {
    loop {
        let delay = match update_in_child().await {
            Ok(()) => every,
            Err(error) => {
                report.line(&format!("update failed: {error:#}"));
                every.min(MAX_RETRY_DELAY)
            }
        };
        tokio::time::sleep(delay).await;
    }
}

/// Starts this program again, with the same arguments but without the interval.
async fn update_in_child() -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let status = Command::new(program).args(std::env::args_os().skip(1)).arg("--every=0").status().await?;
    anyhow::ensure!(status.success(), "{status}");
    Ok(())
}

/// Makes the kernel send SIGTERM to this process when its parent ends. An error is ignored: the update then completes.
fn stop_with_parent() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
}

/// Updates every database of the source once. If one fails, the others are still updated. Returns the first error, and
/// how many databases failed if there are several.
#[doc(hidden)]
pub async fn update(args: &GeoUpdateArgs, report: &Report) -> anyhow::Result<Vec<UpdateResult>> {
    let items = source::plan(args, Timestamp::now())?;
    let to = args.to.as_deref().context("--to is required")?;
    let target_dir = install::TargetDir::open(to).context("can't use the target directory")?;
    let client = download::client(args)?;
    let mut results = Vec::new();
    let mut failures = Vec::new();
    let total = items.len();
    for item in items {
        let progress = report.start(&item.label);
        let downloader = download::Downloader { client: &client, args, item: &item, progress };
        let work = install::refresh(downloader, &target_dir);
        let result = tokio::time::timeout(args.timeout, work).await;
        match result.unwrap_or(Err(UpdateError::TimedOut(args.timeout))) {
            Ok(result) => results.push(result),
            Err(error) => {
                let error = anyhow::Error::new(error).context(item.label);
                report.line(&format!("{error:#}"));
                failures.push(error);
            }
        }
    }
    let failed = failures.len();
    match failures.into_iter().next() {
        None => Ok(results),
        Some(error) if failed == 1 => Err(error),
        Some(error) => Err(error.context(format!("{failed} of {total} databases failed; first error"))),
    }
}

type Result<T, E = UpdateError> = std::result::Result<T, E>;

/// Why an update failed. The installed file is unchanged. Of a URL, the messages contain at most the host. They never
/// contain a token or key.
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
    fn is_transient(&self) -> bool {
        match self {
            UpdateError::Http { source, .. } => !source.is_builder(),
            UpdateError::Unresolved { .. } => true,
            UpdateError::Status(status) => matches!(status, 408 | 429 | 500..=599),
            _ => false,
        }
    }
}
