//! Starts a quota-svc and runs commands against it.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use testkit::quota::{Quota, StoreChoice};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// A quota-svc with its own store.
pub struct CliHarness {
    pub quota: Quota,
    dir: TempDir,
}

#[derive(Debug)]
pub struct CommandOutput {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl CliHarness {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub async fn start_with(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let quota = Quota::start_with(StoreChoice::File(dir.path().join("quota.redb")), flags).await;
        Self { quota, dir }
    }

    /// Stops quota-svc, calls `change` with the path of its store file, and starts it again.
    pub async fn restart(&mut self, change: impl FnOnce(&std::path::Path)) {
        self.quota.service.term();
        self.quota.service.wait_exit(Duration::from_secs(20)).await;
        let file = self.path("quota.redb");
        change(&file);
        self.quota = Quota::start(StoreChoice::File(file)).await;
    }

    /// A path in the temporary directory of this test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub async fn run(&self, args: &[&str]) -> CommandOutput {
        self.run_with_input(args, "").await
    }

    pub async fn run_with_input(&self, args: &[&str], input: &str) -> CommandOutput {
        run(command(&[&["--quota-url", self.quota.url()], args].concat()), input).await
    }

    /// Runs a command that must succeed; returns its standard output.
    pub async fn text(&self, args: &[&str]) -> String {
        self.run(args).await.success().stdout
    }

    /// Runs a command that must succeed; returns the JSON object it prints.
    pub async fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--output", "json"]].concat()).await.success();
        let object: Value = serde_json::from_str(&output.stdout).expect("output is one JSON value");
        assert!(object.is_object(), "{object}");
        object
    }

    /// Runs a command that must fail; returns its standard error.
    pub async fn error(&self, args: &[&str]) -> String {
        self.run(args).await.failure()
    }

    /// Creates an account with a key; returns the key's ID and the key.
    pub async fn create_account_and_key(&self, login: &str) -> (String, String) {
        self.json(&["account", "create", login]).await;
        self.create_key(login, "laptop").await
    }

    pub async fn create_key(&self, login: &str, name: &str) -> (String, String) {
        let key = ["key", "create", "--account", login, "--name", name, "--scope", "full"];
        let key = self.json(&key).await;
        (string(&key["id"]), string(&key["key"]))
    }
}

impl CommandOutput {
    pub fn success(self) -> Self {
        assert!(self.status.success(), "{self:?}");
        self
    }

    /// Asserts exit code 1 and no standard output; returns standard error.
    pub fn failure(self) -> String {
        assert_eq!(self.status.code(), Some(1), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        self.stderr
    }
}

/// A quota-svc command without any variable but that of the token.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(testkit::process::binary("quota-svc"));
    command.args(args).env_clear().kill_on_drop(true);
    command.env(testkit::process::TOKEN_FILE, testkit::process::token_file());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub async fn run(mut command: Command, input: &str) -> CommandOutput {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Fails if the command exits without reading its input, which is fine.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandOutput { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

pub fn string(value: &Value) -> String {
    value.as_str().expect("value is a string").to_owned()
}
