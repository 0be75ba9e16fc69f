//! Our programs as processes, each on ports of its own.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use e2e::http;
use e2e::ports::ReservedPort;
use e2e::spawner::ChildGuard;
use e2e::wait::eventually_ok;

use super::programs;

const READY_WITHIN: Duration = Duration::from_secs(20);

/// A running program; killed when dropped.
pub struct Server {
    process: ChildGuard,
    port: ReservedPort,
    _admin: ReservedPort,
}

impl Server {
    /// The yardstick.
    pub async fn hello() -> anyhow::Result<Self> {
        let server = Self::spawn("hello", service_kit::runtime::available(), |_| Vec::new())?;
        wait_for(&server.url("/")).await;
        Ok(server)
    }

    /// One of our services, ready.
    pub async fn service(name: &str, workers: usize, flags: &[&str]) -> anyhow::Result<Self> {
        let server = Self::spawn(name, workers, |admin| {
            let own = ["--log-level", "warn", "--admin-listen"].map(str::to_owned);
            let given = flags.iter().map(|flag| (*flag).to_owned());
            own.into_iter().chain([admin]).chain(given).collect()
        })?;
        wait_for(&format!("http://{}/readyz", server._admin.addr())).await;
        Ok(server)
    }

    fn spawn(name: &str, workers: usize, flags: impl FnOnce(String) -> Vec<String>) -> anyhow::Result<Self> {
        let (port, admin) = (ReservedPort::new(), ReservedPort::new());
        let path = programs::path(name)?;
        let process = ChildGuard::spawn(&path.to_string_lossy(), |command| {
            command.args(["--listen", &port.addr().to_string(), "--workers", &workers.to_string()]);
            command.args(flags(admin.addr().to_string()));
            command.stdin(Stdio::null()).stdout(Stdio::null());
        });
        Ok(Self { process, port, _admin: admin })
    }

    /// The address of a path of it.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.port.addr())
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}

async fn wait_for(url: &str) {
    let client = http::client();
    let ask = async || client.get(url).send().await.and_then(|answer| answer.error_for_status());
    eventually_ok(READY_WITHIN, format!("{url} answers"), ask).await;
}
