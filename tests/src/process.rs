//! Runs this workspace's binaries as real processes: start, wait, signal, measure.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::spawner::ChildGuard;
use crate::wait::eventually;

mod logs;
mod usage;

use logs::Output;

/// Environment variable with the directory of the binaries that tests start, as an absolute path. Without it, tests
/// start the binaries of their own build.
pub const BIN_DIR: &str = "BIN_DIR";

/// Maximum time until a service logs its listen address; about 10 ms on an idle machine.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(20);

/// The environment variables that a service inherits. All others are removed: every flag can also be set by a
/// variable, and the developer's environment must not change the test.
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
    /// Starts `<bin> --log-format json <args>` with `env` and the few inherited variables. [`binary`] finds `bin`.
    ///
    /// # Panics
    /// If the binary is not built.
    #[must_use]
    pub fn spawn(bin: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::spawn_under(&[], bin, args, env)
    }

    /// Like [`Service::spawn`], through a wrapper program that replaces itself with the service by `exec`, such as
    /// `["prlimit", "--nofile=64"]`. The program `faketime` does not use `exec`, so it would outlive the service: use
    /// [`crate::tools::faketime`] instead.
    #[must_use]
    pub fn spawn_under(wrapper: &[&str], bin: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let path = binary(bin);
        let path = path.to_str().expect("UTF-8 path");
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

    /// Waits for the log line with the listen address of `server` (such as `quota` or `admin`).
    ///
    /// # Panics
    /// If the process exits or takes too long. The message includes its log.
    pub async fn listen_addr(&mut self, server: &str) -> SocketAddr {
        let what = format!("{} logs the listen address of {server}", self.bin);
        eventually(LISTEN_TIMEOUT, what, async || {
            // Checked before the log is read: an exited process has written all of its output.
            let running = self.process.is_running();
            let addr = self.stderr.listen_addr(server);
            assert!(running || addr.is_some(), "{} exited at start:\n{}", self.bin, self.logs());
            addr
        })
        .await
    }

    /// Sends SIGTERM, as Kubernetes does.
    pub fn term(&self) {
        self.process.signal(Signal::TERM);
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Kills the process with SIGKILL, as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Whether the process is still running.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Waits until the process has exited.
    ///
    /// # Panics
    /// If it is still running after `timeout`.
    pub async fn wait_exit(&mut self, timeout: Duration) -> ExitStatus {
        let what = format!("{} exits", self.bin);
        let child = self.process.child();
        eventually(timeout, what, async || child.try_wait().expect("can wait for a child process")).await
    }

    /// The log so far: the last 20,000 lines of standard error.
    #[must_use]
    pub fn logs(&self) -> String {
        self.stderr.text()
    }

    /// Standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Resident memory in bytes.
    #[must_use]
    pub fn rss(&self) -> u64 {
        usage::rss(self.pid())
    }

    /// Peak resident memory in bytes.
    #[must_use]
    pub fn peak_rss(&self) -> u64 {
        usage::peak_rss(self.pid())
    }

    /// CPU time used so far, user and kernel.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        usage::cpu_time(self.pid())
    }

    /// Number of open file descriptors.
    #[must_use]
    pub fn open_files(&self) -> usize {
        usage::open_files(self.pid())
    }
}

/// The path of the binary `bin`: in the directory that the environment variable [`BIN_DIR`] names, otherwise in
/// `target/debug`. An absolute path is returned unchanged, so that a test can start one binary from elsewhere.
///
/// # Panics
/// If the file is missing, or `BIN_DIR` is a relative path.
#[must_use]
pub fn binary(bin: &str) -> PathBuf {
    let test = std::env::current_exe().expect("path of the test executable");
    let path = bin_dir(std::env::var_os(BIN_DIR).as_deref(), &test).join(bin);
    assert!(
        path.is_file(),
        "{} is missing: run `cargo build --workspace --bins` first, and check {BIN_DIR} if it is set",
        path.display()
    );
    path
}

/// The directory of the binaries, from the value of [`BIN_DIR`] and the path of the test executable, which is in
/// `target/debug/deps`.
fn bin_dir(variable: Option<&OsStr>, test: &Path) -> PathBuf {
    let Some(dir) = variable.filter(|dir| !dir.is_empty()).map(Path::new) else {
        return test.ancestors().nth(2).expect("cargo builds tests in target/<profile>/deps").to_owned();
    };
    // Cargo starts each test in the directory of its package, so a relative path would have several meanings.
    assert!(dir.is_absolute(), "{BIN_DIR} must be an absolute path, not {}", dir.display());
    dir.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: &str = "/project/target/debug/deps/quota-0123";

    fn dir(variable: Option<&str>) -> PathBuf {
        bin_dir(variable.map(OsStr::new), Path::new(TEST))
    }

    #[test]
    fn binaries_come_from_bin_dir_if_it_is_set() {
        assert_eq!(dir(Some("/tmp/old-bin")), Path::new("/tmp/old-bin"));
        for unset in [None, Some("")] {
            assert_eq!(dir(unset), Path::new("/project/target/debug"), "{unset:?}");
        }
    }

    #[test]
    #[should_panic(expected = "BIN_DIR must be an absolute path, not target/old")]
    fn relative_bin_dir_is_rejected() {
        let _dir = dir(Some("target/old"));
    }
}
