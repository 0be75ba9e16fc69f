//! A client and a server in two network namespaces, connected by a link with a delay. The machine's own network is not
//! touched.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::getuid;
use testkit::spawner::ChildGuard;
use testkit::tools::{STRICT, announce_skip, require_tool};
use testkit::wait::eventually;

/// Delays packets between two TUN devices. A program of its own, because the system call that creates such a device has no
/// safe wrapper in our dependencies.
const DELAY: &str = include_str!("delayed_network/delay.py");

/// The server's address in its namespace.
pub const SERVER: &str = "192.0.2.1";
/// The client's address in its namespace.
pub const CLIENT: &str = "192.0.2.2";

/// Maximum time for a process to enter its namespace.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Two namespaces and the link between them. They end when this is dropped, or when the test process dies.
#[derive(Debug)]
pub struct DelayedNetwork {
    // Dropped first: it uses the client's namespace. Its own namespace is the server's.
    link: ChildGuard,
    settings: ChildStdin,
    confirmations: BufReader<ChildStdout>,
    client: ChildGuard,
}

impl DelayedNetwork {
    /// Creates the namespaces. `None` means that the test must return immediately, as with [`require_tool`].
    ///
    /// # Panics
    /// If the link can't be created, or if root or a tool is missing under `./test`, which sets `IP_LOOKUP_TEST_STRICT`.
    pub async fn start() -> Option<Self> {
        if !getuid().is_root() {
            assert!(env::var_os(STRICT).is_none(), "network namespaces need root");
            announce_skip("network namespaces need root");
            return None;
        }
        if !["ip", "unshare", "nsenter", "chrt", "python3", "busybox"].into_iter().all(require_tool) {
            return None;
        }
        let client = ChildGuard::spawn("unshare", |command| {
            command.args(["--net", "sleep", "infinity"]).stdin(Stdio::null());
        });
        // Until `unshare` has run, the process is still in this namespace.
        let this_network = fs::read_link("/proc/self/ns/net").expect("namespace of this process");
        eventually(START_TIMEOUT, "the client's namespace exists", async || {
            let network = fs::read_link(format!("/proc/{}/ns/net", client.pid())).ok()?;
            (network != this_network).then_some(())
        })
        .await;
        let mut link = ChildGuard::spawn("unshare", |command| {
            command.args(["--net", "python3", "-c", DELAY, &client.pid().to_string()]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        });
        let settings = link.child().stdin.take().expect("stdin is piped");
        let confirmations = BufReader::new(link.child().stdout.take().expect("stdout is piped"));
        let mut this = Self { link, settings, confirmations, client };
        this.set_round_trip_time(0);
        Some(this)
    }

    /// Sets the round-trip time of the link.
    ///
    /// # Panics
    /// If the program that delays the packets has ended.
    pub fn set_round_trip_time(&mut self, milliseconds: u32) {
        writeln!(self.settings, "{milliseconds}").expect("the link is running");
        let mut line = String::new();
        self.confirmations.read_line(&mut line).expect("the link is running");
        assert_eq!(line.trim(), milliseconds.to_string(), "confirmation of the link");
    }

    /// The start of a command line that runs a program in the server's namespace.
    #[must_use]
    pub fn in_server(&self) -> [String; 2] {
        enter(&self.link)
    }

    /// Runs a program in the client's namespace and returns its standard output. It runs with real-time priority
    /// (`chrt --fifo`), as the link does, so that a busy machine delays ping and acknowledgments less.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn run_in_client(&self, line: &[&str]) -> String {
        let [program, namespace] = enter(&self.client);
        let mut command = Command::new(program);
        command.args([&namespace, "chrt", "--fifo", "50"]).args(line);
        let output = command.stdin(Stdio::null()).output();
        let output = output.expect("nsenter is installed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{line:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// The lowest round-trip time in milliseconds of `count` pings from the client to the server.
    ///
    /// # Panics
    /// If there is no reply.
    #[must_use]
    pub fn ping(&self, count: usize) -> f64 {
        let count = count.to_string();
        let text = self.run_in_client(&["busybox", "ping", "-c", &count, "-i", "0.1", SERVER]);
        let times = text.split("time=").skip(1).filter_map(|rest| rest.split(' ').next());
        lowest(times.map(|time| time.parse().expect("milliseconds")))
    }
}

fn enter(process: &ChildGuard) -> [String; 2] {
    ["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", process.pid())]
}

/// The lowest of several round-trip times. A busy machine can only lengthen a round trip, so this is the closest to the
/// link's.
///
/// # Panics
/// If there are no values.
#[must_use]
pub fn lowest(times: impl IntoIterator<Item = f64>) -> f64 {
    times.into_iter().min_by(f64::total_cmp).expect("at least one time")
}
