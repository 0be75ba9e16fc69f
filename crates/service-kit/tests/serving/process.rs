//! Tests that need a separate process: signals, file descriptors, the log.

use std::{fs, net::SocketAddr, path::PathBuf, process::Stdio, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStderr, Command},
    time::timeout,
};

use crate::harness::{Client, TIMEOUT};

pub struct Probe {
    pub child: Child,
    pub addr: SocketAddr,
    pub log: Lines<BufReader<ChildStderr>>,
}

impl Probe {
    pub async fn start(descriptors: u32, arguments: &str, env: &[(&str, String)]) -> Self {
        let mut child = command(descriptors, arguments).envs(env.iter().cloned()).spawn().expect("start sh");
        let mut log = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
        let line = next_line(&mut log, "listening").await;
        assert_eq!(line["server"], "probe");
        let addr = line["addr"].as_str().expect("addr field").parse().expect("valid address");
        Self { child, addr, log }
    }

    pub async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.addr).await.expect("connect"))
    }

    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let result = std::process::Command::new("kill").args(["-s", name, &pid]).status();
        assert!(result.is_ok_and(|status| status.success()));
    }

    pub async fn exit_code(&mut self) -> Option<i32> {
        let status = timeout(TIMEOUT, self.child.wait()).await;
        status.expect("process exits in time").expect("exit status").code()
    }

    fn pid(&self) -> u32 {
        self.child.id().expect("process is running")
    }

    /// CPU time used so far, in ticks of 10 ms.
    fn cpu_ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("process is running");
        let fields = stat.rsplit(')').next().expect("stat fields").split_whitespace();
        fields.skip(11).take(2).map(|field| field.parse::<u64>().expect("number")).sum()
    }
}

fn command(descriptors: u32, arguments: &str) -> Command {
    let test_binary = std::env::current_exe().expect("path");
    let target = test_binary.ancestors().nth(2).map(PathBuf::from).expect("target directory");
    // `cargo test -p service-kit` builds this example. If it is missing, sh prints an error and the test fails.
    let probe = target.join("examples/probe").display().to_string();
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {descriptors}; exec {probe:?} --log-format json --workers 2 {arguments}");
    command.args(["-c", &script]).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Reads log lines up to the next one with the given message.
pub async fn next_line(log: &mut Lines<BufReader<ChildStderr>>, message: &str) -> Value {
    let find = async {
        loop {
            let line = log.next_line().await.expect("read log").expect("line before the end of the log");
            let line: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
            if line["message"] == message {
                return line;
            }
        }
    };
    timeout(TIMEOUT, find).await.unwrap_or_else(|_| panic!("no log line {message:?}"))
}

#[tokio::test]
async fn sigterm_exits_with_code_0() {
    let mut probe = Probe::start(256, "--drain-delay 0", &[]).await;
    let mut client = probe.connect().await;
    assert_eq!(client.get("/").await.body, "hello");
    probe.signal("TERM");
    next_line(&mut probe.log, "stopped").await;
    assert_eq!(probe.exit_code().await, Some(0));
}

#[tokio::test]
async fn second_signal_exits_immediately() {
    let mut probe = Probe::start(256, "--drain-delay 60s", &[]).await;
    probe.signal("TERM");
    next_line(&mut probe.log, "shutting down; a second signal exits immediately").await;
    probe.signal("INT");
    assert_eq!(probe.exit_code().await, Some(1));
}

#[tokio::test]
async fn failed_background_task_ends_the_process_with_an_error() {
    for (failure, task) in [("ends", "example"), ("panics", "example"), ("export-panics", "telemetry export")]
    {
        let mut probe = Probe::start(256, &format!("--drain-delay 0 --failing-task {failure}"), &[]).await;
        let line = next_line(&mut probe.log, "a background task has failed; shutting down").await;
        assert_eq!(line["task"], task, "{failure}");
        next_line(&mut probe.log, "stopped").await;
        assert_eq!(probe.exit_code().await, Some(1), "{failure}");
    }
}

#[tokio::test]
async fn port_in_use_is_explained() {
    let first = Probe::start(256, "", &[]).await;
    let output = command(256, &format!("--listen {}", first.addr)).output().await.expect("run probe");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains(&first.addr.to_string()), "{stderr}");
    assert!(stderr.contains("another program uses this port"), "{stderr}");
}

#[tokio::test]
async fn formatted_panic_message_is_not_logged() {
    let mut probe = Probe::start(256, "", &[]).await;
    let mut client = probe.connect().await;
    assert_eq!(client.get("/panic?key=secret").await.status, 500);
    let line = next_line(&mut probe.log, "panic").await;
    assert!(line["location"].as_str().expect("location field").contains("probe.rs"), "{line}");
    assert!(!line.to_string().contains("secret"), "{line}");
}

/// The process may open 64 file descriptors, and `--hold-files` uses 40 of them. 100 clients need more than the rest.
#[tokio::test]
async fn server_out_of_descriptors_backs_off_and_keeps_serving() {
    let mut probe = Probe::start(64, "--hold-files 40", &[]).await;
    let mut clients = Vec::new();
    for _ in 0..100 {
        clients.push(probe.connect().await);
    }
    next_line(&mut probe.log, "can't accept connections; retrying").await;
    let before = probe.cpu_ticks();
    let window = Duration::from_secs(1);
    assert!(timeout(window, probe.child.wait()).await.is_err(), "process keeps running");
    let used = probe.cpu_ticks() - before;
    assert!(used <= 20, "used {used} of 100 CPU ticks while out of descriptors");
    assert_eq!(probe.connect().await.get("/").await.body, "hello");
}
