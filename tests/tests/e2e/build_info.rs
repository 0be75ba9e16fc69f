//! The build script of service-kit: which commit and date it finds with and without git, and what makes it run again.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use testkit::tools::{project_root, require_tool};

/// 2024-02-29 00:00:00 UTC.
const LEAP_DAY: &str = "1709164800";

/// A workspace with the crate directory of service-kit, and the compiled build script.
struct Workspace {
    dir: TempDir,
    script: PathBuf,
}

impl Workspace {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("build-script");
        let source = project_root().join("crates/service-kit/build.rs");
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "-o"]).arg(&script).arg(source);
        assert!(rustc.status().unwrap().success());
        fs::create_dir_all(dir.path().join("workspace/crates/service-kit")).unwrap();
        Self { dir, script }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("workspace")
    }

    /// Runs the script as cargo does. Returns its output, or its error.
    fn run(&self, env: &[(&str, &str)]) -> Result<String, String> {
        let mut command = Command::new(&self.script);
        command.current_dir(self.path().join("crates/service-kit"));
        command.env_remove("IP_LOOKUP_COMMIT").env_remove("SOURCE_DATE_EPOCH");
        let output = command.envs(env.iter().copied()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// The commit and the date that the script sets.
    fn values(&self, env: &[(&str, &str)]) -> [String; 2] {
        let output = self.run(env).unwrap();
        ["COMMIT", "DATE"].map(|name| {
            let prefix = format!("cargo::rustc-env=IP_LOOKUP_BUILD_{name}=");
            output.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap().to_owned()
        })
    }

    /// The files whose change makes cargo run the script again, except for the script itself.
    fn watched(&self, env: &[(&str, &str)]) -> Vec<PathBuf> {
        let output = self.run(env).unwrap();
        let files = output.lines().filter_map(|line| line.strip_prefix("cargo::rerun-if-changed="));
        let crate_dir = self.path().join("crates/service-kit");
        files.filter(|file| *file != "build.rs").map(|file| crate_dir.join(file)).collect()
    }
}

fn git(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(dir).args(["-c", "user.name=test", "-c", "user.email=test@localhost"]).args(args);
    // One hour before midnight in UTC: the day there is one less.
    command.env("GIT_COMMITTER_DATE", "2026-11-16T00:30:00+01:30");
    let output = command.output().unwrap();
    assert!(output.status.success(), "git {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn commit(dir: &Path) -> String {
    git(dir, &["commit", "--quiet", "--allow-empty", "--message", "test"]);
    git(dir, &["rev-parse", "HEAD"])
}

const OPTIMIZED: (&str, &str) = ("OPT_LEVEL", "1");
const UNOPTIMIZED: (&str, &str) = ("OPT_LEVEL", "0");

#[test]
fn optimized_build_has_the_commit_of_git_and_its_date_in_utc() {
    if !require_tool("git") {
        return;
    }
    let workspace = Workspace::new();
    git(&workspace.path(), &["init", "--quiet"]);
    let head = commit(&workspace.path());
    assert_eq!(workspace.values(&[OPTIMIZED]), [&head[..10], "2026-11-15"]);
    // Every commit would recompile all crates.
    assert_eq!(workspace.values(&[UNOPTIMIZED]), ["", ""]);
    assert!(workspace.watched(&[UNOPTIMIZED]).is_empty());
}

#[test]
fn variables_win_over_git_and_are_checked() {
    let workspace = Workspace::new();
    git(&workspace.path(), &["init", "--quiet"]);
    commit(&workspace.path());
    let given = [OPTIMIZED, ("IP_LOOKUP_COMMIT", "0123456789abcdef"), ("SOURCE_DATE_EPOCH", LEAP_DAY)];
    assert_eq!(workspace.values(&given), ["0123456789", "2024-02-29"]);
    assert_eq!(
        workspace.values(&given[..2]),
        ["0123456789", ""],
        "the date of another commit is not its date"
    );
    assert_eq!(workspace.values(&[given[1], given[2], UNOPTIMIZED]), ["0123456789", "2024-02-29"]);
    for (name, value) in [("IP_LOOKUP_COMMIT", "main"), ("SOURCE_DATE_EPOCH", "today")] {
        let error = workspace.run(&[OPTIMIZED, (name, value)]).unwrap_err();
        assert!(error.contains(name) && error.contains(value), "{error}");
    }
}

#[test]
fn source_archive_has_no_commit_even_inside_another_repository() {
    let workspace = Workspace::new();
    assert_eq!(workspace.values(&[OPTIMIZED]), ["", ""]);
    assert_eq!(workspace.values(&[OPTIMIZED, ("PATH", "/nowhere")]), ["", ""], "git is missing");
    git(workspace.dir.path(), &["init", "--quiet"]);
    commit(workspace.dir.path());
    assert_eq!(workspace.values(&[OPTIMIZED]), ["", ""]);
    // The Dockerfile's build arguments are empty if they are not given.
    assert_eq!(workspace.values(&[OPTIMIZED, ("IP_LOOKUP_COMMIT", ""), ("SOURCE_DATE_EPOCH", "")]), ["", ""]);
}

#[test]
fn every_change_of_head_changes_a_watched_file() {
    let workspace = Workspace::new();
    let path = workspace.path();
    git(&path, &["init", "--quiet", "--initial-branch=main"]);
    commit(&path);
    let contents = || -> Vec<_> {
        let files = workspace.watched(&[OPTIMIZED]);
        files.into_iter().map(|file| (fs::read(&file).unwrap(), file)).collect()
    };
    let changes: [(&str, &[&str]); 4] = [
        ("commit", &["commit", "--quiet", "--allow-empty", "--message", "next"]),
        ("branch in packed-refs", &["pack-refs", "--all"]),
        ("commit after packing", &["commit", "--quiet", "--allow-empty", "--message", "packed"]),
        ("another branch", &["checkout", "--quiet", "-b", "other", "HEAD~1"]),
    ];
    for (what, args) in changes {
        let (before, head) = (contents(), git(&path, &["rev-parse", "HEAD"]));
        git(&path, args);
        if git(&path, &["rev-parse", "HEAD"]) == head {
            continue;
        }
        let changed = before.iter().any(|(bytes, file)| fs::read(file).ok().as_ref() != Some(bytes));
        assert!(changed, "{what}: none of {:?}", before.iter().map(|(_, file)| file).collect::<Vec<_>>());
    }
}
