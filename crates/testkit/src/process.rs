//! Runs this workspace's binaries as real processes: start, wait, signal, measure.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use rustix::process::Signal;

use crate::spawner::ChildGuard;
use crate::tools::project_root;
use crate::wait::eventually;

mod logs;
pub mod usage;

use logs::Output;

/// Environment variable with the directory of the binaries that tests start, as an absolute path. Without it, tests
/// build the binaries first and start those.
pub const BIN_DIR: &str = "BIN_DIR";

/// Whether a process is running, be it a child or not. A zombie is not: some init processes take seconds to reap an
/// orphan.
pub fn is_alive(pid: impl Display) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains("Z (zombie)"))
}

/// Maximum time until a service logs its listen address; about 10 ms on an idle machine.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(20);

/// How long to wait for the rest of a process's output after its exit.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(5);

/// The environment variables that a service inherits. All others are removed: every flag can also be set by a
/// variable, and the developer's environment must not change the test.
const INHERITED: [&str; 5] = ["PATH", "HOME", "TMPDIR", "RUST_BACKTRACE", "RUST_LOG"];

/// The variable with the file of quota-svc's token.
pub const TOKEN_FILE: &str = "IP_LOOKUP_QUOTA_TOKEN_FILE";

/// The file with the token of every quota-svc that tests start, and of its clients. All tests share it, so that it
/// stays the only one. [`Service::spawn`] passes it on.
#[must_use]
pub fn token_file() -> &'static Path {
    static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
        // With the user in its name, because a user can't replace a file that another one has created.
        let name = format!("ip-lookup-tests-quota-token-{}", rustix::process::getuid().as_raw());
        let path = std::env::temp_dir().join(name);
        let mut new = tempfile::NamedTempFile::new().expect("a temporary file");
        new.write_all(TOKEN.as_bytes()).expect("a writable file");
        new.persist(&path).expect("the file can be replaced");
        path
    });
    &FILE
}

/// The token in [`token_file`].
pub const TOKEN: &str = "token-of-the-tests-0123456789abcdef";

/// A running binary of this workspace; killed when dropped.
#[derive(Debug)]
pub struct Service {
    bin: String,
    process: ChildGuard,
    stdout: Output,
    stderr: Output,
}

impl Service {
    /// Starts `<bin> --log-format json <args>` with `env`, [`TOKEN_FILE`] and the few inherited variables. [`binary`] finds `bin`.
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
            command.env_clear().envs(inherited).env(TOKEN_FILE, token_file()).envs(env.iter().copied());
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

    /// Waits until the process has exited and its output is complete.
    ///
    /// # Panics
    /// If it is still running after `timeout`.
    pub async fn wait_exit(&mut self, timeout: Duration) -> ExitStatus {
        let what = format!("{} exits", self.bin);
        let child = self.process.child();
        let status =
            eventually(timeout, what, async || child.try_wait().expect("can wait for a child process")).await;
        // A program that the process has started may keep the pipes open.
        let deadline = tokio::time::Instant::now() + OUTPUT_TIMEOUT;
        while !(self.stdout.has_ended() && self.stderr.has_ended()) && tokio::time::Instant::now() < deadline
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        status
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
        usage::rss(self.pid()).expect("process is running")
    }

    /// Peak resident memory in bytes.
    #[must_use]
    pub fn peak_rss(&self) -> u64 {
        usage::peak_rss(self.pid()).expect("process is running")
    }

    /// CPU time used so far, user and kernel.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        usage::cpu_time(self.pid()).expect("process is running")
    }

    /// Number of open file descriptors.
    #[must_use]
    pub fn open_files(&self) -> usize {
        usage::open_files(self.pid()).expect("process is running")
    }
}

/// The path of the binary `bin`: in the directory that the environment variable [`BIN_DIR`] names, otherwise in the
/// directory of this test's own build, after cargo has brought it up to date. An absolute path is returned unchanged, so
/// that a test can start one binary from elsewhere.
///
/// # Panics
/// If the binaries can't be built, the file is missing, or `BIN_DIR` is a relative path.
#[must_use]
pub fn binary(bin: &str) -> PathBuf {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
        let test = std::env::current_exe().expect("path of the test executable");
        build_binaries(test.ancestors().nth(2).expect("cargo builds tests in target/<profile>/deps"))
    });
    let path = match bin_dir(std::env::var_os(BIN_DIR).as_deref()) {
        _ if Path::new(bin).is_absolute() => bin.into(),
        Some(dir) => dir.join(bin),
        None => BUILT.join(bin),
    };
    assert!(path.is_file(), "{} is missing; check {BIN_DIR} if it is set", path.display());
    path
}

/// The directory in the value of [`BIN_DIR`]. `None` if it is unset or empty.
fn bin_dir(variable: Option<&OsStr>) -> Option<PathBuf> {
    let dir = variable.filter(|dir| !dir.is_empty()).map(Path::new)?;
    // Cargo starts each test in the directory of its package, so a relative path would have several meanings.
    assert!(dir.is_absolute(), "{BIN_DIR} must be an absolute path, not {}", dir.display());
    Some(dir.to_owned())
}

/// Builds all binaries of the workspace into `dir`, a directory such as `target/debug`. Takes less than a second if
/// they are up to date; `./test` sets `BIN_DIR` to save that time in every test.
fn build_binaries(dir: &Path) -> PathBuf {
    let (target, profile) = (dir.parent().expect("target directory"), dir.file_name().expect("profile"));
    let profile = if profile == "debug" { OsStr::new("dev") } else { profile };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--workspace", "--bins", "--locked", "--quiet", "--manifest-path"])
        .arg(project_root().join("Cargo.toml"))
        .args([OsStr::new("--profile"), profile, OsStr::new("--target-dir"), target.as_os_str()])
        .output()
        .expect("can start cargo");
    assert!(
        output.status.success(),
        "can't build the binaries:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    dir.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bin_dir_is_used_if_it_is_set() {
        assert_eq!(bin_dir(Some(OsStr::new("/tmp/old-bin"))), Some(PathBuf::from("/tmp/old-bin")));
        assert_eq!(bin_dir(Some(OsStr::new(""))), None);
        assert_eq!(bin_dir(None), None);
    }

    #[test]
    #[should_panic(expected = "BIN_DIR must be an absolute path, not target/old")]
    fn relative_bin_dir_is_rejected() {
        let _dir = bin_dir(Some(OsStr::new("target/old")));
    }
}
