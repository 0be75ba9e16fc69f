//! The command `explain` of lookup-svc and `ip-lookup`.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, Output};

use quota_client::wire::Scope;
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};
use testkit::lookup::{JsonResponse, Stack};
use testkit::mmdb::sample;
use testkit::process::binary;

// Marker values in requests. None of them may be logged.
const CLIENT: &str = "89.160.20.77";
const FORGED: &str = "216.160.83.233";
const PROXY: &str = "10.77.31.9";

fn run(program: &str, flags: &[&str]) -> Output {
    Command::new(binary(program)).args(flags).env_clear().output().unwrap()
}

fn text(program: &str, flags: &[&str]) -> String {
    let output = run(program, flags);
    assert!(output.status.success(), "{flags:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The report of lookup-svc that trusts 10.0.0.0/8 and has the sample database.
fn report(sample: &NamedTempFile, flags: &[&str]) -> Value {
    let path = sample.path().to_str().unwrap();
    let service = ["--trusted-proxies", "10.0.0.0/8", "--geo-db", path, "explain", "--output", "json"];
    serde_json::from_str(&text("lookup-svc", &[&service, flags].concat())).unwrap()
}

fn field<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["fields"].as_array().unwrap().iter().find(|field| field["name"] == name).unwrap()
}

fn source<'a>(report: &'a Value, name: &str) -> &'a str {
    field(report, name)["source"].as_str().unwrap()
}

/// Asserts that one of the steps contains this text.
#[track_caller]
fn assert_step(report: &Value, text: &str) {
    let steps = report["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step.as_str().unwrap().contains(text)), "{text:?} is not in {steps:#?}");
}

#[test]
fn trusted_hop_header_and_client_are_explained() {
    let sample = sample::file();
    let forwarded = format!("X-Forwarded-For: {FORGED}, {CLIENT}, 10.1.1.1");
    let report = report(
        &sample,
        &[
            "--peer",
            PROXY,
            "--header",
            &forwarded,
            "--header",
            "X-Edge-RTT: 12",
            "--header",
            "X-Edge-Colo: ???",
        ],
    );
    assert_step(&report, "10.77.31.9 is a trusted proxy (10.0.0.0/8 in --trusted-proxies)");
    assert_step(&report, "10.1.1.1 is another trusted proxy");
    assert_step(&report, "89.160.20.77 is not a trusted proxy, so it is the client");
    assert_step(&report, "Entries further to the left, if any, were not read");
    assert_eq!((&report["ip"], &report["decision"]), (&json!(CLIENT), &json!("xff")));
    assert_eq!((&field(&report, "rtt")["value"], source(&report, "rtt")), (&json!(12), "header x-edge-rtt"));
    assert_eq!(source(&report, "tls_version"), "the peer sent no header x-edge-tls-version");
    assert_eq!(
        source(&report, "colo"),
        "header x-edge-colo has an invalid value: \"???\"; no flag of this service has it"
    );
    assert!(!report.to_string().contains(FORGED), "the values of headers that are not read are not shown");
}

#[test]
fn each_field_has_its_database_and_build_date() {
    let sample = sample::file();
    let report = report(&sample, &["--peer", CLIENT]);
    let name = sample.path().file_name().unwrap().to_str().unwrap();
    let databases = report["databases"].as_array().unwrap();
    let (first, rest) = databases[0].as_str().unwrap().split_once(" (").unwrap();
    let (_, built) = rest.split_once("), built ").unwrap();
    assert_eq!((databases.len(), first), (2, name));
    assert_eq!(built.len(), "2026-06-17".len(), "{built}");
    for field in ["city", "country", "asn"] {
        assert_eq!(source(&report, field), format!("{name}, built {built}"), "{field}");
    }
    assert_eq!(
        (&field(&report, "city")["value"], &field(&report, "asn")["value"]),
        (&json!("Tokyo"), &json!(64_498))
    );
    assert_eq!(source(&report, "currency"), "derived from the country");
    assert!(source(&report, "timezone_offset").starts_with("timezone data 20"), "{report}");
    let public = self::report(&sample, &["--peer", "193.0.6.139"]);
    let built_in = source(&public, "country");
    assert!(built_in.starts_with("built-in country data, built 20"), "{built_in}");
    assert_eq!(
        (&field(&public, "city")["value"], source(&public, "city")),
        (&Value::Null, "no database has it")
    );
}

#[test]
fn common_mistakes_are_named() {
    let sample = sample::file();
    let real_ip = format!("X-Real-IP: {CLIENT}");
    let forwarded = format!("X-Forwarded-For: {CLIENT}");
    let untrusted = report(&sample, &["--peer", "192.168.0.2", "--header", &forwarded]);
    assert_eq!(untrusted["decision"], "peer_untrusted");
    assert_step(&untrusted, "If it is your proxy, add it to --trusted-proxies");
    assert_step(&untrusted, "Ignored, because the peer is not trusted: x-forwarded-for.");
    assert_step(
        &untrusted,
        "192.168.0.2 is a private address, which exists only within one local network. It has no location.",
    );
    let other_header = report(&sample, &["--peer", PROXY, "--header", &real_ip]);
    assert_step(&other_header, "Not used for the address or the connection facts: x-real-ip.");
    assert_step(
        &other_header,
        "lookup-svc can also read x-real-ip, if your proxy always replaces it: --client-ip-from header:x-real-ip",
    );
    let too_wide = report(&sample, &["--peer", PROXY, "--header", "X-Forwarded-For: 10.2.2.2"]);
    assert_eq!(too_wide["decision"], "xff_all_trusted");
    assert_step(&too_wide, "--trusted-proxies covers too much");
}

#[test]
fn text_has_numbered_steps_and_one_line_per_field() {
    let flags =
        ["--trusted-proxies", "10.0.0.0/8", "explain", "--peer", PROXY, "--header", "X-Forwarded-For: x"];
    let text = text("lookup-svc", &flags);
    let has_line =
        |line: &str| assert!(text.lines().any(|found| found.starts_with(line)), "{line:?} in\n{text}");
    has_line("Flags: trusted proxies: 10.0.0.0/8; client IP from xff;");
    has_line(" 1. The peer 10.77.31.9 is a trusted proxy");
    has_line(" 2. Entry 1 of X-Forwarded-For, counted from the right, is \"x\": this is not an address");
    has_line("Client address: 10.77.31.9 (decision: fallback)");
    has_line("Field            Value");
    has_line("  built-in country data (country), built 20");
    assert_eq!(
        text.lines().filter(|line| line.starts_with("tls_") || line.starts_with("ip")).count(),
        4,
        "{text}"
    );
}

#[test]
fn invalid_peer_and_header_are_usage_errors() {
    for flags in [["--peer", "proxy.example"].as_slice(), &["--peer", "::1", "--header", "no colon"], &[]] {
        let output = run("lookup-svc", &[&["explain"], flags].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn ip_lookup_trusts_loopback_by_default() {
    let dir = TempDir::new().unwrap();
    let data_dir = ["--data-dir", dir.path().to_str().unwrap()];
    let forwarded = format!("X-Forwarded-For: {CLIENT}");
    let explain = ["explain", "--peer", "127.0.0.1", "--header", &forwarded];
    let explain = |flags: &[&str], output: &[&str]| -> Value {
        let line = [data_dir.as_slice(), flags, &explain, output].concat();
        serde_json::from_str(&text("ip-lookup", &line)).unwrap()
    };
    let default = explain(&[], &["--output", "json"]);
    assert_eq!((&default["ip"], &default["decision"]), (&json!(CLIENT), &json!("xff")));
    assert_step(&default, "127.0.0.1 is a trusted proxy (127.0.0.0/8 in --trusted-proxies)");
    let none = explain(&["--trusted-proxies", "none"], &["--output", "json"]);
    assert_eq!((&none["ip"], &none["decision"]), (&json!("127.0.0.1"), &json!("peer_untrusted")));
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "nothing is stored");
}

#[tokio::test]
async fn explained_fields_are_those_of_a_lookup() {
    let sample = sample::file();
    let geo = ["--geo-db", sample.path().to_str().unwrap()];
    let stack = Stack::start(&[], &geo).await;
    let key = stack.key_with_scope(Scope::Full).await;
    let sent = [
        ("X-Forwarded-For", format!("{FORGED}, {CLIENT}")),
        ("X-Edge-HTTP-Protocol", "h2".to_owned()),
        ("X-Edge-TLS-Version", "1.3".to_owned()),
        ("X-Edge-TLS-Cipher", "1301".to_owned()),
        ("X-Edge-RTT", "41".to_owned()),
        ("X-Edge-Colo", "SJC".to_owned()),
    ];
    let request = stack.lookup.get_ip(&key.secret);
    let request = sent.iter().fold(request, |request, (name, value)| request.header(*name, value));
    let response = JsonResponse::fetch(request).await;
    let headers: Vec<_> = sent.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let headers = headers.iter().flat_map(|header| ["--header", header]);
    let flags: Vec<_> = ["--trusted-proxies", "127.0.0.1"]
        .into_iter()
        .chain(geo)
        .chain(["explain", "--output", "json", "--peer", "127.0.0.1"])
        .chain(headers)
        .collect();
    let report: Value = serde_json::from_str(&text("lookup-svc", &flags)).unwrap();
    for (name, value) in response.body.as_object().unwrap() {
        if name != "status" {
            assert_eq!(field(&report, name)["value"], *value, "{name}");
        }
    }
    assert_eq!(report["fields"].as_array().unwrap().len() + 1, response.fields().len());
}
