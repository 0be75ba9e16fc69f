//! The command line of `geo-update`.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use secrecy::SecretString;

/// Download geo databases, verify them and put them in place
#[derive(Clone, Debug, clap::Args)]
pub struct GeoUpdateArgs {
    /// dbip-lite (free, no account), maxmind, ipinfo, or the URL of an .mmdb, .mmdb.gz or .tar.gz
    // A secret, since a URL may hold a password or a token.
    #[arg(env = "GEO_UPDATE_SOURCE", hide_env_values = true, value_parser = secret)]
    pub source: SecretString,

    /// Folder that receives the files; give the same one to --geo-db
    #[arg(long, env = "GEO_UPDATE_TO", value_name = "DIR")]
    pub to: PathBuf,

    /// Stay and look again this often, until SIGTERM; without it, once
    #[arg(long, env = "GEO_UPDATE_EVERY", value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub every: Option<Duration>,

    /// Databases of the provider, comma-separated. maxmind: GeoLite2-City,GeoLite2-ASN;
    /// ipinfo: ipinfo_lite; dbip-lite: city,asn
    #[arg(long, env = "GEO_UPDATE_EDITIONS", value_name = "NAMES", value_delimiter = ',')]
    pub editions: Vec<String>,

    /// You have read and accept the provider's licence (needed for maxmind and ipinfo)
    #[arg(long, env = "GEO_UPDATE_ACCEPT_LICENSE")]
    pub accept_license: bool,

    /// MaxMind account ID
    #[arg(long, env, value_name = "ID", hide_env_values = true, value_parser = secret)]
    pub maxmind_account_id: Option<SecretString>,

    /// File with the MaxMind account ID
    #[arg(long, env, value_name = "FILE", conflicts_with = "maxmind_account_id")]
    pub maxmind_account_id_file: Option<PathBuf>,

    /// MaxMind license key; better as environment variable or file
    #[arg(long, env, value_name = "KEY", hide_env_values = true, value_parser = secret)]
    pub maxmind_license_key: Option<SecretString>,

    /// File with the MaxMind license key
    #[arg(long, env, value_name = "FILE", conflicts_with = "maxmind_license_key")]
    pub maxmind_license_key_file: Option<PathBuf>,

    /// IPinfo token; better as environment variable or file
    #[arg(long, env, value_name = "TOKEN", hide_env_values = true, value_parser = secret)]
    pub ipinfo_token: Option<SecretString>,

    /// File with the IPinfo token
    #[arg(long, env, value_name = "FILE", conflicts_with = "ipinfo_token")]
    pub ipinfo_token_file: Option<PathBuf>,

    /// SHA-256 of the file behind a URL source, in hex
    #[arg(long, env = "GEO_UPDATE_SHA256", value_name = "HEX")]
    pub sha256: Option<String>,

    /// Give up on a download, and on an unpacked file, larger than this many bytes
    #[arg(long, env = "GEO_UPDATE_MAX_SIZE", value_name = "BYTES", default_value_t = 2 << 30)]
    pub max_size: u64,

    /// Give up on one database after this time, retries included
    #[arg(long, env = "GEO_UPDATE_TIMEOUT", value_name = "DURATION", default_value = "1h", value_parser = humantime::parse_duration)]
    pub timeout: Duration,

    /// Try again when nothing has arrived for this time
    #[arg(long, env = "GEO_UPDATE_IDLE_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    pub idle_timeout: Duration,

    /// How often to try again, going on where the last try stopped
    #[arg(long, env = "GEO_UPDATE_RETRIES", value_name = "N", default_value_t = 6)]
    pub retries: u32,

    /// Pause before the first retry; doubled each time, at most a minute
    #[arg(long, hide = true, default_value = "1s", value_parser = humantime::parse_duration)]
    pub retry_delay: Duration,

    /// Another server in the provider's place
    #[arg(long, hide = true)]
    pub provider_url: Option<Url>,
}

fn secret(text: &str) -> Result<SecretString, std::convert::Infallible> {
    Ok(SecretString::from(text))
}
