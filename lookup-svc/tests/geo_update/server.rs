//! A download server that can misbehave: it cuts off, stalls, never ends, lies.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A request as it came: `path` has the query, header names are in lower case.
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

/// How much of the body is sent, and what then.
#[derive(Clone, Copy)]
pub enum Body {
    Whole,
    CutAfter(usize),
    StallAfter(usize),
    /// A byte at a time, never long apart: minutes for a file that is thousands of bytes long.
    Trickle,
    Endless,
}

#[derive(Clone)]
pub struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    bytes: Vec<u8>,
    body: Body,
}

impl Reply {
    pub fn ok(bytes: &[u8]) -> Self {
        Reply { status: 200, headers: Vec::new(), bytes: bytes.to_vec(), body: Body::Whole }
    }
    pub fn status(status: u16) -> Self {
        Reply { status, ..Reply::ok(b"") }
    }
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
    pub fn body(self, body: Body) -> Self {
        Reply { body, ..self }
    }

    /// As a good server does it: 304 for a known tag, the rest for a range of the same version.
    pub fn tagged(request: &Request, bytes: &[u8], tag: &str) -> Self {
        if request.header("if-none-match") == Some(tag) {
            return Reply::status(304).with("etag", tag);
        }
        let start = request
            .header("range")
            .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
        match start {
            Some(start) if request.header("if-range") == Some(tag) => {
                let range = format!("bytes {start}-{}/{}", bytes.len() - 1, bytes.len());
                Reply { status: 206, ..Reply::ok(&bytes[start..]) }
                    .with("content-range", &range)
                    .with("etag", tag)
            }
            _ => Reply::ok(bytes).with("etag", tag),
        }
    }
}

pub struct Server {
    pub address: SocketAddr,
    log: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// `answer` gets each request and how many came before it.
    pub async fn start(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("bound");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (log.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answer.clone(), seen.clone()));
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

async fn serve<F: Fn(&Request, usize) -> Reply>(
    stream: TcpStream,
    answer: Arc<F>,
    log: Arc<Mutex<Vec<Request>>>,
) {
    let mut stream = BufReader::new(stream);
    let Some(request) = read(&mut stream).await else { return };
    let before = {
        let mut log = log.lock().expect("not poisoned");
        log.push(request.clone());
        log.len() - 1
    };
    drop(write(stream.into_inner(), answer(&request, before)).await);
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

async fn write(mut stream: TcpStream, reply: Reply) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", reply.status);
    if !matches!(reply.body, Body::Endless) {
        head += &format!("content-length: {}\r\n", reply.bytes.len());
    }
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await?;
    match reply.body {
        Body::Whole => stream.write_all(&reply.bytes).await,
        Body::CutAfter(count) => stream.write_all(&reply.bytes[..count]).await,
        Body::StallAfter(count) => {
            stream.write_all(&reply.bytes[..count]).await?;
            // Until the client has had enough.
            stream.readable().await
        }
        Body::Trickle => {
            for byte in &reply.bytes {
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
