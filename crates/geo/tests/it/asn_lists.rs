//! Runs the script that checks the built-in lists of networks, with a package and lists of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const HEADER: &str = "# Date: 2020-01-01\n";

/// A directory with the script, a package of announced networks, a crate with the networks of operators, and the two lists.
fn set_up(hosting: &str, proxy: &str) -> TempDir {
    let dir = TempDir::new().expect("temp dir");
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("write");
    for name in ["data", "package", "cloudcheck-1.0.0"] {
        fs::create_dir(dir.path().join(name)).expect("directory");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("asn-lists.py");
    fs::copy(script, dir.path().join("asn-lists.py")).expect("copy");
    write("data/hosting-asns.txt", &format!("{HEADER}{hosting}"));
    write("data/proxy-asns.txt", &format!("{HEADER}{proxy}"));
    write("package/package.json", r#"{"version": "2.3.2026061719"}"#);
    write(
        "package/asn-ipv4-num.csv",
        "0,255,100,\"Example Hosting, Inc.\"\n256,1023,200,Other Cloud Ltd\n1024,1279,300,Tunnel VPN\n\
         1280,1791,400,Example Hosting Inc\n2048,4095,600,Large Cloud\n",
    );
    write("package/asn-ipv6-num.csv", "0,1208925819614629174706175,500,Six Limited\n");
    write(
        "cloudcheck-1.0.0/cloud_providers_v3.json",
        r#"{"Example": {"asns": [100, 400, 600, 700]}, "Other": {"asns": [200]}}"#,
    );
    for (archive, directory) in [("package.tgz", "package"), ("cloudcheck.crate", "cloudcheck-1.0.0")] {
        let status = Command::new("tar").current_dir(&dir).args(["-czf", archive, directory]).status();
        assert!(status.expect("tar").success());
    }
    dir
}

fn run(dir: &TempDir, flags: &[&str]) -> (Output, String) {
    let mut command = Command::new("python3");
    command.current_dir(dir).args(["asn-lists.py", "package.tgz", "--crate", "cloudcheck.crate"]).args(flags);
    let output = command.output().expect("python3");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, text)
}

#[test]
fn unannounced_network_is_removed_and_date_is_set() {
    let dir = set_up("100\tExample\n150\tGone\n500\tSix\n", "300\tTunnel\n");
    let (output, report) = run(&dir, &[]);
    assert!(!output.status.success() && report.contains("hosting: 150 Gone: not announced"), "{report}");
    let (output, report) = run(&dir, &["--write"]);
    assert!(output.status.success(), "{report}");
    let list = fs::read_to_string(dir.path().join("data/hosting-asns.txt")).expect("list");
    assert!(list.starts_with("# Date: 2026-06-17\n"), "{list}");
    assert!(list.ends_with("\n100\tExample\n500\tSix\n"), "{list}");
}

#[test]
fn files_of_a_release_are_read_like_the_package() {
    let dir = set_up("100\tExample\n150\tGone\n500\tSix\n", "300\tTunnel\n");
    for version in ["4", "6"] {
        let name = format!("asn-ipv{version}-num.csv");
        fs::copy(dir.path().join("package").join(&name), dir.path().join(format!("origin-{name}")))
            .expect("copy");
    }
    let files = ["origin-asn-ipv4-num.csv", "origin-asn-ipv6-num.csv"];
    let touch =
        Command::new("touch").current_dir(&dir).args(["-d", "2026-08-21T12:00:00Z"]).args(files).status();
    assert!(touch.expect("touch").success());
    let mut script = Command::new("python3");
    script.current_dir(&dir).arg("asn-lists.py").args(files).args(["--crate", "cloudcheck.crate", "--write"]);
    let output = script.output().expect("python3");
    assert!(output.status.success(), "{output:?}");
    let list = fs::read_to_string(dir.path().join("data/hosting-asns.txt")).expect("list");
    assert!(list.starts_with("# Date: 2026-08-21\n# Checked with origin-asn "), "{list}");
    assert!(list.ends_with("\n100\tExample\n500\tSix\n"), "{list}");
}

#[test]
fn network_with_another_operator_is_reported() {
    let dir = set_up("100\tFormer Name\n200\tBrand (Other)\n", "300\tTunnel\n");
    let (output, report) = run(&dir, &["--write"]);
    assert!(!output.status.success(), "{report}");
    assert!(report.contains("hosting: 100 Former Name: the operator is Example Hosting, Inc."), "{report}");
    assert!(!report.contains("Brand") && !report.contains("Tunnel:"), "{report}");
    assert!(
        report.contains("hosting: 2 announced networks with 1,024 IPv4 addresses and 0 IPv6"),
        "{report}"
    );
}

#[test]
fn candidates_are_ranked_by_announced_addresses() {
    let dir = set_up("100\tExample\n", "500\tSix\n");
    let (_, report) = run(&dir, &[]);
    let position = |text: &str| report.find(text).unwrap_or_else(|| panic!("{text} is missing: {report}"));
    let expected = [
        "       400         512           0  Example Hosting Inc\n",
        "       600       2,048           0  Large Cloud\n",
        "       200         768           0  Other Cloud Ltd\n",
        "       300         256           0  Tunnel VPN\n",
    ];
    assert!(expected.map(position).is_sorted(), "{report}");
}

/// The candidates under this title.
fn candidates<'a>(report: &'a str, title: &str) -> Vec<&'a str> {
    let (_, rest) = report.split_once(title).unwrap_or_else(|| panic!("{title} is missing: {report}"));
    rest.lines().skip(1).take_while(|line| !line.is_empty()).map(str::trim).collect()
}

#[test]
fn other_network_of_a_listed_operator_is_a_candidate() {
    let dir = set_up("100\tExample\n", "300\tTunnel\n");
    let (output, report) = run(&dir, &[]);
    assert!(output.status.success(), "{report}");
    let found =
        candidates(&report, "hosting: candidates with an operator in the list, according to cloudcheck");
    let expected =
        ["600       2,048           0  Large Cloud", "400         512           0  Example Hosting Inc"];
    assert_eq!(found, expected, "neither those of unlisted operators nor those that are not announced");
}

#[test]
fn network_in_another_list_is_a_candidate() {
    let dir = set_up("100\tExample\n", "300\tTunnel\n");
    fs::write(dir.path().join("other.txt"), "AS500 # VPN\nAS300 # listed\nAS999 # not announced\n")
        .expect("write");
    let (_, report) = run(&dir, &["--compare", "proxy=other.txt"]);
    let found = candidates(&report, "proxy: candidates with a line in other.txt");
    assert_eq!(found, ["500           0           1  Six Limited"]);
}
