//! Attacks at the default limits: with 10,000 connections, as fast as one CPU can, or with as much memory as possible.
//! The attacker is on one CPU, the service and the honest client on another.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::getuid;
use socket2::{Domain, Socket, Type};
use testkit::attack::Behavior::{Busy, FullWindows, Headers, Idle, Silent, Sipping, Slow, Unread};
use testkit::attack::{Attack, Behavior, Honest, connect, raise_descriptor_limit, use_cpu};
use testkit::http2::{get, initial_window, preface, stream};
use testkit::namespace::Namespace;
use testkit::process::{Service, usage::peak_rss};
use testkit::tls::TlsFiles;
use testkit::tools::announce_skip;
use testkit::wait::{eventually, eventually_ok};
use tokio::time::{MissedTickBehavior, interval};

use crate::hostile_clients::Backend;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const ATTACKER_CPU: usize = 0;
const SERVICE_CPU: usize = 1;
/// All of 10.0.0.0/8 is local in the namespace, and none of it is trusted.
const NETWORK: &str = "10.0.0.1/8";
const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 9));
/// As many as the service allows by default.
const CONNECTIONS: usize = 10_000;
/// How much longer the honest client may wait because of an attack.
const MAX_DELAY: Duration = Duration::from_millis(100);
/// Limits that these tests never reach.
const HIGH_LIMITS: [&str; 4] = ["--burst-limit", "65535", "--daily-limit", "1000000"];
const MIXED: &[Behavior] = &[Busy, Unread, Slow, Silent, FullWindows, Idle, Sipping];

/// Addresses of attackers, each a network of its own.
fn attackers(count: u8) -> Vec<IpAddr> {
    (1..=count).map(|last| Ipv4Addr::new(10, 66, 0, last).into()).collect()
}

/// A program in the namespace, on [`SERVICE_CPU`] like the test itself, and an honest client.
struct Target {
    service: Service,
    honest: Honest,
    _backend: Backend,
}

impl Target {
    async fn start(program: &str, has_tls: bool) -> Self {
        raise_descriptor_limit(CONNECTIONS as u64 + 500);
        // Processes and threads inherit it.
        use_cpu(SERVICE_CPU);
        let backend = Backend::start_with(&HIGH_LIMITS).await;
        let files = TlsFiles::create(backend.data.path());
        let tls = ["--tls-cert", files.cert.to_str().unwrap(), "--tls-key", files.key.to_str().unwrap()];
        let tls = if has_tls { &tls[..] } else { &[] };
        let (service, mut honest) = match program {
            "ip-lookup" => start_standalone(backend.data.path(), tls).await,
            _ => backend.start_service_under(&[], program, SERVICE, tls).await,
        };
        honest.source = HONEST;
        honest.tls = has_tls.then(|| files.connector());
        Self { service, honest, _backend: backend }
    }
}

async fn start_standalone(data: &Path, flags: &[&str]) -> (Service, Honest) {
    let (data, any) = (data.join("data"), "127.0.0.1:0");
    let ports = ["--dashboard-listen", any, "--quota-listen", any, "--admin-listen", any];
    let listen = format!("{SERVICE}:0");
    let own = ["--data-dir", data.to_str().unwrap(), "--log-level", "info", "--listen", &listen];
    let mut service = Service::spawn("ip-lookup", &[&own[..], &ports, &HIGH_LIMITS, flags].concat(), &[]);
    let target = service.listen_addr("lookup").await;
    let key = eventually_ok(WAIT_TIMEOUT, "banner is printed", async || {
        let text = service.stdout();
        let key = text.lines().find_map(|line| line.trim().strip_prefix("API key"));
        key.map(|key| key.trim().to_owned()).ok_or_else(|| service.logs())
    });
    let headers = format!("Authorization: Bearer {}\r\n", key.await);
    (service, Honest { source: HONEST, target, path: "/api/v1/ip", headers, tls: None })
}

/// What the honest client sees.
struct Seen {
    latencies: Vec<Duration>,
    wrong: Vec<String>,
}

impl Seen {
    fn percentile(&self, percent: usize) -> Duration {
        self.latencies
            .get((self.latencies.len() * percent / 100).saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }
}

/// Sends up to 100 requests per second, each on a new connection: this many, and until a condition is true.
async fn send(honest: &Honest, requests: usize, until: impl Fn() -> bool) -> Seen {
    let mut seen = Seen { latencies: Vec::new(), wrong: Vec::new() };
    let mut pace = interval(Duration::from_millis(10));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let started = Instant::now();
    // Each timeout takes seconds.
    while (seen.latencies.len() < requests || !until()) && seen.wrong.len() < 5 {
        assert!(started.elapsed() < 2 * WAIT_TIMEOUT, "{} requests", seen.latencies.len());
        pace.tick().await;
        let started = Instant::now();
        match honest.get().await {
            Ok(_) => seen.latencies.push(started.elapsed()),
            Err(error) => seen.wrong.push(format!("request {}: {error}", seen.latencies.len() + 1)),
        }
    }
    seen.latencies.sort_unstable();
    seen
}

/// Attacks with 10,000 connections from this many networks. Returns what is wrong.
async fn survive(target: &Target, networks: u8, behaviors: &[Behavior]) -> Vec<String> {
    let Target { service, honest, .. } = target;
    let attack = Attack {
        target: honest.target,
        sources: attackers(networks),
        connections: CONNECTIONS,
        behaviors: behaviors.to_vec(),
        http2: true,
        // 1,000 connections per second, and then as many bytes and requests.
        tick: Duration::from_secs(10),
        cpu: Some(ATTACKER_CPU),
    };
    let quiet = service.open_files();
    let mut idle = honest.connect().await.unwrap();
    idle.get().await.unwrap();
    let before = send(honest, 300, || true).await;
    let attacker = attack.start();
    let mut seen = send(honest, 1_500, || attacker.opened() >= CONNECTIONS).await;
    seen.wrong.extend(idle.get().await.err().map(|error| format!("idle connection: {error}")));
    let (connections, opened) = (service.open_files().saturating_sub(quiet), attacker.opened());
    drop(attacker);
    let [old, new] = [before.percentile(99), seen.percentile(99)];
    if new > old + MAX_DELAY {
        seen.wrong.push(format!("p99 {new:?}, before {old:?}"));
    }
    let cell = format!("{networks} networks, {behaviors:?}, TLS {}", honest.tls.is_some());
    let (median, wrong) = (seen.percentile(50), seen.wrong);
    let (median_before, memory) = (before.percentile(50), service.peak_rss() >> 20);
    eprintln!(
        "{cell}: p50 {median_before:?} to {median:?}, p99 {old:?} to {new:?}, {connections} of {opened} connections, \
         {memory} MiB, wrong: {wrong:?}"
    );
    eventually(WAIT_TIMEOUT, "the connections are closed", async || {
        (service.open_files() < quiet + 20).then_some(())
    })
    .await;
    wrong.into_iter().map(|wrong| format!("{cell}: {wrong}")).collect()
}

async fn survive_10000_connections(program: &str, test: &str) {
    let Some(namespace) = Namespace::enter(test, &[NETWORK], &[]) else { return };
    let mut wrong = Vec::new();
    let target = Target::start(program, false).await;
    let cells: [(u8, &[Behavior]); 5] =
        [(1, &[Busy]), (3, &[Busy]), (100, &[Busy]), (1, &[Unread]), (100, MIXED)];
    for (networks, behaviors) in cells {
        wrong.extend(survive(&target, networks, behaviors).await);
    }
    drop(target);
    wrong.extend(survive(&Target::start(program, true).await, 1, &[Silent]).await);
    assert!(wrong.is_empty(), "{wrong:#?}");
    namespace.finish();
}

#[tokio::test]
async fn slow_as_root_10000_hostile_connections_leave_lookup_svc_fast() {
    let test = "hostile_load::slow_as_root_10000_hostile_connections_leave_lookup_svc_fast";
    survive_10000_connections("lookup-svc", test).await;
}

#[tokio::test]
async fn slow_as_root_10000_hostile_connections_leave_ip_lookup_fast() {
    let test = "hostile_load::slow_as_root_10000_hostile_connections_leave_ip_lookup_fast";
    survive_10000_connections("ip-lookup", test).await;
}

/// Silent connections per second. An unoptimized build can't take many more; programs of profile `dist` took 43,000, as many
/// as the attacker's core could send.
const FLOOD: f64 = 12_000.0;

/// Opens silent connections until stopped, and holds the last 4,000. Returns how many per second.
fn flood(target: SocketAddr, sources: &[IpAddr], stop: &AtomicBool) -> f64 {
    use_cpu(ATTACKER_CPU);
    let (mut held, mut sent, started) = (VecDeque::new(), 0.0, Instant::now());
    for source in sources.iter().cycle().take_while(|_| !stop.load(Relaxed)) {
        while sent > FLOOD * started.elapsed().as_secs_f64() {
            spin_loop();
        }
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        // Resets the connection when it is dropped, so that no port stays in use.
        socket.set_linger(Some(Duration::ZERO)).unwrap();
        socket.bind(&SocketAddr::new(*source, 0).into()).unwrap();
        // Is in progress, even if the queue of new connections is full.
        let _ = socket.connect(&target.into());
        sent += 1.0;
        held.push_back(socket);
        if held.len() > 4_000 {
            held.pop_front();
        }
    }
    sent / started.elapsed().as_secs_f64()
}

#[tokio::test]
async fn slow_as_root_flood_of_silent_tls_connections_fails_no_honest_handshake() {
    let test = "hostile_load::slow_as_root_flood_of_silent_tls_connections_fails_no_honest_handshake";
    let Some(namespace) = Namespace::enter(test, &[NETWORK], &[]) else { return };
    let target = Target::start("lookup-svc", true).await;
    let mut wrong = Vec::new();
    for networks in [1, 3] {
        let before = send(&target.honest, 100, || true).await;
        let (stop, address) = (Arc::new(AtomicBool::new(false)), target.honest.target);
        let flag = stop.clone();
        let attacker = thread::spawn(move || flood(address, &attackers(networks), &flag));
        let seen = send(&target.honest, 500, || true).await;
        stop.store(true, Relaxed);
        let rate = attacker.join().unwrap();
        let line = format!(
            "{networks} networks, {rate:.0} connections per second: p50 {:?} to {:?}, p99 {:?} to {:?}, wrong: {:?}",
            before.percentile(50),
            seen.percentile(50),
            before.percentile(99),
            seen.percentile(99),
            seen.wrong
        );
        eprintln!("{line}");
        if rate < 11_500.0 || !seen.wrong.is_empty() {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    namespace.finish();
}

/// Changes the window of 32 unread responses between 0 and 2 GiB until stopped. The window of the connection stays, so that
/// the responses remain unread. Returns how often.
fn flip_windows(socket: TcpStream, stop: &AtomicBool) -> u64 {
    use_cpu(ATTACKER_CPU);
    let (mut reader, mut writer) = (&socket, &socket);
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    socket.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    writer.write_all(&preface(0)).unwrap();
    (0..32).for_each(|n| writer.write_all(&get(stream(n), "/docs", &[], true)).unwrap());
    let flips = [initial_window(i32::MAX as u32), initial_window(0)].concat().repeat(500);
    let mut sent = 0;
    thread::scope(|scope| {
        // The server must not wait for room for its acknowledgments.
        let reading = scope.spawn(|| {
            let mut part = vec![0; 1 << 16];
            while !stop.load(Relaxed) && !matches!(reader.read(&mut part), Ok(0)) {}
        });
        while !stop.load(Relaxed) && !reading.is_finished() {
            // After a timeout, goes on in the middle of a frame.
            sent += writer.write(&flips[sent % flips.len()..]).unwrap_or(0);
        }
    });
    sent as u64 * 1_000 / flips.len() as u64
}

#[tokio::test]
async fn slow_as_root_window_flips_delay_no_other_connection() {
    let test = "hostile_load::slow_as_root_window_flips_delay_no_other_connection";
    let Some(namespace) = Namespace::enter(test, &[NETWORK], &[]) else { return };
    let target = Target::start("lookup-svc", false).await;
    let before = send(&target.honest, 300, || true).await;
    let socket = connect(attackers(1)[0], target.honest.target).await.unwrap().into_std().unwrap();
    socket.set_nonblocking(false).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let attacker = thread::spawn(move || flip_windows(socket, &flag));
    let seen = send(&target.honest, 500, || true).await;
    stop.store(true, Relaxed);
    let flips = attacker.join().unwrap();
    let [median, longest] = [before.percentile(50), seen.percentile(100)];
    eprintln!("{flips} flips: p50 {median:?}, longest {longest:?}, wrong: {:?}", seen.wrong);
    assert!(seen.wrong.is_empty(), "{:?}", seen.wrong);
    assert!(longest < median + MAX_DELAY, "{longest:?}, before {median:?}");
    namespace.finish();
}

/// A memory cgroup, version 1 or 2. Its processes must have ended when it is dropped.
struct MemoryLimit(PathBuf);

impl MemoryLimit {
    fn new(name: &str, bytes: u64) -> Self {
        let root = Path::new("/sys/fs/cgroup");
        let (parent, file) = match root.join("memory").is_dir() {
            true => (root.join("memory"), "memory.limit_in_bytes"),
            false => (root.to_owned(), "memory.max"),
        };
        // Version 2 only; fails if it is enabled already.
        let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
        let dir = parent.join(format!("ip-lookup-test-{name}-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join(file), bytes.to_string()).unwrap();
        Self(dir)
    }

    /// Runs a program under the limit.
    fn wrapper(&self) -> [&str; 4] {
        ["sh", "-c", r#"echo $$ >"$0/cgroup.procs" && exec "$@""#, self.0.to_str().unwrap()]
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// 2,200 connections of one address send requests with 90 header fields each and do not read the responses. `limit` is that
/// of the chart, and `peak` the most that the service may use of it, in MiB.
async fn stay_within_memory(program: &str, path: &'static str, limit: u64, peak: u64) {
    if !getuid().is_root() {
        return announce_skip("cgroups need root");
    }
    let (backend, mut wrong) = (Backend::start_with(&HIGH_LIMITS).await, Vec::new());
    for indexed in [true, false] {
        for first in [Some("/"), None] {
            let cgroup = MemoryLimit::new(program, limit << 20);
            let loopback = Ipv4Addr::LOCALHOST.into();
            let (mut service, honest) =
                backend.start_service_under(&cgroup.wrapper(), program, loopback, &[]).await;
            let attack = Attack {
                target: honest.target,
                sources: vec![[127, 0, 66, 1].into()],
                connections: 2_200,
                behaviors: vec![Headers { indexed, first, path }],
                http2: true,
                tick: Duration::from_secs(10),
                cpu: None,
            };
            let attacker = attack.start();
            let started = Instant::now();
            // The attacker needs this long for all of its connections, and for its 0.9 GB of literal headers.
            let time = Duration::from_secs(if indexed { 15 } else { 25 });
            let seen = send(&honest, 100, || attacker.opened() >= 2_200 && started.elapsed() > time).await;
            let used = peak_rss(service.pid()).unwrap_or(limit << 20) >> 20;
            let alive = service.is_running() && used != limit;
            let line = format!(
                "indexed: {indexed}, first: {first:?}: alive: {alive}, {used} MiB, {} opened, p99 {:?}, wrong: {:?}",
                attacker.opened(),
                seen.percentile(99),
                seen.wrong
            );
            eprintln!("{line}");
            if !alive || used >= peak || !seen.wrong.is_empty() {
                wrong.push(line);
            }
            drop((attacker, service));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn slow_as_root_headers_of_unread_requests_leave_lookup_svc_below_300_mib() {
    stay_within_memory("lookup-svc", "/docs", 768, 300).await;
}

#[tokio::test]
async fn slow_as_root_headers_of_unread_requests_leave_dashboard_below_200_mib() {
    stay_within_memory("dashboard-api", "/swagger", 256, 200).await;
}
