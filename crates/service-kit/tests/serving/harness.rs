//! A test server and a raw client that sends exactly the given bytes.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderValue, header};
use http_server::{ErrorResponder, Lifecycle, ServeArgs, Server};
use poem::{Endpoint, EndpointExt, Route, endpoint::make_sync, get};
use service_kit::{catch_all, responder};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::JoinHandle,
};

pub const DOCS: &str = "https://docs.example";

/// The peer whose request IDs the test server uses. Not the peer of [`TestServer::connect`].
pub const TRUSTED_PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Maximum time for one step of a test. If a step takes longer, the test fails.
pub const TIMEOUT: Duration = Duration::from_secs(10);

pub struct TestServer {
    pub addr: SocketAddr,
    pub lifecycle: Lifecycle,
    pub task: JoinHandle<()>,
}

impl TestServer {
    pub async fn start(args: &ServeArgs, endpoint: impl Endpoint + 'static) -> Self {
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::bind("test", addr, args).await.expect("bind");
        let (addr, lifecycle) = (server.local_addr(), Lifecycle::new(args));
        let cors = (header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        let server = server.errors(responder(DOCS, &[cors].into_iter().collect()));
        let server = server.trust(|peer| peer == TRUSTED_PEER);
        let serving = server.serve(endpoint.map_to_response().boxed(), lifecycle.clone());
        Self { addr, lifecycle, task: tokio::spawn(serving) }
    }

    pub async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.addr).await.expect("connect"))
    }

    pub async fn connect_from(&self, peer: IpAddr) -> Client {
        let socket = TcpSocket::new_v4().expect("socket");
        socket.bind(SocketAddr::new(peer, 0)).expect("bind");
        Client(socket.connect(self.addr).await.expect("connect"))
    }

    /// Waits until the server has read what other clients have sent: it handles a request that arrives later.
    pub async fn wait_until_read(&self) {
        assert_eq!(self.connect().await.get("/").await.status, 200);
    }

    pub async fn wait_stopped(self) {
        let result = tokio::time::timeout(TIMEOUT, self.task).await;
        result.expect("server stops in time").expect("server does not panic");
    }
}

/// What the test's thread has logged, up to level debug.
pub struct CapturedLog {
    file: tempfile::NamedTempFile,
    _guard: tracing::subscriber::DefaultGuard,
}

impl CapturedLog {
    /// Captures until it is dropped. The test must run on one thread.
    pub fn start() -> Self {
        let file = tempfile::NamedTempFile::new().expect("log");
        let writer = Arc::new(file.reopen().expect("log"));
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(writer)
            .finish();
        Self { file, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// The line that contains `text`.
    pub fn line(&self, text: &str) -> String {
        let log = std::fs::read_to_string(self.file.path()).expect("log");
        let line = log.lines().find(|line| line.contains(text));
        line.unwrap_or_else(|| panic!("no line {text:?}: {log}")).to_owned()
    }
}

/// Errors that link to [`DOCS`].
pub fn errors() -> ErrorResponder {
    responder(DOCS, &HeaderMap::new())
}

/// No drain delay and a short grace period.
pub fn args() -> ServeArgs {
    ServeArgs { drain_delay: Duration::ZERO, grace: Duration::from_secs(5), ..ServeArgs::default() }
}

/// Responds with `bytes` bytes that belong to this response only.
pub fn download(bytes: usize) -> impl Endpoint {
    make_sync(move |_| vec![b'x'; bytes])
}

pub fn hello() -> impl Endpoint {
    Route::new().at("/", get(make_sync(|_| "hello"))).with(catch_all(errors()))
}

pub struct Client(pub TcpStream);

#[derive(Debug)]
pub struct RawResponse {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl RawResponse {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect("valid JSON")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

impl Client {
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.expect("send");
    }

    pub async fn get(&mut self, path: &str) -> RawResponse {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")).await;
        self.read_response().await
    }

    pub async fn read_response(&mut self) -> RawResponse {
        let result = tokio::time::timeout(TIMEOUT, self.try_read_response()).await;
        result.expect("response in time").expect("response")
    }

    /// Reads the head of a response that may have no body, such as one to HEAD.
    pub async fn read_head(&mut self) -> String {
        let result = tokio::time::timeout(TIMEOUT, self.try_read_head()).await;
        result.expect("response in time").expect("response")
    }

    async fn try_read_head(&mut self) -> io::Result<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await?);
        }
        Ok(String::from_utf8_lossy(&head).into_owned())
    }

    async fn try_read_response(&mut self) -> io::Result<RawResponse> {
        let head = self.try_read_head().await?;
        let status = head[9..12].parse().expect("numeric status");
        let mut response = RawResponse { status, head, body: String::new() };
        let length =
            response.header("content-length").map_or(0, |value| value.parse().expect("numeric length"));
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await?;
        response.body = String::from_utf8(body).expect("UTF-8");
        Ok(response)
    }

    /// Waits until the server closes the connection. Returns how long that took.
    pub async fn wait_closed(&mut self) -> Duration {
        let started = Instant::now();
        let mut rest = Vec::new();
        // A reset counts as closed.
        let _ = tokio::time::timeout(TIMEOUT, self.0.read_to_end(&mut rest))
            .await
            .expect("server closes the connection in time");
        assert!(rest.is_empty(), "unexpected bytes before the close: {rest:?}");
        started.elapsed()
    }
}
