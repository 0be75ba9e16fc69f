//! A real redis-server on a port and in a folder of its own, which can be killed, frozen and restarted.

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

/// How long a server may take to start; an idle machine needs about 20 ms.
const START_WITHIN: Duration = Duration::from_secs(20);

/// A running redis-server; killed when dropped.
#[derive(Debug)]
pub struct Redis {
    options: RedisOptions,
    port: ReservedPort,
    process: Option<ChildGuard>,
    // Last, so that the process is gone before its folder is removed.
    dir: TempDir,
}

impl Redis {
    /// Starts a plain server: no persistence, no password.
    pub async fn start() -> Self {
        Self::options().start().await
    }

    /// A server with more than the defaults: `Redis::options().appendonly().start().await`.
    #[must_use]
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    async fn launch(options: RedisOptions) -> Self {
        let dir = tempfile::Builder::new().prefix("redis-").tempdir().expect("a temporary folder");
        let port = ReservedPort::new();
        fs::write(dir.path().join("redis.conf"), options.config(dir.path(), port.number()))
            .expect("the temporary folder can be written");
        let mut redis = Self { options, port, process: None, dir };
        redis.restart().await;
        redis
    }

    /// Where clients connect, without credentials: `redis://127.0.0.1:PORT`, or `rediss://` with TLS.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.options.is_tls() { "rediss" } else { "redis" };
        format!("{scheme}://{}", self.port.addr())
    }

    /// The same server by its Unix socket: `unix:///...`. It is plain also where the port speaks TLS.
    #[must_use]
    pub fn unix_url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// `127.0.0.1:PORT`, as Cluster and Sentinel URLs and the fault proxy want it.
    #[must_use]
    pub fn addr(&self) -> std::net::SocketAddr {
        self.port.addr()
    }

    /// The port's number; it stays the same over [`Redis::restart`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The certificate a client must trust (with [`RedisOptions::tls`]).
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    /// The server's folder: data, log, and room for a test's own files (such as a password file).
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The server's process id.
    ///
    /// # Panics
    /// When it is stopped.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running().pid()
    }

    /// Whether the test has not stopped it.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.process.is_some()
    }

    /// Kills the server with SIGKILL, as a crash would; connections are refused afterwards.
    pub fn stop(&mut self) {
        // Dropping kills and reaps.
        self.process = None;
    }

    /// Starts it again (killing it first where it runs) on the same port with what its disk holds.
    ///
    /// # Panics
    /// When it does not come up; its log is in the message.
    pub async fn restart(&mut self) {
        self.stop();
        self.process = Some(self.spawn());
        let cli = self.commands();
        let process = self.process.as_mut().expect("just started");
        let log = self.dir.path().join("redis.log");
        eventually_ok(START_WITHIN, "redis-server answers PING", async || {
            assert!(process.is_running(), "redis-server ended at start: {}", read(&log));
            cli.run(&["PING"]).await
        })
        .await;
    }

    /// Stops the server's clockwork (SIGSTOP): connections stay and are accepted, nothing is answered.
    pub fn freeze(&self) {
        self.running().signal(Signal::STOP);
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        self.running().signal(Signal::CONT);
    }

    /// Runs a command as the administrator and gives the answer as redis-cli prints it.
    ///
    /// # Panics
    /// When the server is away or answers with an error.
    pub async fn cli(&self, command: &[&str]) -> String {
        let answer = self.try_cli(command).await;
        answer.unwrap_or_else(|e| panic!("redis-cli {}: {e}", command.join(" ")))
    }

    /// Like [`Redis::cli`], with an error answer or an absent server as a value.
    ///
    /// # Errors
    /// What redis-cli printed.
    pub async fn try_cli(&self, command: &[&str]) -> Result<String, String> {
        self.commands().run(command).await
    }

    /// One field of `INFO all`, such as `connected_clients` or `total_commands_processed`.
    ///
    /// # Errors
    /// When the server is away or has no such field.
    pub async fn info(&self, field: &str) -> Result<String, String> {
        let info = self.try_cli(&["INFO", "all"]).await?;
        let mut fields = info.lines().filter_map(|line| line.trim().split_once(':'));
        let found = fields.find(|(name, _)| *name == field);
        found.map(|(_, value)| value.to_owned()).ok_or_else(|| format!("INFO has no field {field}"))
    }

    /// What the server has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        read(&self.dir.path().join("redis.log"))
    }

    fn running(&self) -> &ChildGuard {
        self.process.as_ref().expect("this Redis was stopped by its test")
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
