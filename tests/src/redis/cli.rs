//! redis-cli over the server's Unix socket: works with TLS and while the port is behind a broken network.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// A frozen server must not freeze its test.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How to reach one server's command line.
#[derive(Debug)]
pub(super) struct Cli {
    pub(super) socket: PathBuf,
    /// User and password, where the server asks for them.
    pub(super) credentials: Option<(String, String)>,
}

impl Cli {
    /// Runs one command; an error answer is an error.
    pub(super) async fn run(&self, command: &[&str]) -> Result<String, String> {
        let run = self.command(command).output();
        let output = timeout(ANSWER_WITHIN, run).await.map_err(|_| "no answer from Redis".to_owned())?;
        let output =
            output.map_err(|e| format!("redis-cli could not be started (./test installs it): {e}"))?;
        let printed = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        if output.status.success() {
            Ok(printed)
        } else {
            Err(format!("{printed}{}", String::from_utf8_lossy(&output.stderr).trim_end()))
        }
    }

    fn command(&self, redis_command: &[&str]) -> Command {
        let mut command = Command::new("redis-cli");
        // -e: the exit status tells an error answer from a value that reads like one.
        command.arg("-e").arg("-s").arg(&self.socket);
        if let Some((user, password)) = &self.credentials {
            command.args(["--user", user]).env("REDISCLI_AUTH", password);
        }
        command.args(redis_command).stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}
