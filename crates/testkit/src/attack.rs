//! Clients that try to take a server from everybody else, and the honest client that they harm. The clients use source
//! addresses of their own: all of 127.0.0.0/8, or the addresses of a [`Namespace`](crate::namespace::Namespace).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures_util::FutureExt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_rustls::TlsConnector;

use crate::http2::{DATA, HEADERS, MAX_PAYLOAD, frame, get, one_byte_more, preface, stream};

/// Maximum time for the honest client to connect or to get a response.
const HONEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The streams that the server allows on a connection.
const STREAMS: u32 = 32;

/// Paths with responses of different lengths; not every service has all of them.
const PATHS: [&str; 5] = ["/", "/docs", "/swagger", "/openapi.json", "/api/v1/ip/demo"];

/// A path whose handler reads the request's body, in every service.
const BODY_PATH: &str = "/api/v1/session";

/// What an attacker does on a connection. It never reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    /// Sends nothing.
    Silent,
    /// Sends one request, and then nothing.
    Idle,
    /// Sends headers in single bytes.
    Slow,
    /// Sends requests whose bodies arrive byte by byte.
    Busy,
    /// Sends two requests at each tick, up to the limit of streams, and does not read the responses. HTTP/2 windows have 0, 1
    /// or 5,000 bytes.
    Unread,
    /// Like [`Self::Unread`]. On HTTP/2 sends two requests in all, and enlarges their windows by single bytes.
    Sipping,
    /// Sends a few requests with bodies, as many bytes as the server's windows allow, and does not read the responses.
    FullWindows,
    /// Sends as many requests as it can, with 90 header fields each, and does not read the responses. HTTP/2 only.
    Headers {
        /// Whether all requests but the first refer to HPACK's dynamic table. Otherwise their fields are long literals.
        indexed: bool,
        /// The path of the first four requests, which have no such fields.
        first: Option<&'static str>,
        /// The path of the other requests.
        path: &'static str,
    },
}

/// Connections that are kept up: a connection that the server has closed is opened again.
#[derive(Clone, Debug)]
pub struct Attack {
    pub target: SocketAddr,
    pub sources: Vec<IpAddr>,
    pub connections: usize,
    /// What the connections do, in turn.
    pub behaviors: Vec<Behavior>,
    pub http2: bool,
    /// How often each connection sends more, or is opened again if the server has closed it.
    pub tick: Duration,
    /// The CPU of the attacker's thread.
    pub cpu: Option<usize>,
}

/// A running [`Attack`], in a thread of its own. Ends when dropped, and then resets its connections.
#[derive(Debug)]
pub struct Attacker {
    opened: Arc<AtomicUsize>,
    // Dropping it ends the thread's runtime.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Attack {
    /// # Panics
    /// If the hard limit of open files is too low.
    #[must_use]
    pub fn start(self) -> Attacker {
        raise_descriptor_limit(self.connections as u64 + 500);
        let opened = Arc::new(AtomicUsize::new(0));
        let (stop, stopped) = oneshot::channel();
        let counter = opened.clone();
        let thread = thread::spawn(move || {
            self.cpu.into_iter().for_each(use_cpu);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let attack = Arc::new(self);
                for position in 0..attack.connections {
                    tokio::spawn(attack.clone().keep_up(position, counter.clone()));
                }
                let _ = stopped.await;
            });
        });
        Attacker { opened, stop: Some(stop), thread: Some(thread) }
    }

    /// Keeps one connection up. The ticks of the connections are spread over time.
    async fn keep_up(self: Arc<Self>, position: usize, opened: Arc<AtomicUsize>) {
        let delay = self.tick.mul_f64(position as f64 / self.connections as f64);
        let mut tick = interval_at(Instant::now() + delay, self.tick);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let source = self.sources[position % self.sources.len()];
        let behavior = self.behaviors[position / self.sources.len() % self.behaviors.len()];
        loop {
            tick.tick().await;
            let Ok(mut socket) = connect(source, self.target).await else { continue };
            opened.fetch_add(1, Relaxed);
            let mut step = 0;
            while socket.write_all(&behavior.bytes(self.http2, position, step)).await.is_ok() {
                step += 1;
                tick.tick().await;
                if is_closed(&socket) {
                    break;
                }
            }
        }
    }
}

impl Attacker {
    /// How many connections have been opened, including those that replaced others.
    #[must_use]
    pub fn opened(&self) -> usize {
        self.opened.load(Relaxed)
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Behavior {
    /// What a connection sends when it is open, and then at each further tick. `position` is that of the connection.
    fn bytes(self, is_http2: bool, position: usize, step: u32) -> Vec<u8> {
        let path = PATHS[position % PATHS.len()];
        let window = [0, 1, 5_000][position / PATHS.len() % 3];
        let requests = |numbers: Range<u32>, path, ends| {
            numbers.flat_map(move |n| get(stream(n), path, &[], ends)).collect::<Vec<_>>()
        };
        match (self, is_http2, step) {
            (Self::Silent, ..) => Vec::new(),
            (Self::Idle, false, 0) => b"GET /robots.txt HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            (Self::Idle, true, 0) => [preface(65_535), get(1, "/robots.txt", &[], true)].concat(),
            (Self::Slow, false, 0) => b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ".to_vec(),
            // The frame has no end.
            (Self::Slow, true, 0) => {
                [preface(65_535), frame(HEADERS, 0, 1, &[0; MAX_PAYLOAD])[..9].to_vec()].concat()
            }
            (Self::Slow, ..) => b"x".to_vec(),
            (Self::Busy, false, 0) => {
                format!("GET {BODY_PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n")
                    .into_bytes()
            }
            (Self::Busy, false, _) => b" ".to_vec(),
            (Self::Busy, true, 0) => [preface(65_535), get(1, BODY_PATH, &[], false)].concat(),
            // A further request each time, because the server responds to those whose bodies take too long.
            (Self::Busy, true, _) => {
                [frame(DATA, 0, stream(step - 1), b" "), get(stream(step), BODY_PATH, &[], false)].concat()
            }
            (Self::Unread | Self::Sipping, false, 0..16) => {
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").repeat(2).into_bytes()
            }
            (Self::Unread | Self::Sipping, true, 0) => [preface(window), requests(0..2, path, true)].concat(),
            (Self::Unread, true, 1..16) => requests(2 * step..2 * step + 2, path, true),
            (Self::Sipping, true, _) => (0..2).flat_map(|n| one_byte_more(stream(n))).collect(),
            (Self::FullWindows, false, 0) => {
                let request =
                    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n");
                [request.into_bytes(), vec![b' '; 60_000]].concat().repeat(4)
            }
            (Self::FullWindows, true, 0) => [preface(0), requests(0..8, path, false)].concat(),
            // Sent later, when the server has enlarged the connection's window to 128 KiB.
            (Self::FullWindows, true, 1) => {
                (0..8).flat_map(|n| frame(DATA, 0, stream(n), &[b' '; MAX_PAYLOAD])).collect()
            }
            (Self::Headers { indexed, first, path }, _, 0) => {
                let ([insert, again], mut bytes) = (fields(indexed), preface(0));
                let plain = first.map_or(0, |_| 4);
                bytes.extend(requests(0..plain, first.unwrap_or(path), true));
                bytes.extend(get(stream(plain), path, &insert, true));
                bytes.extend((plain + 1..STREAMS).flat_map(|n| get(stream(n), path, &again, true)));
                bytes
            }
            _ => Vec::new(),
        }
    }
}

/// 90 header fields in HPACK, for a first request and for the next ones. If they are indexed, they fill the dynamic table;
/// otherwise they are long, but below the server's limit of 16 KiB.
fn fields(indexed: bool) -> [Vec<u8>; 2] {
    let (kind, length) = if indexed { (0x40, 8) } else { (0, 120) };
    let field = |n: u8| {
        let name = [b'x', b'0' + n / 10, b'0' + n % 10];
        [&[kind, 3][..], &name, &[length], &vec![b'v'; usize::from(length)]].concat()
    };
    let literals: Vec<u8> = (0..90).flat_map(field).collect();
    // The dynamic table begins at index 62.
    let again = if indexed { (62..62 + 90).flat_map(index).collect() } else { literals.clone() };
    [literals, again]
}

/// The HPACK representation of a field in a table: an integer with a 7-bit prefix.
fn index(index: u8) -> Vec<u8> {
    if index < 127 { vec![0x80 | index] } else { vec![0xFF, index - 127] }
}

fn is_closed(socket: &TcpStream) -> bool {
    match socket.ready(Interest::READABLE | Interest::WRITABLE).now_or_never() {
        Some(Ok(ready)) => ready.is_read_closed() || ready.is_write_closed(),
        Some(Err(_)) => true,
        None => false,
    }
}

/// Opens a connection from this address. It is reset when it is dropped, so that no port of the client stays in use.
pub async fn connect(source: IpAddr, target: SocketAddr) -> io::Result<TcpStream> {
    let socket = if source.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_zero_linger()?;
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(target).await
}

/// Binds the current thread to a CPU.
///
/// # Panics
/// If there is no such CPU.
pub fn use_cpu(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).expect("this CPU exists");
}

/// Raises the soft limit of open files, often 1,024, to the hard limit.
///
/// # Panics
/// If the hard limit is too low.
pub fn raise_descriptor_limit(needed: u64) {
    let limit = getrlimit(Resource::Nofile);
    let is_enough = limit.maximum.is_none_or(|maximum| maximum >= needed);
    assert!(is_enough, "this test needs {needed} file descriptors: raise the hard limit (ulimit -Hn)");
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("at most the hard limit");
}

/// A client that does nothing wrong.
#[derive(Clone)]
pub struct Honest {
    pub source: IpAddr,
    pub target: SocketAddr,
    pub path: &'static str,
    /// Lines of further headers.
    pub headers: String,
    /// Set if the server has TLS, with a certificate for localhost.
    pub tls: Option<TlsConnector>,
}

/// An open connection of an honest client.
pub struct HonestConnection {
    socket: Box<dyn Socket>,
    request: String,
}

trait Socket: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Socket for T {}

impl Honest {
    /// Opens a connection. With TLS, does the handshake.
    pub async fn connect(&self) -> io::Result<HonestConnection> {
        let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", self.path, self.headers);
        Ok(HonestConnection { socket: timeout(HONEST_TIMEOUT, self.open()).await??, request })
    }

    async fn open(&self) -> io::Result<Box<dyn Socket>> {
        let socket = connect(self.source, self.target).await?;
        let Some(tls) = &self.tls else { return Ok(Box::new(socket)) };
        let name = "localhost".try_into().expect("valid name");
        Ok(Box::new(tls.connect(name, socket).await?))
    }

    /// Sends a request on a new connection. Returns the response's head.
    pub async fn get(&self) -> io::Result<String> {
        self.connect().await?.get().await
    }
}

impl HonestConnection {
    /// Sends a request. Returns the head of the response, which must be a complete 200.
    pub async fn get(&mut self) -> io::Result<String> {
        timeout(HONEST_TIMEOUT, self.exchange()).await?
    }

    async fn exchange(&mut self) -> io::Result<String> {
        self.socket.write_all(self.request.as_bytes()).await?;
        let mut received = Vec::new();
        loop {
            if self.socket.read_buf(&mut received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&received[..end + 2]).into_owned();
            if !head.starts_with("HTTP/1.1 200 ") {
                return Err(io::Error::other(head));
            }
            let length = head.split("\r\ncontent-length: ").nth(1).and_then(|rest| rest.lines().next());
            let length = length.and_then(|length| length.parse::<usize>().ok());
            if received.len() - end - 4 == length.ok_or_else(|| io::Error::other(head.clone()))? {
                return Ok(head);
            }
        }
    }
}
