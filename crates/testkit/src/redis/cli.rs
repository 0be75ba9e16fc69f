//! Runs redis-cli over the Unix socket of the server, so TLS and fault proxies on the port don't matter.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// A frozen server must not hang the test.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// redis-cli for one server.
#[derive(Debug)]
pub(super) struct Cli {
    pub(super) socket: PathBuf,
    /// User and password, if the server requires them.
    pub(super) credentials: Option<(String, String)>,
}

impl Cli {
    /// Runs one command. An error reply becomes `Err`.
    pub(super) async fn run(&self, command: &[&str]) -> Result<String, String> {
        let run = self.command(command).output();
        let output = timeout(REPLY_TIMEOUT, run).await.map_err(|_| "no reply from Redis".to_owned())?;
        let output =
            output.map_err(|e| format!("redis-cli could not be started (./test installs it): {e}"))?;
        let stdout = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        if output.status.success() {
            Ok(stdout)
        } else {
            Err(format!("{stdout}{}", String::from_utf8_lossy(&output.stderr).trim_end()))
        }
    }

    fn command(&self, redis_command: &[&str]) -> Command {
        let mut command = Command::new("redis-cli");
        // -e: the exit status distinguishes an error reply from a value that looks like one.
        command.arg("-e").arg("-s").arg(&self.socket);
        if let Some((user, password)) = &self.credentials {
            command.args(["--user", user]).env("REDISCLI_AUTH", password);
        }
        command.args(redis_command).stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}
