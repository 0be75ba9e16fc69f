//! A process of its own: signals, descriptors, the log.

use std::{fs, net::SocketAddr, path::PathBuf, process::Stdio, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStderr, Command},
    time::timeout,
};

use crate::rig::{Client, PATIENCE};

pub struct Probe {
    pub child: Child,
    pub addr: SocketAddr,
    pub log: Lines<BufReader<ChildStderr>>,
}

impl Probe {
    pub async fn start(descriptors: u32, arguments: &str, env: &[(&str, String)]) -> Self {
        let mut child = command(descriptors, arguments)
            .envs(env.iter().cloned())
            .spawn()
            .expect("the example probe; run all of `cargo test -p service-kit` to build it");
        let mut log = BufReader::new(child.stderr.take().expect("piped")).lines();
        let line = next(&mut log, "listening").await;
        assert_eq!(line["server"], "probe");
        let addr = line["addr"].as_str().expect("an address").parse().expect("an address");
        Self { child, addr, log }
    }

    pub async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.addr).await.expect("the probe listens"))
    }

    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = std::process::Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }

    pub async fn exit_code(&mut self) -> Option<i32> {
        let exit = timeout(PATIENCE, self.child.wait()).await;
        exit.expect("the process ends").expect("it ran").code()
    }

    fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Processor time used so far, in ticks of 10 ms.
    fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it runs");
        let fields = stat.rsplit(')').next().expect("fields").split_whitespace();
        fields.skip(11).take(2).map(|field| field.parse::<u64>().expect("a number")).sum()
    }
}

fn command(descriptors: u32, arguments: &str) -> Command {
    let this = std::env::current_exe().expect("a path");
    let target = this.ancestors().nth(2).map(PathBuf::from).expect("target folder");
    let probe = target.join("examples/probe").display().to_string();
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {descriptors}; exec {probe:?} --log-format json --workers 2 {arguments}");
    command.args(["-c", &script]).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// The next log line with that message.
pub async fn next(log: &mut Lines<BufReader<ChildStderr>>, message: &str) -> Value {
    let find = async {
        loop {
            let line = log.next_line().await.expect("a log").expect("the line before the end");
            let line: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("JSON: {line}"));
            if line["message"] == message {
                return line;
            }
        }
    };
    timeout(PATIENCE, find).await.unwrap_or_else(|_| panic!("no line {message:?}"))
}

#[tokio::test]
async fn a_signal_stops_it_and_the_exit_is_a_success() {
    let mut probe = Probe::start(256, "--drain-delay 0", &[]).await;
    let mut client = probe.connect().await;
    assert_eq!(client.get("/").await.body, "hello");
    probe.signal("TERM");
    next(&mut probe.log, "stopped").await;
    assert_eq!(probe.exit_code().await, Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let mut probe = Probe::start(256, "--drain-delay 60s", &[]).await;
    probe.signal("TERM");
    next(&mut probe.log, "stopping; a second signal ends at once").await;
    probe.signal("INT");
    assert_eq!(probe.exit_code().await, Some(1));
}

#[tokio::test]
async fn a_port_in_use_is_explained() {
    let first = Probe::start(256, "", &[]).await;
    let output = command(256, &format!("--listen {}", first.addr)).output().await.expect("it runs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(words.contains(&first.addr.to_string()), "{words}");
    assert!(words.contains("another program listens there already"), "{words}");
}

#[tokio::test]
async fn a_panics_words_stay_out_of_the_log() {
    let mut probe = Probe::start(256, "", &[]).await;
    let mut client = probe.connect().await;
    assert_eq!(client.get("/panic?key=secret").await.status, 500);
    let line = next(&mut probe.log, "panic").await;
    assert!(line["place"].as_str().expect("a place").contains("probe.rs"), "{line}");
    assert!(!line.to_string().contains("secret"), "{line}");
}

/// 64 descriptors, nearly all of them taken, and more clients than the rest can hold.
#[tokio::test]
async fn without_descriptors_it_neither_spins_nor_stops_serving() {
    let mut probe = Probe::start(64, "--hold-files 40", &[]).await;
    let mut crowd = Vec::new();
    for _ in 0..100 {
        crowd.push(probe.connect().await);
    }
    next(&mut probe.log, "can not accept connections").await;
    let before = probe.ticks();
    let window = Duration::from_secs(1);
    assert!(timeout(window, probe.child.wait()).await.is_err(), "it goes on");
    let used = probe.ticks() - before;
    assert!(used <= 20, "{used} of 100 ticks while descriptors are out");
    assert_eq!(probe.connect().await.get("/").await.body, "hello");
}
