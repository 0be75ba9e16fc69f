//! Parses `--redis-url` and opens connections to its servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisConnectionInfo,
    RedisError, RedisResult, TlsCertificates,
};
use url::Url;

use super::settings::ServerLog;
use crate::store::StoreArgs;

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;
/// Timeout of connecting to a server; the response timeout, if that is longer.
const MIN_CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// Maximum number of commands in flight per connection. Further commands wait, at most until their call times out.
const CONCURRENCY: usize = 1024;

#[derive(Debug, thiserror::Error)]
pub enum RedisUrlError {
    #[error("--redis-url {0}")]
    Url(String),
    #[error("can't read {flag} {}", path.display())]
    File { flag: &'static str, path: PathBuf, source: io::Error },
}

/// Never with a value that could be a password.
fn invalid(problem: impl Into<String>) -> RedisUrlError {
    RedisUrlError::Url(problem.into())
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
    Address(ConnectionAddr),
    /// The master named `master`, found through any of the Sentinels.
    Sentinel {
        sentinels: Vec<Node>,
        master: String,
    },
}

impl ServerTarget {
    pub fn label(&self) -> String {
        match self {
            Self::Address(address) => address.to_string(),
            Self::Sentinel { master, .. } => format!("master {master}"),
        }
    }
}

/// Credentials, database, TLS and timeout of a connection, and the log about its server.
#[derive(Clone)]
pub struct ConnectOptions {
    pub key_prefix: String,
    login: Login,
    /// Sentinels have their own users. Those of the Redis servers are never sent to them.
    sentinel_login: Login,
    ca_file: Option<PathBuf>,
    tls: bool,
    pub timeout: Duration,
    pub server_log: Arc<ServerLog>,
}

/// The file's password replaces that of the URL.
#[derive(Clone, Default)]
struct Login {
    username: Option<String>,
    password: Option<String>,
    password_file: Option<PathBuf>,
    database: i64,
}

pub fn parse(url: &str, args: &StoreArgs) -> Result<(RedisTarget, ConnectOptions), RedisUrlError> {
    let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("is missing `SCHEME://`"))?;
    let username = args.redis_sentinel_username.clone();
    let password_file = args.redis_sentinel_password_file.clone();
    if (username.is_some() || password_file.is_some()) && !scheme.ends_with("+sentinel") {
        return Err(invalid("is no redis+sentinel:// URL, so remove --redis-sentinel-…"));
    }
    let sentinel_login = Login { username, password_file, ..Login::default() };
    for (flag, path) in [
        ("--redis-password-file", &args.redis_password_file),
        ("--redis-sentinel-password-file", &args.redis_sentinel_password_file),
        ("--redis-ca-file", &args.redis_ca_file),
    ] {
        let Some(path) = path else { continue };
        let unreadable = |source| RedisUrlError::File { flag, path: path.clone(), source };
        fs::read(path).map_err(unreadable)?;
    }
    let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
    // `[user:password@]host[:port],host[:port]…[/path]` is not a valid URL.
    let hosts_end = if scheme == "unix" { 0 } else { location.find('/').unwrap_or(location.len()) };
    let (authority, path) = location.split_at(hosts_end);
    if scheme != "unix" && rest[hosts_end..].contains('@') {
        return Err(invalid("has a password with `/` or `?`; write them as %2F and %3F"));
    }
    let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (username, password) = user.split_once(':').unwrap_or((user, ""));
    let tls = scheme.starts_with("rediss");
    let name = path.trim_start_matches('/');
    let (target, database) = match scheme {
        "redis" | "rediss" => {
            let address = address(parse_node(hosts, REDIS_PORT)?, tls);
            (RedisTarget::Single(ServerTarget::Address(address)), name)
        }
        "unix" if path.is_empty() => {
            return Err(invalid("is missing the socket's path: unix:///PATH"));
        }
        "unix" => (RedisTarget::Single(ServerTarget::Address(ConnectionAddr::Unix(path.into()))), ""),
        "redis+cluster" | "rediss+cluster" => (RedisTarget::Cluster(parse_nodes(hosts, REDIS_PORT)?), name),
        "redis+sentinel" | "rediss+sentinel" => {
            let (master, database) = name.split_once('/').unwrap_or((name, ""));
            if master.is_empty() {
                return Err(invalid("is missing the master's name: redis+sentinel://HOST/MASTER"));
            }
            let sentinels = parse_nodes(hosts, SENTINEL_PORT)?;
            (RedisTarget::Single(ServerTarget::Sentinel { sentinels, master: master.to_owned() }), database)
        }
        other => {
            return Err(invalid(format!(
                "has the unsupported scheme `{other}`; use redis, rediss, unix, redis+cluster, rediss+cluster, \
                 redis+sentinel or rediss+sentinel"
            )));
        }
    };
    let mut number = parse_database(database)?;
    if number != 0 && matches!(target, RedisTarget::Cluster(_)) {
        let problem = format!("has a database, but a Cluster has only database 0: remove `/{database}`");
        return Err(invalid(problem));
    }
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "db" if scheme == "unix" => number = parse_database(&value)?,
            _ => return Err(invalid(format!("has the unsupported part `?{name}=`"))),
        }
    }
    let login = Login {
        username: args.redis_username.clone().or_else(|| decode(username)),
        password: decode(password),
        password_file: args.redis_password_file.clone(),
        database: number,
    };
    let options = ConnectOptions {
        key_prefix: args.key_prefix.clone(),
        login,
        sentinel_login,
        ca_file: args.redis_ca_file.clone(),
        tls,
        timeout: args.write_timeout,
        server_log: Arc::default(),
    };
    Ok((target, options))
}

/// An empty text is database 0.
fn parse_database(text: &str) -> Result<i64, RedisUrlError> {
    let text = text.trim_end_matches('/');
    let number = if text.is_empty() { Ok(0) } else { text.parse::<u32>() };
    number
        .map(i64::from)
        .map_err(|_| invalid(format!("has the invalid database `{text}`; expected a number")))
}

fn parse_nodes(hosts: &str, port: u16) -> Result<Vec<Node>, RedisUrlError> {
    hosts.split(',').map(|host| parse_node(host, port)).collect()
}

fn parse_node(text: &str, port: u16) -> Result<Node, RedisUrlError> {
    let url = Url::parse(&format!("redis://{text}")).ok();
    let host = url.as_ref().and_then(Url::host_str).filter(|host| !host.is_empty());
    let (Some(url), Some(host)) = (&url, host) else {
        return Err(invalid(format!("has the invalid host `{text}`; expected HOST or HOST:PORT")));
    };
    Ok((host.trim_matches(['[', ']']).to_owned(), url.port().unwrap_or(port)))
}

fn address((host, port): Node, tls: bool) -> ConnectionAddr {
    match tls {
        true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        false => ConnectionAddr::Tcp(host, port),
    }
}

/// Decodes a percent-encoded part of the URL; `None` if it is empty.
fn decode(text: &str) -> Option<String> {
    // `+` and `&` stay literal, although `form_urlencoded` alone would read them as a space and as the end.
    let pair = format!("x={}", text.replace('+', "%2B").replace('&', "%26"));
    let (_, value) = url::form_urlencoded::parse(pair.as_bytes()).next()?;
    Some(value.into_owned()).filter(|value| !value.is_empty())
}

impl ConnectOptions {
    pub fn server(&self, node: &Node) -> ServerTarget {
        ServerTarget::Address(address(node.clone(), self.tls))
    }

    pub async fn connect(&self, target: &ServerTarget) -> RedisResult<MultiplexedConnection> {
        let (sentinels, master) = match target {
            ServerTarget::Address(address) => return self.open(address.clone(), &self.login).await,
            ServerTarget::Sentinel { sentinels, master } => (sentinels, master),
        };
        let node = self.resolve_master(sentinels, master).await?;
        let mut connection = self.open(address(node, self.tls), &self.login).await?;
        // Shortly after a failover a Sentinel may still return the old master.
        let role: Vec<redis::Value> = redis::cmd("ROLE").query_async(&mut connection).await?;
        match role.first() {
            Some(redis::Value::BulkString(role)) if role == b"master" => Ok(connection),
            _ => Err((ErrorKind::Io, "the server named by the sentinel is not the master").into()),
        }
    }

    /// Queries the Sentinels in order until one returns the master's address.
    async fn resolve_master(&self, sentinels: &[Node], master: &str) -> RedisResult<Node> {
        let mut last_error = RedisError::from((ErrorKind::Io, "no sentinel replied"));
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(master);
        for sentinel in sentinels {
            let reply = match self.open(address(sentinel.clone(), self.tls), &self.sentinel_login).await {
                Ok(mut connection) => command.query_async(&mut connection).await,
                Err(error) => Err(error),
            };
            last_error = match reply {
                Ok(Some(node)) => return Ok(node),
                Ok(None) => (ErrorKind::InvalidClientConfig, "the sentinels don't know this master").into(),
                Err(error) => error,
            };
        }
        Err(last_error)
    }

    /// Reads the files for each connection: Kubernetes replaces them when the Secret changes.
    async fn open(&self, address: ConnectionAddr, login: &Login) -> RedisResult<MultiplexedConnection> {
        let mut settings = RedisConnectionInfo::default().set_db(login.database);
        if let Some(username) = &login.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = read(&login.password_file, "can't read the password file")? {
            let password = String::from_utf8_lossy(&password);
            settings = settings.set_password(password.trim_end_matches(['\r', '\n']));
        } else if let Some(password) = &login.password {
            settings = settings.set_password(password);
        }
        let info = address.into_connection_info()?.set_redis_settings(settings);
        let root_cert = read(&self.ca_file, "can't read --redis-ca-file")?;
        let certificates = TlsCertificates { client_tls: None, root_cert };
        let client = if self.tls { Client::build_with_tls(info, certificates)? } else { Client::open(info)? };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(MIN_CONNECT_TIMEOUT.max(self.timeout)))
            .set_response_timeout(Some(self.timeout))
            .set_concurrency_limit(CONCURRENCY);
        client.get_multiplexed_async_connection_with_config(&config).await
    }
}

fn read(path: &Option<PathBuf>, failure: &'static str) -> RedisResult<Option<Vec<u8>>> {
    let error = |error: io::Error| (ErrorKind::InvalidClientConfig, failure, error.to_string()).into();
    path.as_ref().map(fs::read).transpose().map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_target(url: &str) -> Result<RedisTarget, RedisUrlError> {
        parse(url, &StoreArgs::default()).map(|(target, _)| target)
    }

    fn node(host: &str, port: u16) -> Node {
        (host.to_owned(), port)
    }

    fn tcp(host: &str, port: u16) -> ServerTarget {
        ServerTarget::Address(ConnectionAddr::Tcp(host.to_owned(), port))
    }

    #[test]
    fn every_url_form_is_parsed() {
        assert_eq!(parse_target("redis://cache").unwrap(), RedisTarget::Single(tcp("cache", 6379)));
        assert_eq!(
            parse_target("rediss://cache:7000/2").unwrap(),
            RedisTarget::Single(ServerTarget::Address(address(node("cache", 7000), true)))
        );
        assert_eq!(parse_target("redis://[::1]:7000").unwrap(), RedisTarget::Single(tcp("::1", 7000)));
        assert_eq!(
            parse_target("unix:///run/redis.sock?db=1").unwrap(),
            RedisTarget::Single(ServerTarget::Address(ConnectionAddr::Unix("/run/redis.sock".into())))
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
        let (_, options) = parse("redis://web:p%40ss+1&2@cache/3", &args).unwrap();
        assert_eq!(options.login.username.as_deref(), Some("ops"));
        assert_eq!(options.login.password.as_deref(), Some("p@ss+1&2"));
        assert_eq!(options.login.database, 3);
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
            let (_, options) = parse(url, &StoreArgs::default()).unwrap();
            assert_eq!(options.login.database, database, "{url}");
        }
    }

    #[test]
    fn sentinel_credentials_without_sentinels_are_rejected() {
        let args = StoreArgs { redis_sentinel_username: Some("ops".to_owned()), ..StoreArgs::default() };
        let error = parse("redis://cache", &args).err().unwrap().to_string();
        assert!(error.contains("redis+sentinel://"), "{error}");
        assert!(parse("rediss+sentinel://a/main", &args).is_ok());
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
