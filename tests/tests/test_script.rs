//! The script `./test` without root: it fails and says why, or leaves out the tests that need root and counts them.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use testkit::tools::project_root;

/// Replaces cargo: logs its arguments, and lists two tests.
const CARGO: &str = r#"#!/bin/sh
echo "cargo $*" >>"$LOG"
case "$*" in
    "nextest list"*) printf 'e2e::containers as_root_first\ne2e::quota_disk_full as_root_second\n' ;;
    metadata*) echo '{"target_directory": "/nowhere"}' ;;
esac
"#;

fn write(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A copy of the script in a project whose tools are up to date, so that it installs nothing.
fn project() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let script = fs::read_to_string(project_root().join("test")).unwrap();
    write(&dir.path().join("test"), &script);
    for (stamp, file) in [
        (".venv/installed-from.txt", "tests/requirements.txt"),
        ("tests/node/node_modules/installed-from.json", "tests/node/package-lock.json"),
    ] {
        write(&dir.path().join(stamp), "same");
        write(&dir.path().join(file), "same");
    }
    write(&dir.path().join("bin/cargo"), CARGO);
    // Nothing can be installed by mistake, not even if a command is missing.
    write(&dir.path().join("bin/apt-get"), "#!/bin/sh\nexit 1\n");
    dir
}

/// Runs the copy, as an unprivileged user if this test runs as root. Returns its success, output and errors.
fn run(dir: &Path, arguments: &[&str]) -> (bool, String, String) {
    let unprivileged = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let is_root = rustix::process::getuid().is_root();
    let line: Vec<&str> = unprivileged.into_iter().filter(|_| is_root).chain(["bash", "test"]).collect();
    let log = dir.join("log");
    fs::write(&log, "").unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o666)).unwrap();
    let path = format!("{}/bin:{}:/usr/sbin", dir.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).args(arguments).current_dir(dir).env("PATH", path).env("LOG", &log);
    let output = command.output().unwrap();
    let to_text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), to_text(output.stdout), to_text(output.stderr))
}

#[test]
fn script_without_root_fails_and_names_rootless() {
    let project = project();
    let (success, output, errors) = run(project.path(), &["--", "demo"]);
    assert!(!success && output.is_empty(), "{output}");
    assert!(errors.contains("needs root") && errors.contains("./test --rootless"), "{errors}");
    assert_eq!(fs::read_to_string(project.path().join("log")).unwrap(), "", "nothing was started");
}

#[test]
fn rootless_script_leaves_out_root_tests_and_counts_them() {
    let project = project();
    let (success, output, errors) = run(project.path(), &["--all", "--rootless", "--", "disk"]);
    assert!(success, "{output}{errors}");
    assert!(output.trim_end().ends_with("left out 2 tests that need root"), "{output}");
    let log = fs::read_to_string(project.path().join("log")).unwrap();
    let run = log.lines().find(|line| line.starts_with("cargo nextest run ")).unwrap();
    let filter = "--ignore-default-filter -E not test(/^(.*::)?(slow_)?as_root_/) disk";
    assert!(run.ends_with(filter), "{run}");
}
