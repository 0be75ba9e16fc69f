//! Command-line arguments of `geo-update`.

use std::path::PathBuf;
use std::time::Duration;

use base::flags::parse_duration;
use reqwest::Url;
use secrecy::SecretString;

/// Download, verify and install geo databases
#[derive(Clone, Debug, clap::Args)]
pub struct GeoUpdateArgs {
    /// dbip-lite (free, no account), maxmind, ipinfo, or the URL of an .mmdb, .mmdb.gz or .tar.gz file
    // Secret, because a URL may contain a password or a token.
    #[arg(env = "GEO_UPDATE_SOURCE", hide_env_values = true)]
    pub source: SecretString,

    /// Directory to install the databases in; the server reads it if you pass it to --geo-db
    // `ip-lookup`, which has a directory of its own for them, makes it optional.
    #[arg(long, env = "GEO_UPDATE_TO", value_name = "DIR", required = true)]
    pub to: Option<PathBuf>,

    /// Keep running and check for newer databases at this interval
    #[arg(long, env = "GEO_UPDATE_EVERY", value_name = "TIME", value_parser = parse_duration)]
    pub every: Option<Duration>,

    /// Ignore --every, for the processes that it starts
    #[arg(long, hide = true)]
    pub once: bool,

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

    /// Maximum size of a downloaded file, and of the unpacked file
    #[arg(long, env = "GEO_UPDATE_MAX_SIZE", value_name = "BYTES", default_value_t = 2 << 30)]
    pub max_size: u64,

    /// Maximum time per database, including retries
    #[arg(long, env = "GEO_UPDATE_TIMEOUT", value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    pub timeout: Duration,

    /// Retry if no data arrives for this long
    #[arg(long, env = "GEO_UPDATE_IDLE_TIMEOUT", value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub idle_timeout: Duration,

    /// Maximum number of retries. A retry resumes the download if the server allows it
    #[arg(long, env = "GEO_UPDATE_RETRIES", value_name = "N", default_value_t = 6)]
    pub retries: u32,

    /// Delay before the first retry. Doubles with each retry, up to 1 minute
    #[arg(long, hide = true, default_value = "1s", value_parser = parse_duration)]
    pub retry_delay: Duration,

    /// Base URL to use instead of the provider's
    #[arg(long, hide = true)]
    pub provider_url: Option<Url>,
}
