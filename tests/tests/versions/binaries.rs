//! The binaries of the earlier version: taken from `OLD_BIN_DIR`, or built from a git worktree in `target/tmp`.

use std::path::{Path, PathBuf};

use testkit::tools::project_root;
use tokio::process::Command;

/// The version that may run beside this one during a rollout or a rollback.
const EARLIER_COMMIT: &str = "c90440e";

/// Environment variable with the directory of the earlier binaries, as an absolute path.
const OLD_BIN_DIR: &str = "OLD_BIN_DIR";

/// The directory of the earlier binaries. The first build takes minutes; later runs find it finished.
pub async fn earlier_version() -> PathBuf {
    if let Some(dir) = std::env::var_os(OLD_BIN_DIR).filter(|dir| !dir.is_empty()) {
        let dir = PathBuf::from(dir);
        assert!(dir.is_absolute(), "{OLD_BIN_DIR} must be an absolute path, not {}", dir.display());
        return dir;
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(EARLIER_COMMIT);
    let (source, target) = (dir.join("source"), dir.join("target"));
    if !source.join("Cargo.toml").exists() {
        check_out(&source).await;
    }
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--locked", "--bins", "-p", "quota-svc", "-p", "lookup-svc", "-p", "dashboard-api"]);
    build.arg("--target-dir").arg(&target).current_dir(&source);
    run(&mut build).await;
    target.join("debug")
}

async fn check_out(source: &Path) {
    let root = project_root();
    let git = || {
        let mut git = Command::new("git");
        git.arg("-C").arg(&root);
        git
    };
    let commit = format!("{EARLIER_COMMIT}^{{commit}}");
    let known = git().args(["rev-parse", "--quiet", "--verify", &commit]).output().await.unwrap();
    assert!(
        known.status.success(),
        "commit {EARLIER_COMMIT} is not in this clone: run `git fetch --unshallow`, or set {OLD_BIN_DIR}"
    );
    // A deleted target directory leaves its worktree registered, which --force overrides.
    run(git().args(["worktree", "add", "--force", "--detach"]).arg(source).arg(EARLIER_COMMIT)).await;
}

async fn run(command: &mut Command) {
    let output = command.kill_on_drop(true).output().await.unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}
