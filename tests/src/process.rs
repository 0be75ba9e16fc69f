//! Our own binaries as real processes: started, watched, signalled, measured.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::spawner::ChildGuard;
use crate::wait::eventually;

mod logs;
mod usage;

use logs::Output;

/// A service says where it listens within this; on an idle machine after some 10 ms.
const LISTENING_WITHIN: Duration = Duration::from_secs(20);

/// What a service inherits of the test's environment. Our flags are environment variables too, and those of
/// whoever runs the tests must not change what is tested.
const INHERITED: [&str; 5] = ["PATH", "HOME", "TMPDIR", "RUST_BACKTRACE", "RUST_LOG"];

/// A running binary of this workspace; killed when dropped.
#[derive(Debug)]
pub struct Service {
    bin: String,
    process: ChildGuard,
    stdout: Output,
    stderr: Output,
}

impl Service {
    /// Starts `target/debug/<bin> --log-format json <args>` with `env` and little else as its environment.
    ///
    /// # Panics
    /// When the binary is not built or can't be started.
    #[must_use]
    pub fn spawn(bin: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::spawn_under(&[], bin, args, env)
    }

    /// Like [`Service::spawn`], through a program that becomes the service by `exec`, such as
    /// `["prlimit", "--nofile=64"]` (not `faketime`, which stays and would outlive its child: [`crate::tools::faketime`]).
    ///
    /// # Panics
    /// When the binary is not built or can't be started.
    #[must_use]
    pub fn spawn_under(wrapper: &[&str], bin: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let path = binary(bin);
        let path = path.to_str().expect("a target folder with a readable name");
        let line = [wrapper, &[path, "--log-format", "json"], args].concat();
        let mut process = ChildGuard::spawn(line[0], |command| {
            command.args(&line[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let inherited = INHERITED.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
            command.env_clear().envs(inherited).envs(env.iter().copied());
        });
        let stdout = Output::collect(process.child().stdout.take().expect("stdout is piped"));
        let stderr = Output::collect(process.child().stderr.take().expect("stderr is piped"));
        Self { bin: bin.to_owned(), process, stdout, stderr }
    }

    /// Waits for the log line that says where `server` (such as `quota` or `admin`) listens.
    ///
    /// # Panics
    /// When the process ends or takes too long; its log is in the message.
    pub async fn listening(&mut self, server: &str) -> SocketAddr {
        let what = format!("{} says where its server {server} listens", self.bin);
        eventually(LISTENING_WITHIN, what, async || {
            // Asked before the log is read: a process that has ended has written all it will.
            let running = self.process.is_running();
            let addr = self.stderr.listening(server);
            assert!(running || addr.is_some(), "{} ended at start:\n{}", self.bin, self.logs());
            addr
        })
        .await
    }

    /// Asks it to end (SIGTERM), as Kubernetes does.
    pub fn term(&self) {
        self.process.signal(Signal::TERM);
    }

    /// Sends any signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Kills it at once (SIGKILL), as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// When it still runs after `timeout`.
    pub async fn wait_exit(&mut self, timeout: Duration) -> ExitStatus {
        let what = format!("{} has ended", self.bin);
        let child = self.process.child();
        eventually(timeout, what, async || child.try_wait().expect("a child of ours can be waited for")).await
    }

    /// What it has logged: the last 20,000 lines of standard error.
    #[must_use]
    pub fn logs(&self) -> String {
        self.stderr.text()
    }

    /// What it has printed on standard output.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Resident memory in bytes.
    #[must_use]
    pub fn rss(&self) -> u64 {
        usage::rss(self.pid())
    }

    /// The most resident memory it ever had, in bytes.
    #[must_use]
    pub fn peak_rss(&self) -> u64 {
        usage::peak_rss(self.pid())
    }

    /// Processor time it has used so far, in user and kernel mode.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        usage::cpu_time(self.pid())
    }

    /// How many file descriptors it has open.
    #[must_use]
    pub fn open_files(&self) -> usize {
        usage::open_files(self.pid())
    }
}

/// Where cargo has put `bin`: two folders above the test's own executable (`target/debug/deps/<test>`).
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn binary(bin: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its own file");
    let folder = test.ancestors().nth(2).expect("cargo puts tests into target/<profile>/deps");
    let path = folder.join(bin);
    assert!(path.is_file(), "{} is missing: run `cargo build --workspace --bins` first", path.display());
    path
}
