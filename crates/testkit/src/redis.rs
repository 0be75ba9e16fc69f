//! A real redis-server with its own port and directory. It can be killed, frozen and restarted.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{fs, io};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::ports::ReservedPort;
use crate::spawner::ChildGuard;
use crate::wait::eventually_ok;

mod cli;
mod options;

pub use options::RedisOptions;

use cli::Cli;

/// Maximum time for a server to start; an idle machine needs about 20 ms.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A running redis-server; killed when dropped.
#[derive(Debug)]
pub struct Redis {
    options: RedisOptions,
    port: ReservedPort,
    process: Option<ChildGuard>,
    // Last field: the process is killed before its directory is removed.
    dir: TempDir,
}

impl Redis {
    /// Starts a plain server: no data survives its restart, no password.
    pub async fn start() -> Self {
        Self::options().start().await
    }

    /// A builder for other servers: `Redis::options().appendonly().start().await`.
    #[must_use]
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    /// A builder for a real Valkey with an append-only file, which confirms writes on disk (WAITAOF). It syncs the file after
    /// every write, so that a confirmation does not take a second. `None` means that the test must return immediately.
    ///
    /// # Panics
    /// If Valkey is missing under `./test`.
    #[must_use]
    pub fn valkey() -> Option<RedisOptions> {
        let server = crate::tools::require_valkey()?;
        let options = Self::options().server(server.to_str().expect("UTF-8 path"));
        Some(options.directive("appendonly yes").directive("appendfsync always"))
    }

    async fn launch(options: RedisOptions) -> Self {
        let dir = tempfile::Builder::new().prefix("redis-").tempdir().expect("temporary directory");
        let port = ReservedPort::new();
        fs::write(dir.path().join("redis.conf"), options.config(dir.path(), port.number()))
            .expect("temporary directory is writable");
        let mut redis = Self { options, port, process: None, dir };
        redis.restart().await;
        redis
    }

    /// URL without credentials: `redis://127.0.0.1:PORT`, or `rediss://` with TLS.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.options.is_tls() { "rediss" } else { "redis" };
        format!("{scheme}://{}", self.port.addr())
    }

    /// URL of the Unix socket: `unix:///...`. The socket never uses TLS.
    #[must_use]
    pub fn unix_url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// `127.0.0.1:PORT`, for Cluster and Sentinel URLs and for the fault proxy.
    #[must_use]
    pub fn addr(&self) -> std::net::SocketAddr {
        self.port.addr()
    }

    /// The port number. It stays the same after [`Redis::restart`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The CA certificate that clients must trust (with [`RedisOptions::tls`]).
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    /// The directory of the server: data, log, and files of the test such as a password file.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Process ID of the server.
    ///
    /// # Panics
    /// If it is stopped.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running().pid()
    }

    /// False between [`Redis::stop`] and [`Redis::restart`].
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.process.is_some()
    }

    /// Kills the server with SIGKILL, as a crash would; connections are refused afterwards.
    pub fn stop(&mut self) {
        // Dropping the guard kills and reaps the process.
        self.process = None;
    }

    /// Kills the server if it is running, and starts it on the same port with the data on disk.
    ///
    /// # Panics
    /// If it does not start. The message includes its log.
    pub async fn restart(&mut self) {
        self.stop();
        self.process = Some(self.spawn());
        let cli = self.commands();
        let process = self.process.as_mut().expect("just started");
        let log = self.dir.path().join("redis.log");
        eventually_ok(START_TIMEOUT, "redis-server replies to PING", async || {
            assert!(process.is_running(), "redis-server exited at start: {}", read(&log));
            cli.run(&["PING"]).await
        })
        .await;
    }

    /// The name of a Redis key that ends with this text. Names have the tag of a shard, which only quota-svc computes.
    pub async fn find(&self, ending: &str) -> Option<String> {
        let found = self.cli(&["--scan", "--pattern", &format!("*{ending}")]).await;
        found.lines().next().map(str::to_owned)
    }

    /// Suspends the server with SIGSTOP: connections stay open and new ones are accepted, but there are no replies.
    pub fn freeze(&self) {
        self.running().signal(Signal::STOP);
    }

    /// Resumes a frozen server.
    pub fn thaw(&self) {
        self.running().signal(Signal::CONT);
    }

    /// Runs a command as administrator and returns the output of redis-cli.
    ///
    /// # Panics
    /// If the server is unreachable or replies with an error.
    pub async fn cli(&self, command: &[&str]) -> String {
        let reply = self.try_cli(command).await;
        reply.unwrap_or_else(|e| panic!("redis-cli {}: {e}", command.join(" ")))
    }

    /// Like [`Redis::cli`], but returns an error (the output of redis-cli) instead of panicking.
    pub async fn try_cli(&self, command: &[&str]) -> Result<String, String> {
        self.commands().run(command).await
    }

    /// One field of `INFO all`, such as `connected_clients` or `total_commands_processed`.
    pub async fn info(&self, field: &str) -> Result<String, String> {
        let info = self.try_cli(&["INFO", "all"]).await?;
        let mut fields = info.lines().filter_map(|line| line.trim().split_once(':'));
        let found = fields.find(|(name, _)| *name == field);
        found.map(|(_, value)| value.to_owned()).ok_or_else(|| format!("INFO has no field {field}"))
    }

    /// How many times clients have called a command, such as `waitaof`.
    pub async fn calls(&self, command: &str) -> u32 {
        let stats = self.cli(&["INFO", "commandstats"]).await;
        let prefix = format!("cmdstat_{command}:calls=");
        let calls =
            stats.lines().find_map(|line| line.strip_prefix(&prefix)?.split(',').next()?.parse().ok());
        calls.unwrap_or(0)
    }

    /// The log of the server so far.
    #[must_use]
    pub fn log(&self) -> String {
        read(&self.dir.path().join("redis.log"))
    }

    fn running(&self) -> &ChildGuard {
        self.process.as_ref().expect("Redis is running")
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    fn commands(&self) -> Cli {
        Cli { socket: self.socket(), credentials: self.options.administrator() }
    }

    fn spawn(&self) -> ChildGuard {
        ChildGuard::spawn(self.options.program(), |command| {
            command.arg(self.dir.path().join("redis.conf")).args(self.options.mode());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        })
    }
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|e: io::Error| format!("({} can't be read: {e})", file.display()))
}
