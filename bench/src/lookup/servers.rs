//! Starts the measured programs as child processes on free ports.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::ensure;
use rustix::process::Signal;
use testkit::http;
use testkit::ports::ReservedPort;
use testkit::process::TOKEN_FILE;
use testkit::process::token_file;
use testkit::spawner::ChildGuard;
use testkit::wait::{eventually, eventually_ok};

use super::programs;

const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Longer than the drain delay and the grace period of the services.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);

/// A running program. It is killed when this is dropped.
pub struct Server {
    process: ChildGuard,
    port: ReservedPort,
    admin_port: ReservedPort,
}

impl Server {
    /// Starts the baseline of lookup-bench.
    pub async fn hello() -> anyhow::Result<Self> {
        let server = Self::spawn("hello", service_kit::runtime::available_cpus(), |_| Vec::new())?;
        wait_for_success(&server.url("/")).await;
        Ok(server)
    }

    /// Starts one of our services and waits until it is ready. `name` is the path of the program, or the name of one in
    /// the same directory as this program. With 0 `workers`, it has its default number.
    pub async fn service(name: &str, workers: usize, flags: &[&str]) -> anyhow::Result<Self> {
        let server = Self::spawn(name, workers, |admin_listen| {
            let common = ["--log-level", "warn", "--admin-listen"].map(str::to_owned);
            let flags = flags.iter().map(|flag| (*flag).to_owned());
            common.into_iter().chain([admin_listen]).chain(flags).collect()
        })?;
        wait_for_success(&format!("http://{}/readyz", server.admin_port.addr())).await;
        Ok(server)
    }

    fn spawn(name: &str, workers: usize, flags: impl FnOnce(String) -> Vec<String>) -> anyhow::Result<Self> {
        let (port, admin_port) = (ReservedPort::new(), ReservedPort::new());
        let path = programs::path(name)?;
        let process = ChildGuard::spawn(&path.to_string_lossy(), |command| {
            command.args(["--listen", &port.addr().to_string()]);
            // ip-lookup always has the default number, and no such flag.
            if workers > 0 {
                command.args(["--workers", &workers.to_string()]);
            }
            command.args(flags(admin_port.addr().to_string()));
            command.env(TOKEN_FILE, token_file()).stdin(Stdio::null()).stdout(Stdio::null());
        });
        Ok(Self { process, port, admin_port })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.port.addr())
    }

    /// The listen address.
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends SIGTERM, as Kubernetes does, and waits until the program has exited. Fails if its exit code is not 0.
    ///
    /// # Panics
    /// If it is still running after 40 s.
    pub async fn stop(mut self, name: &str) -> anyhow::Result<()> {
        self.process.signal(Signal::TERM);
        let child = self.process.child();
        let exited = async || child.try_wait().expect("can wait for a child process");
        let status = eventually(STOP_TIMEOUT, format!("{name} exits"), exited).await;
        ensure!(status.success(), "{name} ended with {status} after SIGTERM");
        Ok(())
    }
}

async fn wait_for_success(url: &str) {
    let client = http::client();
    let probe = async || client.get(url).send().await.and_then(|response| response.error_for_status());
    eventually_ok(START_TIMEOUT, format!("{url} responds"), probe).await;
}
