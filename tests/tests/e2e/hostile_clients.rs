//! While clients hold connections or do not read their responses, a client in another network gets every response and is
//! charged once for each, and the memory stays below a limit.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quota_client::wire::Scope;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
use testkit::process::Service;
use testkit::quota::{Quota, StoreChoice};
use testkit::tls::TlsFiles;
use testkit::tools::require_tool;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
/// The requests of the honest client, each on a connection of its own. Below the burst limit.
const REQUESTS: u32 = 100;
/// The streams that a server allows on a connection.
const STREAMS: u32 = 32;
/// The attacker's connections.
const ATTACK_CONNECTIONS: usize = 100;
const MEMORY_LIMIT: u64 = 256 << 20;

/// A lookup-svc without trusted proxies, and its quota-svc.
struct Target {
    service: Service,
    api: SocketAddr,
    key: String,
    _quota: Quota,
    _data: TempDir,
}

impl Target {
    async fn start(flags: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let quota = Quota::start(StoreChoice::File(data.path().join("quota.redb"))).await;
        quota.wait_ready(WAIT_TIMEOUT).await;
        let key = quota.key_with_scope(Scope::Full).await.secret;
        let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--quota-url", quota.url()];
        // A busy machine must not turn a 200 into a 500.
        let deadlines = ["--quota-deadline", "10s", "--request-timeout", "12s"];
        let mut service = Service::spawn("lookup-svc", &[&ports[..], &deadlines, flags].concat(), &[]);
        let api = service.listen_addr("lookup").await;
        Self { service, api, key, _quota: quota, _data: data }
    }

    /// Sends the honest client's requests while others attack. Checks status, charges and memory.
    async fn check_honest_client(&self) {
        let mut latencies = Vec::new();
        for sent in 1..=REQUESTS {
            let started = Instant::now();
            let response = timeout(WAIT_TIMEOUT, self.get_ip()).await.expect("a response in time");
            latencies.push(started.elapsed());
            assert!(response.starts_with("HTTP/1.1 200 "), "request {sent}: {response}");
            let remaining = format!("\r\nx-ratelimit-remaining: {}\r\n", 10_000 - sent);
            assert!(response.contains(&remaining), "each response is charged once: {response}");
        }
        latencies.sort_unstable();
        let (median, p99) = (latencies[latencies.len() / 2], latencies[latencies.len() * 99 / 100]);
        let memory = self.service.peak_rss();
        eprintln!("p50 {median:?}, p99 {p99:?}, {} MiB", memory >> 20);
        assert!(memory < MEMORY_LIMIT, "{memory} bytes");
    }

    async fn get_ip(&self) -> String {
        let mut socket = connect(HONEST, self.api).await;
        let authorization = format!("Authorization: Bearer {}", self.key);
        let request =
            format!("GET /api/v1/ip HTTP/1.1\r\nHost: t\r\n{authorization}\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).await.unwrap();
        response
    }
}

async fn connect(source: IpAddr, addr: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(SocketAddr::new(source, 0)).unwrap();
    socket.connect(addr).await.unwrap()
}

/// The frames of as many GET requests as the server allows, after settings that let each response have `window` unread
/// bytes.
fn http2_requests(path: &str, window: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // SETTINGS with SETTINGS_INITIAL_WINDOW_SIZE.
    bytes.extend([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4]);
    bytes.extend(window.to_be_bytes());
    // GET, http, :authority "localhost", :path; literals without indexing.
    let mut block = b"\x82\x86\x01\x09localhost\x04".to_vec();
    block.push(u8::try_from(path.len()).unwrap());
    block.extend(path.as_bytes());
    for stream in (0..STREAMS).map(|n| 2 * n + 1) {
        // HEADERS with END_HEADERS and END_STREAM.
        bytes.extend([0, 0, u8::try_from(block.len()).unwrap(), 1, 5]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(&block);
    }
    bytes
}

/// Opens connections that send `bytes` and never read.
async fn send_without_reading(addr: SocketAddr, connections: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let mut sockets = Vec::new();
    for _ in 0..connections {
        let mut socket = connect(ATTACKER, addr).await;
        // The server stops reading when its responses are not read.
        let _ = timeout(Duration::from_millis(20), socket.write_all(bytes)).await;
        sockets.push(socket);
    }
    sockets
}

/// Raises the soft limit of open files, often 1,024, to the hard limit.
fn raise_descriptor_limit(needed: u64) {
    let limit = getrlimit(Resource::Nofile);
    let is_enough = limit.maximum.is_none_or(|maximum| maximum > needed);
    assert!(is_enough, "this test needs {needed} file descriptors: raise the hard limit (ulimit -Hn)");
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

#[tokio::test]
async fn unread_http2_responses_leave_other_networks_served() {
    let target = Target::start(&[]).await;
    let mut sockets = Vec::new();
    for path in ["/", "/docs", "/swagger", "/api/v1/ip/demo"] {
        for window in [0, 1, 5_000] {
            sockets.extend(send_without_reading(target.api, 30, &http2_requests(path, window)).await);
        }
    }
    target.check_honest_client().await;
}

#[tokio::test]
async fn responses_read_in_single_bytes_leave_other_networks_served() {
    let target = Target::start(&[]).await;
    let mut attack = JoinSet::new();
    for mut socket in send_without_reading(target.api, ATTACK_CONNECTIONS, &http2_requests("/", 0)).await {
        attack.spawn(async move {
            let mut tick = interval(Duration::from_millis(100));
            loop {
                tick.tick().await;
                // WINDOW_UPDATE of one byte on each stream.
                let frames = (0..STREAMS)
                    .flat_map(|n| [&[0, 0, 4, 8, 0], &(2 * n + 1).to_be_bytes()[..], &[0, 0, 0, 1]].concat());
                if socket.write_all(&frames.collect::<Vec<_>>()).await.is_err() {
                    return;
                }
            }
        });
    }
    target.check_honest_client().await;
}

#[tokio::test]
async fn pipelined_http1_requests_without_reading_leave_other_networks_served() {
    let target = Target::start(&[]).await;
    let requests = "GET /docs HTTP/1.1\r\nHost: t\r\n\r\n".repeat(5_000);
    let _sockets = send_without_reading(target.api, ATTACK_CONNECTIONS, requests.as_bytes()).await;
    target.check_honest_client().await;
}

/// h2load with a flow-control window of 0.
struct H2load(Child);

impl H2load {
    fn start(url: &str) -> Self {
        let args = ["-n", "1000000", "-c", "100", "-m", "200", "-w", "0", url];
        let quiet = (Stdio::null(), Stdio::null());
        Self(Command::new("h2load").args(args).stdout(quiet.0).stderr(quiet.1).spawn().unwrap())
    }

    fn check_running(&mut self) {
        assert!(self.0.try_wait().unwrap().is_none(), "h2load has exited");
    }
}

impl Drop for H2load {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[tokio::test]
async fn h2load_without_a_window_leaves_other_networks_served() {
    if !require_tool("h2load") {
        return;
    }
    let target = Target::start(&[]).await;
    // From 127.0.0.1, which is another network.
    let mut h2load = H2load::start(&format!("http://127.0.0.1:{}/docs", target.api.port()));
    target.check_honest_client().await;
    h2load.check_running();
}

#[tokio::test]
async fn h2load_over_tls_without_a_window_leaves_other_networks_served() {
    if !require_tool("h2load") {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let tls = TlsFiles::create(files.path());
    let flags = ["--tls-cert", tls.cert.to_str().unwrap(), "--tls-key", tls.key.to_str().unwrap()];
    let target = Target::start(&flags).await;
    let mut h2load = H2load::start(&format!("https://127.0.0.1:{}/", target.api.port()));
    let ca = reqwest::Certificate::from_pem(&std::fs::read(&tls.ca).unwrap()).unwrap();
    let client =
        testkit::http::builder().tls_certs_only([ca]).local_address(HONEST).pool_max_idle_per_host(0);
    let client = client.build().unwrap();
    for sent in 1..=REQUESTS {
        let request = client.get(format!("https://localhost:{}/api/v1/ip", target.api.port()));
        let response = request.bearer_auth(&target.key).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["x-ratelimit-remaining"], (10_000 - sent).to_string());
    }
    h2load.check_running();
    assert!(target.service.peak_rss() < MEMORY_LIMIT);
}

/// Opens twice as many connections as the port allows, each idle after one request, while the honest client works.
async fn hold_idle_connections(limit: usize) {
    raise_descriptor_limit(3 * limit as u64);
    let target = Target::start(&["--max-connections", &limit.to_string()]).await;
    let addr = target.api;
    let attack = tokio::spawn(async move {
        let mut sockets = Vec::new();
        for _ in 0..2 * limit {
            let mut socket = connect(ATTACKER, addr).await;
            socket.write_all(b"GET /robots.txt HTTP/1.1\r\nHost: t\r\n\r\n").await.unwrap();
            // Fails if the connection has been evicted already.
            let _ = socket.read(&mut [0; 1024]).await;
            sockets.push(socket);
        }
        sockets
    });
    target.check_honest_client().await;
    let held = timeout(3 * WAIT_TIMEOUT, attack).await.expect("all are accepted in time").unwrap();
    assert!(
        target.service.open_files() > limit * 9 / 10,
        "{} of {}",
        target.service.open_files(),
        held.len()
    );
    let response = timeout(WAIT_TIMEOUT, target.get_ip()).await.expect("a response in time");
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
}

#[tokio::test]
async fn idle_connections_at_the_limit_leave_other_networks_served() {
    hold_idle_connections(500).await;
}

#[tokio::test]
async fn slow_10000_idle_connections_leave_other_networks_served() {
    hold_idle_connections(5_000).await;
}

#[tokio::test]
async fn flood_of_silent_connections_leaves_other_networks_served() {
    raise_descriptor_limit(6_000);
    let target = Target::start(&["--max-connections", "1000"]).await;
    let addr = target.api;
    let attack = tokio::spawn(async move {
        // 4,000 per second. More than the server accepts would only fill the kernel's queue.
        let (mut sockets, mut tick) = (Vec::new(), interval(Duration::from_millis(10)));
        while sockets.len() < 5_000 {
            tick.tick().await;
            for _ in 0..40 {
                sockets.push(connect(ATTACKER, addr).await);
            }
        }
        sockets
    });
    target.check_honest_client().await;
    drop(timeout(WAIT_TIMEOUT, attack).await.expect("all are accepted in time").unwrap());
}
