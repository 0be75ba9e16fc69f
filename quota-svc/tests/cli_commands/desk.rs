//! Where the operator sits: a running quota-svc and the commands that are given to it.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use e2e::quota::{Quota, StoreChoice};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// A quota-svc on a store of its own.
pub struct Desk {
    pub quota: Quota,
    folder: TempDir,
}

/// What a command said.
#[derive(Debug)]
pub struct Said {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Desk {
    pub async fn open() -> Self {
        Self::open_with(&[]).await
    }

    pub async fn open_with(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let quota = Quota::start_with(StoreChoice::File(folder.path().join("quota.redb")), flags).await;
        Self { quota, folder }
    }

    /// A path for a file of the test's own.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub async fn run(&self, args: &[&str]) -> Said {
        self.run_with_input(args, "").await
    }

    pub async fn run_with_input(&self, args: &[&str], input: &str) -> Said {
        said(command(&[&["--quota-url", self.quota.url()], args].concat()), input).await
    }

    /// The text of a command that must succeed.
    pub async fn text(&self, args: &[&str]) -> String {
        self.run(args).await.success().stdout
    }

    /// The one JSON object of a command that must succeed.
    pub async fn json(&self, args: &[&str]) -> Value {
        let said = self.run(&[args, &["--output", "json"]].concat()).await.success();
        let object: Value = serde_json::from_str(&said.stdout).expect("exactly one JSON value");
        assert!(object.is_object(), "{object}");
        object
    }

    /// The message of a command that must fail.
    pub async fn error(&self, args: &[&str]) -> String {
        self.run(args).await.failure()
    }

    /// An account with a key; gives the key's id and the key.
    pub async fn key(&self, login: &str) -> (String, String) {
        self.json(&["account", "create", login]).await;
        self.another_key(login, "laptop").await
    }

    pub async fn another_key(&self, login: &str, name: &str) -> (String, String) {
        let key = ["key", "create", "--account", login, "--name", name, "--scope", "full"];
        let key = self.json(&key).await;
        (string(&key["id"]), string(&key["key"]))
    }
}

impl Said {
    pub fn success(self) -> Self {
        assert!(self.status.success(), "{self:?}");
        self
    }

    /// Exit code 1, nothing on standard output, and the message.
    pub fn failure(self) -> String {
        assert_eq!(self.status.code(), Some(1), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        self.stderr
    }
}

/// The command line with nothing of the tester's environment in it.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quota-svc"));
    command.args(args).env_clear().kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub async fn said(mut command: Command, input: &str) -> Said {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that does not read its input is fine.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

pub fn string(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}
