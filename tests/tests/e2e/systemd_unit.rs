//! The systemd unit, checked by systemd's own tool.

use std::fs;
use std::process::Command;

use testkit::process::binary;
use testkit::tools::{project_root, require_tool};

const UNIT: &str = "deploy/systemd/ip-lookup.service";

/// The limit of `systemd-analyze security`, from 0 (least exposed) to 100. The unit has 14: what is left is the network,
/// the ports below 1024 and the root directory of the machine.
const MAX_EXPOSURE: &str = "--threshold=15";

fn unit() -> String {
    fs::read_to_string(project_root().join(UNIT)).expect("the unit can be read")
}

fn analyze(args: &[&str]) -> (bool, String) {
    let output = Command::new("systemd-analyze").args(args).output().expect("systemd-analyze runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn unit_passes_the_checks_of_systemd() {
    if !require_tool("systemd-analyze") {
        return;
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("ip-lookup.service");
    let path_text = path.to_str().expect("UTF-8");
    // `verify` checks that the program exists.
    let program = binary("ip-lookup").display().to_string();
    let unit = unit().replace("/usr/local/bin/ip-lookup", &program);
    fs::write(&path, &unit).expect("temporary directory is writable");
    // It prints a warning for each unknown or invalid line, and succeeds nevertheless.
    assert_eq!(analyze(&["verify", "--man=no", path_text]), (true, String::new()));
    let (passed, report) = analyze(&["security", "--offline=true", "--no-pager", MAX_EXPOSURE, path_text]);
    assert!(passed, "{report}");

    fs::write(&path, unit.replace("ProtectSystem=strict\n", "ProtectSystem=stric\n")).expect("writable");
    assert_ne!(analyze(&["verify", "--man=no", path_text]).1, "", "a mistake is found");
}

#[test]
fn variables_of_the_unit_are_those_of_the_program() {
    let help = Command::new(binary("ip-lookup")).arg("--help").output().expect("ip-lookup runs");
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    let unit = unit();
    let line = unit.lines().find_map(|line| line.strip_prefix("Environment=")).expect("variables");
    for variable in line.split(' ') {
        let (name, _) = variable.split_once('=').expect("a value");
        assert!(help.contains(&format!("[env: {name}=")), "{name} is not in the help");
    }
}
