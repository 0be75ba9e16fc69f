//! A receiver of webhooks, which can fail in several ways.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::wait::eventually;

const WAIT: Duration = Duration::from_secs(30);

/// A received message.
#[derive(Clone, Debug)]
pub struct Received {
    headers: String,
    pub body: String,
}

impl Received {
    /// The value of a header; empty if it is missing.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let prefix = format!("{name}: ");
        self.headers.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default()
    }

    /// # Panics
    /// If the body is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// A server that receives webhooks, and responds with a fixed text.
pub struct Receiver {
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    answer: Arc<Mutex<&'static str>>,
}

pub const OK: &str = "HTTP/1.1 204 No Content\r\n\r\n";
pub const FAILED: &str = "HTTP/1.1 500 Oops\r\ncontent-length: 6\r\n\r\nsecret";
/// No response; the connection stays open.
pub const SILENT: &str = "…";
/// A response that never ends.
pub const ENDLESS: &str = "HTTP/1.1 200 OK\r\n\r\nendless…";

impl Receiver {
    /// # Panics
    /// If no port can be opened.
    pub async fn start(answer: &'static str) -> Self {
        Self::start_on("127.0.0.1:0", answer).await
    }

    /// Like [`Receiver::start`], at this address.
    ///
    /// # Panics
    /// If the port can't be opened.
    pub async fn start_on(address: &str, answer: &'static str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (received, answer) = (Arc::<Mutex<Vec<Received>>>::default(), Arc::new(Mutex::new(answer)));
        let (log, current) = (received.clone(), answer.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, log.clone(), *current.lock().unwrap()));
            }
        });
        Self { address, received, answer }
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Changes the response to later messages.
    pub fn answer(&self, answer: &'static str) {
        *self.answer.lock().unwrap() = answer;
    }

    /// All messages so far.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// All messages since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut *self.received.lock().unwrap())
    }

    /// Waits for this number of messages.
    pub async fn wait_for(&self, count: usize) -> Vec<Received> {
        let enough = async || Some(self.received()).filter(|received| received.len() >= count);
        eventually(WAIT, format!("{count} messages"), enough).await
    }
}

async fn serve(mut stream: TcpStream, log: Arc<Mutex<Vec<Received>>>, answer: &'static str) {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).to_string();
        if let Some((headers, body)) = text.split_once("\r\n\r\n") {
            let received = Received { headers: headers.to_owned(), body: body.to_owned() };
            if body.len() == received.header("content-length").parse::<usize>().unwrap() {
                log.lock().unwrap().push(received);
                break;
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(read) if read > 0 => bytes.extend(&chunk[..read]),
            _ => return,
        }
    }
    let _ = stream.write_all(answer.trim_end_matches('…').as_bytes()).await;
    if answer == ENDLESS {
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    } else if answer == SILENT {
        let _ = stream.read(&mut [0; 1]).await;
    }
}
