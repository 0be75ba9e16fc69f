//! Parses `--redis-url` and opens connections to its servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates};
use secrecy::ExposeSecret;
use url::Url;

use super::settings::{OutageLog, SettingsCheck};
use crate::store::StoreArgs;

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;
/// Timeout of connecting to a server; the response timeout, if that is longer.
const MIN_CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// Maximum number of commands in flight per connection. Further commands wait, at most until their call times out.
const CONCURRENCY: usize = 1024;

#[derive(Debug, thiserror::Error)]
pub enum RedisUrlError {
    #[error(
        "--redis-url has the unsupported scheme `{0}`; use redis, rediss, unix, redis+cluster, rediss+cluster, \
         redis+sentinel or rediss+sentinel"
    )]
    Scheme(String),
    #[error("--redis-url is missing {0}")]
    Missing(&'static str),
    #[error("--redis-url has the invalid host `{0}`; expected HOST or HOST:PORT")]
    Host(String),
    #[error("--redis-url has a password with `/` or `?`; write them as %2F and %3F")]
    Password,
    #[error("--redis-url has the invalid database `{0}`; expected a number")]
    Database(String),
    #[error("--redis-url has a database, but a Cluster has only database 0: remove `/{0}`")]
    ClusterDatabase(String),
    #[error("--redis-url has the unsupported part `{0}`")]
    Unsupported(String),
    #[error(
        "the username and the password of the Sentinels (--redis-sentinel-…) need a redis+sentinel:// URL in --redis-url"
    )]
    NoSentinel,
    #[error("can't read {flag} {}", path.display())]
    File { flag: &'static str, path: PathBuf, source: io::Error },
}

pub type Node = (String, u16);

/// What `--redis-url` points to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisTarget {
    Single(ServerTarget),
    Cluster(Vec<Node>),
}

/// The server of a connection, resolved again on every reconnect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerTarget {
    Server(Node),
    Socket(String),
    /// The master named `master`, found through any of the Sentinels.
    Sentinel {
        sentinels: Vec<Node>,
        master: String,
    },
}

impl ServerTarget {
    pub fn label(&self) -> String {
        match self {
            Self::Server((host, port)) => format!("{host}:{port}"),
            Self::Socket(path) => path.clone(),
            Self::Sentinel { master, .. } => format!("master {master}"),
        }
    }
}

/// Credentials, database, TLS and timeout of a connection, and the check of the server's settings.
#[derive(Clone)]
pub struct ConnectOptions {
    /// With the user and password of the URL, unless the flags set them.
    pub args: StoreArgs,
    database: i64,
    tls: bool,
    pub response_timeout: Duration,
    pub settings: Arc<SettingsCheck>,
    pub outages: Arc<OutageLog>,
}

pub fn parse(
    url: &str,
    args: &StoreArgs,
    timeout: Duration,
) -> Result<(RedisTarget, ConnectOptions), RedisUrlError> {
    let (scheme, rest) = url.split_once("://").ok_or(RedisUrlError::Missing("`SCHEME://`"))?;
    let for_sentinels = args.redis_sentinel_username.is_some()
        || args.redis_sentinel_password.is_some()
        || args.redis_sentinel_password_file.is_some();
    if for_sentinels && !scheme.ends_with("+sentinel") {
        return Err(RedisUrlError::NoSentinel);
    }
    for (flag, path) in [
        ("--redis-password-file", &args.redis_password_file),
        ("--redis-sentinel-password-file", &args.redis_sentinel_password_file),
        ("--redis-ca-file", &args.redis_ca_file),
    ] {
        let Some(path) = path else { continue };
        let unreadable = |source| RedisUrlError::File { flag, path: path.clone(), source };
        fs::read(path).map_err(unreadable)?;
    }
    let mut options = ConnectOptions {
        args: args.clone(),
        database: 0,
        tls: scheme.starts_with("rediss"),
        response_timeout: timeout,
        settings: Arc::default(),
        outages: Arc::default(),
    };
    let target = match scheme {
        "redis" | "rediss" => {
            let (host, path) = split_hosts(rest, &mut options)?;
            options.database = parse_database(path)?;
            RedisTarget::Single(ServerTarget::Server(parse_node(host, REDIS_PORT)?))
        }
        "unix" | "redis+unix" => parse_socket(rest, &mut options)?,
        "redis+cluster" | "rediss+cluster" => {
            let (hosts, path) = split_hosts(rest, &mut options)?;
            match parse_database(path)? {
                0 => RedisTarget::Cluster(parse_nodes(hosts, REDIS_PORT)?),
                _ => return Err(RedisUrlError::ClusterDatabase(path.to_owned())),
            }
        }
        "redis+sentinel" | "rediss+sentinel" => {
            let (hosts, path) = split_hosts(rest, &mut options)?;
            let (master, database) = path.split_once('/').unwrap_or((path, ""));
            if master.is_empty() {
                return Err(RedisUrlError::Missing("the master's name: redis+sentinel://HOST/MASTER"));
            }
            options.database = parse_database(database)?;
            let sentinels = parse_nodes(hosts, SENTINEL_PORT)?;
            RedisTarget::Single(ServerTarget::Sentinel { sentinels, master: master.to_owned() })
        }
        other => return Err(RedisUrlError::Scheme(other.to_owned())),
    };
    Ok((target, options))
}

fn parse_socket(rest: &str, options: &mut ConnectOptions) -> Result<RedisTarget, RedisUrlError> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if path.is_empty() {
        return Err(RedisUrlError::Missing("the socket's path: unix:///PATH"));
    }
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "db" => options.database = parse_database(&value)?,
            // Without its value, which could be a password.
            _ => return Err(RedisUrlError::Unsupported(format!("?{name}="))),
        }
    }
    Ok(RedisTarget::Single(ServerTarget::Socket(path.to_owned())))
}

/// An empty text is database 0.
fn parse_database(text: &str) -> Result<i64, RedisUrlError> {
    match text.trim_end_matches('/') {
        "" => Ok(0),
        text => text.parse::<u32>().map(i64::from).map_err(|_| RedisUrlError::Database(text.to_owned())),
    }
}

/// Splits `[user:password@]host[:port],host[:port]…[/path]`, which is not a valid URL, into hosts and path. Its errors show
/// no value that could be a password.
fn split_hosts<'a>(rest: &'a str, options: &mut ConnectOptions) -> Result<(&'a str, &'a str), RedisUrlError> {
    let (authority, after) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if after.contains('@') {
        return Err(RedisUrlError::Password);
    }
    let (path, query) = after.split_once('?').unwrap_or((after, ""));
    if let Some((name, _)) = url::form_urlencoded::parse(query.as_bytes()).next() {
        return Err(RedisUrlError::Unsupported(format!("?{name}=")));
    }
    let path = path.trim_start_matches('/');
    let Some((user, hosts)) = authority.rsplit_once('@') else { return Ok((authority, path)) };
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    options.set_url_credentials(name, password);
    Ok((hosts, path))
}

fn parse_nodes(hosts: &str, port: u16) -> Result<Vec<Node>, RedisUrlError> {
    hosts.split(',').map(|host| parse_node(host, port)).collect()
}

fn parse_node(text: &str, port: u16) -> Result<Node, RedisUrlError> {
    let invalid = || RedisUrlError::Host(text.to_owned());
    let url = Url::parse(&format!("redis://{text}")).map_err(|_| invalid())?;
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(invalid)?;
    Ok((host.trim_matches(['[', ']']).to_owned(), url.port().unwrap_or(port)))
}

impl ConnectOptions {
    /// Uses the URL's user and password where no flag sets them.
    fn set_url_credentials(&mut self, username: &str, password: &str) {
        // A `+` stays literal, although `form_urlencoded` alone would read it as a space.
        let decode = |text: &str| {
            let pair = format!("x={}", text.replace('+', "%2B"));
            let value =
                url::form_urlencoded::parse(pair.as_bytes()).next().map(|(_, value)| value.into_owned());
            value.filter(|value| !value.is_empty())
        };
        let StoreArgs { redis_username, redis_password, .. } = &mut self.args;
        *redis_username = redis_username.take().or_else(|| decode(username));
        *redis_password = redis_password.take().or_else(|| decode(password).map(Into::into));
    }

    pub async fn connect(&self, node: &Node) -> redis::RedisResult<MultiplexedConnection> {
        let (host, port) = node;
        let scheme = if self.tls { "rediss" } else { "redis" };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        self.open(&format!("{scheme}://{host}:{port}")).await
    }

    /// Queries the Sentinels in order until one returns the master's address.
    pub async fn resolve_master(&self, sentinels: &[Node], master: &str) -> redis::RedisResult<Node> {
        // Sentinels have their own users. Those of the Redis servers are never sent to them.
        let args = StoreArgs {
            redis_username: self.args.redis_sentinel_username.clone(),
            redis_password: self.args.redis_sentinel_password.clone(),
            redis_password_file: self.args.redis_sentinel_password_file.clone(),
            ..self.args.clone()
        };
        let options = Self { args, database: 0, ..self.clone() };
        let mut last_error = redis::RedisError::from((redis::ErrorKind::Io, "no sentinel replied"));
        for sentinel in sentinels {
            match options.query_sentinel(sentinel, master).await {
                Ok(Some(node)) => return Ok(node),
                Ok(None) => {
                    last_error =
                        (redis::ErrorKind::InvalidClientConfig, "the sentinels don't know this master").into()
                }
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    async fn query_sentinel(&self, sentinel: &Node, master: &str) -> redis::RedisResult<Option<Node>> {
        let mut connection = self.connect(sentinel).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(master);
        command.query_async(&mut connection).await
    }

    pub async fn open(&self, url: &str) -> redis::RedisResult<MultiplexedConnection> {
        let mut settings = RedisConnectionInfo::default().set_db(self.database);
        if let Some(username) = &self.args.redis_username {
            settings = settings.set_username(username);
        }
        // Read for each connection: Kubernetes replaces the files when the Secret changes.
        if let Some(path) = &self.args.redis_password_file {
            let text = fs::read_to_string(path);
            let text = text.map_err(|error| unreadable("can't read the password file", &error))?;
            settings = settings.set_password(text.trim_end_matches(['\r', '\n']));
        } else if let Some(password) = &self.args.redis_password {
            settings = settings.set_password(password.expose_secret());
        }
        let info = url.into_connection_info()?.set_redis_settings(settings);
        let root_cert = self.args.redis_ca_file.as_ref().map(fs::read).transpose();
        let root_cert = root_cert.map_err(|error| unreadable("can't read --redis-ca-file", &error))?;
        let certificates = TlsCertificates { client_tls: None, root_cert };
        let client = if self.tls { Client::build_with_tls(info, certificates)? } else { Client::open(info)? };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(MIN_CONNECT_TIMEOUT.max(self.response_timeout)))
            .set_response_timeout(Some(self.response_timeout))
            .set_concurrency_limit(CONCURRENCY);
        client.get_multiplexed_async_connection_with_config(&config).await
    }
}

fn unreadable(file: &'static str, error: &io::Error) -> redis::RedisError {
    (redis::ErrorKind::InvalidClientConfig, file, error.to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_target(url: &str) -> Result<RedisTarget, RedisUrlError> {
        parse(url, &StoreArgs::default(), Duration::from_secs(1)).map(|(target, _)| target)
    }

    fn node(host: &str, port: u16) -> Node {
        (host.to_owned(), port)
    }

    #[test]
    fn every_url_form_is_parsed() {
        assert_eq!(
            parse_target("redis://cache").unwrap(),
            RedisTarget::Single(ServerTarget::Server(node("cache", 6379)))
        );
        assert_eq!(
            parse_target("rediss://cache:7000/2").unwrap(),
            RedisTarget::Single(ServerTarget::Server(node("cache", 7000)))
        );
        assert_eq!(
            parse_target("redis://[::1]:7000").unwrap(),
            RedisTarget::Single(ServerTarget::Server(node("::1", 7000)))
        );
        assert_eq!(
            parse_target("unix:///run/redis.sock?db=1").unwrap(),
            RedisTarget::Single(ServerTarget::Socket("/run/redis.sock".to_owned()))
        );
        assert_eq!(
            parse_target("redis+cluster://a,b:7001").unwrap(),
            RedisTarget::Cluster(vec![node("a", 6379), node("b", 7001)])
        );
        assert_eq!(
            parse_target("redis+sentinel://a,b:7001/main").unwrap(),
            RedisTarget::Single(ServerTarget::Sentinel {
                sentinels: vec![node("a", 26_379), node("b", 7001)],
                master: "main".to_owned()
            })
        );
    }

    #[test]
    fn flags_override_url_and_passwords_are_percent_decoded() {
        let args = StoreArgs { redis_username: Some("ops".to_owned()), ..StoreArgs::default() };
        let (_, options) = parse("redis://web:p%40ss+1@cache/3", &args, Duration::from_secs(1)).unwrap();
        assert_eq!(options.args.redis_username.as_deref(), Some("ops"));
        assert_eq!(options.args.redis_password.unwrap().expose_secret(), "p@ss+1");
        assert_eq!(options.database, 3);
    }

    #[test]
    fn database_is_parsed_in_every_url_form() {
        for (url, database) in [
            ("redis://cache", 0),
            ("redis://cache/", 0),
            ("redis://cache/15", 15),
            ("unix:///run/redis.sock", 0),
            ("unix:///run/redis.sock?db=1", 1),
            ("redis+sentinel://a,b/main", 0),
            ("redis+sentinel://a,b/main/2", 2),
            ("redis+cluster://a,b/0", 0),
        ] {
            let (_, options) = parse(url, &StoreArgs::default(), Duration::from_secs(1)).unwrap();
            assert_eq!(options.database, database, "{url}");
        }
    }

    #[test]
    fn sentinel_credentials_without_sentinels_are_rejected() {
        let args = StoreArgs { redis_sentinel_password: Some("hush".into()), ..StoreArgs::default() };
        let error = parse("redis://cache", &args, Duration::from_secs(1)).err().unwrap().to_string();
        assert!(error.contains("redis+sentinel://"), "{error}");
        assert!(parse("rediss+sentinel://a/main", &args, Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn invalid_url_error_names_the_invalid_part() {
        for (url, part) in [
            ("cache:6379", "SCHEME"),
            ("http://cache", "unsupported scheme `http`"),
            ("redis+sentinel://a", "the master's name"),
            ("redis+cluster://a:b:c", "HOST:PORT"),
            ("unix://", "socket's path"),
            ("redis://cache/abc", "database `abc`"),
            ("rediss://cache/-1", "database `-1`"),
            ("redis://cache/1/2", "database `1/2`"),
            ("redis://cache?db=3", "unsupported part `?db=`"),
            ("rediss://cache/0?password=hush", "unsupported part `?password=`"),
            ("unix:///run/redis.sock?db=one", "database `one`"),
            ("unix:///run/redis.sock?pass=hush", "unsupported part `?pass=`"),
            ("redis+sentinel://a/main/abc", "database `abc`"),
            ("redis+cluster://a/abc", "database `abc`"),
            ("redis+cluster://a/3", "remove `/3`"),
            ("redis://:hush/hush@cache", "%2F"),
            ("redis+cluster://u:hush/hush@a", "%2F"),
            ("redis://:hush?hush@cache", "%3F"),
        ] {
            let message = parse_target(url).unwrap_err().to_string();
            assert!(message.contains(part) && !message.contains("hush"), "{url}: {message}");
        }
    }
}
