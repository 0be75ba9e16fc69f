//! A server to test, and a client that sends exactly the bytes it is told.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use poem::{Endpoint, EndpointExt, Route, endpoint::make_sync, get};
use service_kit::{Lifecycle, ServeArgs, Server, catch_all};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};

pub const DOCS: &str = "https://docs.example";

/// The longest anything here may take; a test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub struct Rig {
    pub addr: SocketAddr,
    pub lifecycle: Lifecycle,
    pub served: JoinHandle<()>,
}

impl Rig {
    pub async fn start(args: &ServeArgs, endpoint: impl Endpoint + 'static) -> Self {
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::bind("test", addr, args).await.expect("a free port");
        let (addr, lifecycle) = (server.local_addr(), Lifecycle::new(args));
        let serving = server.docs_url(DOCS).serve(endpoint.map_to_response().boxed(), lifecycle.clone());
        Self { addr, lifecycle, served: tokio::spawn(serving) }
    }

    pub async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.addr).await.expect("the server listens"))
    }

    /// Waits until the server has returned.
    pub async fn ended(self) {
        let end = tokio::time::timeout(PATIENCE, self.served).await;
        end.expect("the server returns").expect("it does not panic");
    }
}

/// Short times, and no drain delay.
pub fn args() -> ServeArgs {
    ServeArgs { drain_delay: Duration::ZERO, grace: Duration::from_secs(5), ..ServeArgs::default() }
}

pub fn hello() -> impl Endpoint {
    Route::new().at("/", get(make_sync(|_| "hello"))).with(catch_all(DOCS))
}

pub struct Client(pub TcpStream);

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect("a JSON body")
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
        self.0.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")).await;
        self.answer().await
    }

    pub async fn answer(&mut self) -> Answer {
        self.try_answer().await.expect("an answer")
    }

    pub async fn try_answer(&mut self) -> io::Result<Answer> {
        tokio::time::timeout(PATIENCE, self.read_answer()).await.expect("an answer in time")
    }

    async fn read_answer(&mut self) -> io::Result<Answer> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let status = head[9..12].parse().expect("a status");
        let mut answer = Answer { status, head, body: String::new() };
        let length = answer.header("content-length").map_or(0, |value| value.parse().expect("a length"));
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await?;
        answer.body = String::from_utf8(body).expect("UTF-8");
        Ok(answer)
    }

    /// Waits until the server closes the connection, and says how long that took.
    pub async fn closed(&mut self) -> Duration {
        let started = Instant::now();
        let mut rest = Vec::new();
        // A reset is a close too.
        let _ = tokio::time::timeout(PATIENCE, self.0.read_to_end(&mut rest))
            .await
            .expect("the server closes the connection");
        assert!(rest.is_empty(), "closed without another word: {rest:?}");
        started.elapsed()
    }
}
