//! `--redis-url` in all its forms: what it names and how a connection to it is made.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;
const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// Replies that one connection waits for at most; what comes on top waits as long as a call may take.
const CONCURRENCY: usize = 1024;

/// The URL can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Not a URL.
    #[error("--redis-url is not a URL: {0}")]
    Url(#[from] url::ParseError),
    /// A URL of another kind.
    #[error(
        "--redis-url starts with `{0}://`; known are redis, rediss, unix, redis+cluster, rediss+cluster, \
         redis+sentinel and rediss+sentinel"
    )]
    Scheme(String),
    /// A part is missing.
    #[error("--redis-url lacks {0}")]
    Missing(&'static str),
    /// A host has no usable port.
    #[error("--redis-url names `{0}`, which is not HOST or HOST:PORT")]
    Host(String),
    /// The certificate authority's file can't be read.
    #[error("--redis-ca-file can't be read: {0}")]
    CaFile(#[source] std::io::Error),
}

/// A host and a port.
pub type Node = (String, u16);

/// Where the store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// One server.
    Server(Node),
    /// One server on a Unix socket.
    Socket(String),
    /// The master that these sentinels name.
    Sentinel {
        /// Any of them may be asked.
        sentinels: Vec<Node>,
        /// The master's name.
        master: String,
    },
    /// A Cluster, known by some of its nodes.
    Cluster(Vec<Node>),
}

/// How to sign in and whether to encrypt.
#[derive(Clone)]
pub struct Access {
    username: Option<String>,
    password: Option<SecretString>,
    database: i64,
    tls: bool,
    ca: Option<Vec<u8>>,
    response_timeout: Duration,
}

/// What stands beside the URL on the command line.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// ACL user.
    pub username: Option<String>,
    /// Password.
    pub password: Option<SecretString>,
    /// PEM file of the certificate authority.
    pub ca_file: Option<std::path::PathBuf>,
}

/// Reads the URL and what stands beside it.
pub fn parse(url: &str, beside: Credentials, timeout: Duration) -> Result<(Place, Access), TargetError> {
    let (scheme, rest) = url.split_once("://").ok_or(TargetError::Missing("`SCHEME://`"))?;
    let tls = scheme.starts_with("rediss");
    let ca = beside.ca_file.map(std::fs::read).transpose().map_err(TargetError::CaFile)?;
    let mut access = Access {
        username: beside.username,
        password: beside.password,
        database: 0,
        tls,
        ca,
        response_timeout: timeout,
    };
    let place = match scheme {
        "redis" | "rediss" => parse_server(url, &mut access)?,
        "unix" | "redis+unix" => parse_socket(rest, &mut access)?,
        "redis+cluster" | "rediss+cluster" => {
            let (hosts, _) = parse_hosts(rest, REDIS_PORT, &mut access)?;
            Place::Cluster(hosts)
        }
        "redis+sentinel" | "rediss+sentinel" => {
            let (sentinels, path) = parse_hosts(rest, SENTINEL_PORT, &mut access)?;
            let mut path = path.splitn(2, '/');
            let master = path.next().filter(|name| !name.is_empty());
            let master =
                master.ok_or(TargetError::Missing("the master's name: redis+sentinel://HOST/MASTER"))?;
            access.database = path.next().and_then(|db| db.parse().ok()).unwrap_or(0);
            Place::Sentinel { sentinels, master: master.to_owned() }
        }
        other => return Err(TargetError::Scheme(other.to_owned())),
    };
    Ok((place, access))
}

fn parse_server(url: &str, access: &mut Access) -> Result<Place, TargetError> {
    let url = Url::parse(url)?;
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or(TargetError::Missing("a host"))?;
    access.sign_in(url.username(), url.password());
    access.database = url.path().trim_matches('/').parse().unwrap_or(0);
    let host = host.trim_matches(['[', ']']);
    Ok(Place::Server((host.to_owned(), url.port().unwrap_or(REDIS_PORT))))
}

fn parse_socket(rest: &str, access: &mut Access) -> Result<Place, TargetError> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if path.is_empty() {
        return Err(TargetError::Missing("the socket's path: unix:///PATH"));
    }
    let database = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "db");
    access.database = database.and_then(|(_, db)| db.parse().ok()).unwrap_or(0);
    Ok(Place::Socket(path.to_owned()))
}

/// `[user:password@]host[:port],host[:port]…[/path]`, which a URL parser does not take.
fn parse_hosts<'a>(
    rest: &'a str,
    port: u16,
    access: &mut Access,
) -> Result<(Vec<Node>, &'a str), TargetError> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts = match authority.rsplit_once('@') {
        None => authority,
        Some((user, hosts)) => {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            access.sign_in(name, Some(password).filter(|p| !p.is_empty()));
            hosts
        }
    };
    let nodes: Result<Vec<_>, _> = hosts.split(',').map(|host| parse_node(host, port)).collect();
    Ok((nodes?, path))
}

fn parse_node(text: &str, port: u16) -> Result<Node, TargetError> {
    let wrong = || TargetError::Host(text.to_owned());
    let url = Url::parse(&format!("redis://{text}")).map_err(|_| wrong())?;
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
    Ok((host.trim_matches(['[', ']']).to_owned(), url.port().unwrap_or(port)))
}

impl Access {
    /// The URL's user and password count where the command line names none.
    fn sign_in(&mut self, username: &str, password: Option<&str>) {
        let plain = |text: &str| {
            url::form_urlencoded::parse(format!("x={}", text.replace('+', "%2B")).as_bytes())
                .next()
                .map_or_else(String::new, |(_, value)| value.into_owned())
        };
        if self.username.is_none() && !username.is_empty() {
            self.username = Some(plain(username));
        }
        if self.password.is_none() {
            self.password = password.map(|password| plain(password).into());
        }
    }

    /// Connects to one server.
    pub async fn connect(&self, node: &Node) -> redis::RedisResult<MultiplexedConnection> {
        let (host, port) = node;
        let scheme = if self.tls { "rediss" } else { "redis" };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        self.open(&format!("{scheme}://{host}:{port}")).await
    }

    /// Connects to one server on its Unix socket.
    pub async fn connect_socket(&self, path: &str) -> redis::RedisResult<MultiplexedConnection> {
        self.open(&format!("unix://{path}")).await
    }

    /// The master's address as the first sentinel that answers tells it.
    pub async fn ask_sentinels(&self, sentinels: &[Node], master: &str) -> redis::RedisResult<Node> {
        // Sentinels have users of their own; ours are the master's.
        let access = Self { username: None, password: None, database: 0, ..self.clone() };
        let mut last = redis::RedisError::from((redis::ErrorKind::Io, "no sentinel answered"));
        for sentinel in sentinels {
            match access.ask_sentinel(sentinel, master).await {
                Ok(Some(node)) => return Ok(node),
                Ok(None) => {
                    last = (redis::ErrorKind::InvalidClientConfig, "sentinels don't know this master").into()
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn ask_sentinel(&self, sentinel: &Node, master: &str) -> redis::RedisResult<Option<Node>> {
        let mut connection = self.connect(sentinel).await?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("get-master-addr-by-name").arg(master);
        question.query_async(&mut connection).await
    }

    async fn open(&self, url: &str) -> redis::RedisResult<MultiplexedConnection> {
        let mut settings = RedisConnectionInfo::default().set_db(self.database);
        if let Some(username) = &self.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password.expose_secret());
        }
        let info = url.into_connection_info()?.set_redis_settings(settings);
        let certificates = TlsCertificates { client_tls: None, root_cert: self.ca.clone() };
        let client = if self.tls { Client::build_with_tls(info, certificates)? } else { Client::open(info)? };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT.max(self.response_timeout)))
            .set_response_timeout(Some(self.response_timeout))
            .set_concurrency_limit(CONCURRENCY);
        client.get_multiplexed_async_connection_with_config(&config).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> Result<Place, TargetError> {
        parse(url, Credentials::default(), Duration::from_secs(1)).map(|(place, _)| place)
    }

    fn node(host: &str, port: u16) -> Node {
        (host.to_owned(), port)
    }

    #[test]
    fn every_form_is_read() {
        assert_eq!(place("redis://cache").unwrap(), Place::Server(node("cache", 6379)));
        assert_eq!(place("rediss://cache:7000/2").unwrap(), Place::Server(node("cache", 7000)));
        assert_eq!(place("redis://[::1]:7000").unwrap(), Place::Server(node("::1", 7000)));
        assert_eq!(
            place("unix:///run/redis.sock?db=1").unwrap(),
            Place::Socket("/run/redis.sock".to_owned())
        );
        assert_eq!(
            place("redis+cluster://a,b:7001").unwrap(),
            Place::Cluster(vec![node("a", 6379), node("b", 7001)])
        );
        assert_eq!(
            place("redis+sentinel://a,b:7001/main").unwrap(),
            Place::Sentinel {
                sentinels: vec![node("a", 26_379), node("b", 7001)],
                master: "main".to_owned()
            }
        );
    }

    #[test]
    fn the_command_line_wins_over_the_url_and_passwords_are_unescaped() {
        let beside = Credentials { username: Some("ops".to_owned()), ..Credentials::default() };
        let (_, access) = parse("redis://web:p%40ss+1@cache/3", beside, Duration::from_secs(1)).unwrap();
        assert_eq!(access.username.as_deref(), Some("ops"));
        assert_eq!(access.password.unwrap().expose_secret(), "p@ss+1");
        assert_eq!(access.database, 3);
    }

    #[test]
    fn a_wrong_url_says_what_is_wrong() {
        for (url, part) in [
            ("cache:6379", "SCHEME"),
            ("http://cache", "starts with `http://`"),
            ("redis+sentinel://a", "the master's name"),
            ("redis+cluster://a:b:c", "HOST:PORT"),
            ("unix://", "socket's path"),
        ] {
            let message = place(url).unwrap_err().to_string();
            assert!(message.contains(part), "{url}: {message}");
        }
    }
}
