//! A download server that can truncate, stall or endlessly extend its responses.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A received request. `path` includes the query, and header names are in lower case.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub headers: Vec<(String, String)>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// How the body is sent.
#[derive(Clone, Copy)]
pub enum Body {
    Whole,
    TruncateAfter(usize),
    StallAfter(usize),
    /// One byte every 20 ms: a file of several KB takes minutes.
    Trickle,
    Endless,
}

#[derive(Clone)]
pub struct Response {
    status: u16,
    headers: Vec<(&'static str, String)>,
    bytes: Vec<u8>,
    body: Body,
}

impl Response {
    pub fn ok(bytes: &[u8]) -> Self {
        Response { status: 200, headers: Vec::new(), bytes: bytes.to_vec(), body: Body::Whole }
    }
    pub fn status(status: u16) -> Self {
        Response { status, ..Response::ok(b"") }
    }
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
    pub fn body(self, body: Body) -> Self {
        Response { body, ..self }
    }

    /// `bytes` with the ETag `tag`: 304 if the request's ETag matches.
    pub fn tagged(request: &Request, bytes: &[u8], tag: &str) -> Self {
        if request.header("if-none-match") == Some(tag) {
            return Response::status(304).with("etag", tag);
        }
        Response::ok(bytes).with("etag", tag)
    }
}

pub struct Server {
    pub address: SocketAddr,
    log: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// `respond` gets each request and the number of previous requests.
    pub async fn start(respond: impl Fn(&Request, usize) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("local address");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (requests, respond) = (log.clone(), Arc::new(respond));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, respond.clone(), requests.clone()));
            }
        });
        Server { address, log }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.log.lock().expect("not poisoned").clone()
    }
}

async fn serve<F: Fn(&Request, usize) -> Response>(
    stream: TcpStream,
    respond: Arc<F>,
    log: Arc<Mutex<Vec<Request>>>,
) {
    let mut stream = BufReader::new(stream);
    let Some(request) = read(&mut stream).await else { return };
    let previous = {
        let mut log = log.lock().expect("not poisoned");
        log.push(request.clone());
        log.len() - 1
    };
    drop(write(stream.into_inner(), respond(&request, previous)).await);
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let path = lines.first()?.split(' ').nth(1)?.to_owned();
    let split = |line: &String| {
        line.split_once(": ").map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
    };
    Some(Request { path, headers: lines[1..].iter().filter_map(split).collect() })
}

async fn write(mut stream: TcpStream, response: Response) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", response.status);
    if !matches!(response.body, Body::Endless) {
        head += &format!("content-length: {}\r\n", response.bytes.len());
    }
    for (name, value) in &response.headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await?;
    match response.body {
        Body::Whole => stream.write_all(&response.bytes).await,
        Body::TruncateAfter(count) => stream.write_all(&response.bytes[..count]).await,
        Body::StallAfter(count) => {
            stream.write_all(&response.bytes[..count]).await?;
            // Waits until the client disconnects.
            stream.readable().await
        }
        Body::Trickle => {
            for byte in &response.bytes {
                stream.write_all(&[*byte]).await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        }
        Body::Endless => loop {
            stream.write_all(&[b'x'; 8192]).await?;
        },
    }
}
