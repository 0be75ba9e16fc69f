//! While clients hold connections, send endless requests or do not read their responses, a client in another network gets
//! every response and is charged once for each, and the memory stays below a limit.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use quota_client::wire::Scope;
use tempfile::TempDir;
use testkit::attack::Behavior::{Busy, FullWindows, Idle, Silent, Sipping, Slow, Unread};
use testkit::attack::{Attack, Attacker, Behavior, Honest};
use testkit::process::Service;
use testkit::quota::{Quota, StoreChoice};
use testkit::tls::TlsFiles;
use testkit::tools::require_tool;
use testkit::wait::eventually;
use tokio::time::{MissedTickBehavior, interval};

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
const MEMORY_LIMIT: u64 = 300 << 20;
/// The daily limit of a key.
const DAILY_LIMIT: u32 = 10_000;

/// The attackers' networks, their connections, and the service's limit. One and three networks can't reach it. A hundred
/// have more than eight connections each at the limit: with fewer, none would be the largest that must give way.
const NETWORKS: [(u8, usize, &str); 3] = [(1, 96, "64"), (3, 96, "64"), (100, 1_100, "1000")];

const BEHAVIORS: [&[Behavior]; 6] = [
    &[Busy],
    &[Unread],
    &[Slow],
    &[Silent],
    &[FullWindows],
    &[Busy, Unread, Slow, Silent, FullWindows, Idle, Sipping],
];

/// The honest client's requests in each attack, each on a new connection.
const REQUESTS: u32 = 10;

/// Addresses of attackers, each a network of its own.
fn attackers(count: u8) -> Vec<IpAddr> {
    (1..=count).map(|last| Ipv4Addr::new(127, 0, 66, last).into()).collect()
}

/// A quota-svc and a key.
pub struct Backend {
    quota: Quota,
    key: String,
    pub data: TempDir,
}

impl Backend {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts quota-svc with these flags.
    pub async fn start_with(flags: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let quota = Quota::start_with(StoreChoice::File(data.path().join("quota.redb")), flags).await;
        quota.wait_ready(WAIT_TIMEOUT).await;
        let key = quota.key_with_scope(Scope::Full).await.secret;
        std::fs::write(data.path().join("session.key"), [7; 32]).unwrap();
        Self { quota, key, data }
    }

    /// Starts a lookup-svc or dashboard-api, which trusts no proxy, on loopback. Returns it and an honest client.
    pub async fn start_service(&self, program: &str, flags: &[&str]) -> (Service, Honest) {
        self.start_service_under(&[], program, Ipv4Addr::LOCALHOST.into(), flags).await
    }

    /// Like [`Self::start_service`], through a wrapper program and on another address.
    pub async fn start_service_under(
        &self,
        wrapper: &[&str],
        program: &str,
        address: IpAddr,
        flags: &[&str],
    ) -> (Service, Honest) {
        let session_key = self.data.path().join("session.key");
        let session_key = ["--session-key-file", session_key.to_str().unwrap()];
        let (server, path, own_flags): (_, _, &[&str]) = match program {
            // A busy machine must not turn a 200 into a 500.
            "lookup-svc" => {
                ("lookup", "/api/v1/ip", &["--quota-deadline", "10s", "--request-timeout", "12s"])
            }
            _ => ("dashboard", "/", &session_key),
        };
        let listen = format!("{address}:0");
        let args = ["--listen", &listen, "--admin-listen", "127.0.0.1:0", "--quota-url", self.quota.url()];
        let mut service =
            Service::spawn_under(wrapper, program, &[&args[..], own_flags, flags].concat(), &[]);
        let target = service.listen_addr(server).await;
        let headers = format!("Authorization: Bearer {}\r\n", self.key);
        (service, Honest { source: HONEST, target, path, headers, tls: None })
    }
}

/// Counts the honest client's responses, and checks that each one was charged once.
#[derive(Default)]
struct Tally {
    /// Of lookup-svc.
    charged: u32,
    wrong: Vec<String>,
}

impl Tally {
    async fn get(&mut self, cell: &str, request: impl Future<Output = std::io::Result<String>>) {
        let head = match request.await {
            Ok(head) => head,
            Err(error) => return self.wrong.push(format!("{cell}: {error}")),
        };
        let remaining = head.lines().find_map(|line| line.strip_prefix("x-ratelimit-remaining: "));
        if let Some(remaining) = remaining {
            self.charged += 1;
            if remaining.parse() != Ok(DAILY_LIMIT - self.charged) {
                self.wrong.push(format!("{cell}: {remaining} of {DAILY_LIMIT} after {}", self.charged));
                self.charged = DAILY_LIMIT - remaining.parse::<u32>().unwrap();
            }
        }
    }
}

/// Attacks the program in each way of the table while the honest client works.
async fn survive_attacks(program: &str, http2: bool) {
    let (backend, mut tally) = (Backend::start().await, Tally::default());
    for (networks, connections, limit) in NETWORKS {
        let (service, honest) = backend.start_service(program, &["--max-connections", limit]).await;
        let quiet = service.open_files();
        for behaviors in BEHAVIORS {
            let cell = format!("{networks} networks, {behaviors:?}");
            let attack = Attack {
                target: honest.target,
                sources: attackers(networks),
                connections,
                behaviors: behaviors.to_vec(),
                http2,
                tick: Duration::from_millis(2 * connections as u64),
                cpu: None,
            };
            let mut idle = honest.connect().await.unwrap();
            tally.get(&cell, idle.get()).await;
            let attacker = attack.start();
            // Every connection has been opened once, and half of them or their replacements have sent more than once.
            eventually(WAIT_TIMEOUT, "the attack is complete", async || {
                (attacker.opened() > connections + connections / 2
                    || attacker.opened() >= connections && service.open_files() > connections / 2)
                    .then_some(())
            })
            .await;
            let mut pace = interval(Duration::from_millis(60));
            let wrong = tally.wrong.len();
            for _ in 0..REQUESTS {
                pace.tick().await;
                tally.get(&cell, honest.get()).await;
                // Each timeout takes seconds.
                if tally.wrong.len() > wrong {
                    break;
                }
            }
            tally.get(&cell, idle.get()).await;
            drop((attacker, idle));
            eventually(WAIT_TIMEOUT, "the connections are closed", async || {
                // Those to quota-svc stay open.
                (service.open_files() < quiet + 20).then_some(())
            })
            .await;
        }
        let memory = service.peak_rss();
        eprintln!("{networks} networks: {} MiB", memory >> 20);
        if memory >= MEMORY_LIMIT {
            tally.wrong.push(format!("{networks} networks: {} MiB", memory >> 20));
        }
    }
    assert!(tally.wrong.is_empty(), "{} wrong: {:#?}", tally.wrong.len(), tally.wrong);
    let expected = NETWORKS.len() * BEHAVIORS.len() * (REQUESTS as usize + 2);
    assert_eq!(tally.charged as usize, if program == "lookup-svc" { expected } else { 0 });
}

#[tokio::test]
async fn http1_attacks_leave_other_networks_of_lookup_svc_served() {
    survive_attacks("lookup-svc", false).await;
}

#[tokio::test]
async fn http2_attacks_leave_other_networks_of_lookup_svc_served() {
    survive_attacks("lookup-svc", true).await;
}

#[tokio::test]
async fn http1_attacks_leave_other_networks_of_dashboard_served() {
    survive_attacks("dashboard-api", false).await;
}

#[tokio::test]
async fn http2_attacks_leave_other_networks_of_dashboard_served() {
    survive_attacks("dashboard-api", true).await;
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
async fn h2load_over_tls_without_a_window_leaves_other_networks_served() {
    if !require_tool("h2load") {
        return;
    }
    let backend = Backend::start().await;
    let tls = TlsFiles::create(backend.data.path());
    let flags = ["--tls-cert", tls.cert.to_str().unwrap(), "--tls-key", tls.key.to_str().unwrap()];
    let (service, Honest { target, .. }) = backend.start_service("lookup-svc", &flags).await;
    // From 127.0.0.1, which is another network.
    let mut h2load = H2load::start(&format!("https://127.0.0.1:{}/", target.port()));
    let ca = reqwest::Certificate::from_pem(&std::fs::read(&tls.ca).unwrap()).unwrap();
    let client =
        testkit::http::builder().tls_certs_only([ca]).local_address(HONEST).pool_max_idle_per_host(0);
    let client = client.build().unwrap();
    for sent in 1..=100 {
        let request = client.get(format!("https://localhost:{}/api/v1/ip", target.port()));
        let response = request.bearer_auth(&backend.key).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["x-ratelimit-remaining"], (DAILY_LIMIT - sent).to_string());
    }
    h2load.check_running();
    assert!(service.peak_rss() < MEMORY_LIMIT);
}

/// The honest connections of one address, which may have 250.
const SHARED: usize = 200;

/// Attacks from the honest client's own address. Of 50 connections of the attacker, those that are silent, idle or not read
/// go first, so that every honest one stays open and gets a response now and then.
async fn share_address(behavior: Behavior, tick: Duration, opened: usize) {
    let backend = Backend::start().await;
    let (_service, honest) = backend.start_service("dashboard-api", &["--max-connections", "1000"]).await;
    let mut connections = Vec::new();
    for _ in 0..SHARED {
        connections.push(honest.connect().await.unwrap());
    }
    let behaviors = vec![behavior];
    let attack = Attack {
        target: honest.target,
        sources: vec![HONEST],
        connections: SHARED,
        behaviors,
        http2: true,
        tick,
        cpu: None,
    };
    let (mut attacker, mut rounds) = (None::<Attacker>, 0);
    let mut pace = interval(Duration::from_millis(500));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while attacker.as_ref().is_none_or(|attacker| attacker.opened() < opened) {
        pace.tick().await;
        rounds += 1;
        assert!(rounds < 80, "{behavior:?}: the attacker's connections are not closed");
        for (position, connection) in connections.iter_mut().enumerate() {
            let response = connection.get().await;
            assert!(response.is_ok(), "{behavior:?}: honest connection {position}: {response:?}");
        }
        // Once every honest connection has had a request.
        attacker.get_or_insert_with(|| attack.clone().start());
    }
}

#[tokio::test]
async fn attackers_idle_connections_go_before_honest_ones_of_the_same_address() {
    // The attacker opens 2,000 connections per second; and 10, so that each stays for 5 s, longer than an honest client
    // waits between two requests.
    tokio::join!(
        share_address(Silent, Duration::from_millis(100), 10_000),
        share_address(Idle, Duration::from_secs(20), 100),
    );
}

#[tokio::test]
async fn attackers_unread_connections_go_before_honest_ones_of_the_same_address() {
    // 8 per second, so that each stays until it has made no progress for more than 5 s.
    share_address(Unread, Duration::from_secs(25), 100).await;
}
