//! What the command lines of all programs have in common: environment variables, listen addresses, usage errors,
//! completions and man pages.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use testkit::process::{Service, TOKEN_FILE, binary, token_file};
use testkit::tools::require_tool;

const PROGRAMS: [&str; 4] = ["ip-lookup", "lookup-svc", "quota-svc", "dashboard-api"];
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

fn run(program: &str, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(binary(program));
    command.args(args).env_clear().envs(env.iter().copied()).output().unwrap()
}

fn stdout(program: &str, args: &[&str]) -> String {
    let output = run(program, args, &[]);
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The environment variables in the help of a program or command.
fn variables(program: &str, command: &[&str]) -> BTreeSet<String> {
    let help = stdout(program, &[command, &["--help"]].concat());
    let names = help.split("[env: ").skip(1).filter_map(|rest| rest.split(['=', ']']).next());
    names.map(str::to_owned).collect()
}

#[test]
fn variables_have_the_prefix_and_are_not_those_of_kubernetes() {
    let mut all = BTreeSet::new();
    for program in PROGRAMS {
        all.extend(variables(program, &[]));
    }
    all.extend(variables("lookup-svc", &["geo-update"]));
    assert!(all.len() > 80, "only {} variables found", all.len());
    // Kubernetes sets these for a Service whose name starts with ip-lookup.
    let of_kubernetes = |name: &str| {
        ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"].iter().any(|end| name.ends_with(end))
            || name.contains("_SERVICE_PORT_")
            || name.contains("_PORT_")
    };
    for name in &all {
        assert!(name.starts_with("IP_LOOKUP_") && !of_kubernetes(name), "{name}");
    }
}

#[test]
fn long_version_has_details_and_the_short_one_has_none() {
    for program in PROGRAMS {
        let short = format!("{program} {}", env!("CARGO_PKG_VERSION"));
        assert_eq!(stdout(program, &["-V"]).trim_end(), short);
        let details = service_kit::build_info::LONG_VERSION.split_once(' ').unwrap().1;
        assert_eq!(stdout(program, &["--version"]).trim_end(), format!("{short} {details}"));
    }
}

#[test]
fn flag_wins_over_its_variable_and_names_without_the_prefix_are_ignored() {
    let token = token_file().to_str().unwrap();
    let env = [
        ("QUOTA_URL", "http://127.0.0.1:1"),
        ("IP_LOOKUP_QUOTA_URL", "http://127.0.0.1:2"),
        (TOKEN_FILE, token),
    ];
    for (flags, port) in [(&[][..], 2), (&["--quota-url", "http://127.0.0.1:3"], 3)] {
        let text = stderr(&run("quota-svc", &[flags, &["account", "list"]].concat(), &env));
        assert!(text.contains(&format!("can't reach quota-svc at http://127.0.0.1:{port}")), "{text}");
    }
}

#[tokio::test]
async fn variables_of_kubernetes_are_ignored() {
    let env = [
        ("IP_LOOKUP_PORT", "tcp://10.0.0.1:80"),
        ("IP_LOOKUP_SERVICE_HOST", "10.0.0.1"),
        ("IP_LOOKUP_SERVICE_PORT", "80"),
        ("IP_LOOKUP_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("IP_LOOKUP_QUOTA_LISTEN", "localhost:0"),
        ("IP_LOOKUP_LISTEN", "0"),
        ("IP_LOOKUP_DASHBOARD_LISTEN", "127.0.0.1:0"),
        ("IP_LOOKUP_ADMIN_LISTEN", "[::1]:0"),
        ("IP_LOOKUP_LOG_LEVEL", "info"),
    ];
    let data = tempfile::tempdir().unwrap();
    let mut service = Service::spawn("ip-lookup", &["--data-dir", data.path().to_str().unwrap()], &env);
    assert!(
        service.listen_addr("lookup").await.ip().is_loopback(),
        "a port alone keeps the default's address"
    );
    assert!(service.listen_addr("quota").await.ip().is_loopback());
    service.term();
    assert!(service.wait_exit(WAIT_TIMEOUT).await.success(), "{}", service.logs());
    assert!(!service.logs().contains("WARN"), "{}", service.logs());
}

#[tokio::test]
async fn colon_and_port_listen_on_all_addresses() {
    let flags = ["--listen", ":0", "--admin-listen", "localhost:0", "--quota-url", "http://127.0.0.1:1"];
    let mut service = Service::spawn("lookup-svc", &flags, &[]);
    assert_eq!(service.listen_addr("lookup").await.ip().to_string(), "::");
    assert_eq!(service.listen_addr("admin").await.ip().to_string(), "127.0.0.1");
}

/// The port alone keeps the default's address.
#[tokio::test]
async fn default_ports_serve_both_families() {
    let dir = tempfile::tempdir().unwrap();
    let (store, key) = (dir.path().join("store"), dir.path().join("key"));
    fs::write(&key, [7; 32]).unwrap();
    let (store, key) =
        (["--store-file", store.to_str().unwrap()], ["--session-key-file", key.to_str().unwrap()]);
    for (program, server, flags) in [
        ("lookup-svc", "lookup", &["--listen=0"][..]),
        ("dashboard-api", "dashboard", &["--listen=0", key[0], key[1]]),
        ("quota-svc", "admin", &["--listen=127.0.0.1:0", store[0], store[1]]),
    ] {
        let mut service = Service::spawn(program, &[&["--admin-listen=0"], flags].concat(), &[]);
        for server in [server, "admin"] {
            let addr = service.listen_addr(server).await;
            assert_eq!(addr.ip().to_string(), "::", "{program} {server}");
            for client in ["127.0.0.1", "[::1]"] {
                let url = format!("http://{client}:{}/", addr.port());
                testkit::http::client().get(url).send().await.unwrap();
            }
        }
    }
}

/// Starts a program as on a kernel without IPv6: creating an IPv6 socket fails with EAFNOSUPPORT.
const WITHOUT_IPV6: &str = r"
import ctypes, errno, os, platform, socket, struct, sys
number = {'x86_64': 41, 'aarch64': 198}[platform.machine()]
allow, deny = 0x7fff0000, 0x50000 | errno.EAFNOSUPPORT
# Loads the system call's number (offset 0) and its first argument (offset 16), and compares them.
code = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16), (0x15, 0, 1, socket.AF_INET6), (6, 0, 0, deny), (6, 0, 0, allow)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack('HP', 6, ctypes.addressof(code))) == 0
os.execv(sys.argv[1], sys.argv[1:])
";

#[tokio::test]
async fn default_ports_serve_ipv4_on_a_system_without_ipv6() {
    if !require_tool("python3") {
        return;
    }
    let flags = ["--listen=0", "--admin-listen=0"];
    let mut service = Service::spawn_under(&["python3", "-c", WITHOUT_IPV6], "lookup-svc", &flags, &[]);
    for server in ["lookup", "admin"] {
        let addr = service.listen_addr(server).await;
        assert_eq!(addr.ip().to_string(), "0.0.0.0");
        testkit::http::client().get(format!("http://127.0.0.1:{}/", addr.port())).send().await.unwrap();
    }
}

#[test]
fn usage_errors_are_json_with_json_output() {
    for args in [&["key", "create", "--output", "json"][..], &["--output=json", "--listen", "nowhere"]] {
        for program in ["ip-lookup", "quota-svc"] {
            let output = run(program, args, &[]);
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            let error: Value = serde_json::from_slice(&output.stderr).unwrap();
            let flag = if args[0] == "key" { "--account" } else { "--listen" };
            assert!(
                error["error"] == "usage" && error["message"].as_str().unwrap().contains(flag),
                "{error}"
            );
        }
    }
    let text = run("ip-lookup", &["key", "create"], &[]);
    assert!(stderr(&text).starts_with("error: ") && stderr(&text).contains("Usage:"), "{text:?}");
}

#[test]
fn bash_completes_commands_and_flags() {
    let dir = tempfile::tempdir().unwrap();
    for program in PROGRAMS {
        let script = dir.path().join(program);
        fs::write(&script, stdout(program, &["completions", "bash"])).unwrap();
        let complete = |words: &str| {
            let line = format!(
                "source '{}'; function=$(complete -p {program}); function=${{function#*-F }}; \
                 COMP_WORDS=({program} {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
                 ${{function%% *}} {program} \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
                 echo \"${{COMPREPLY[@]}}\"",
                script.display()
            );
            let output = Command::new("bash").args(["--norc", "-c", &line]).output().unwrap();
            assert!(output.status.success(), "{program} {words}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(complete("compl").trim(), "completions", "{program}");
        assert!(complete("--adm").contains("--admin-listen"), "{program}");
        if ["ip-lookup", "quota-svc"].contains(&program) {
            assert_eq!(complete("key set-l").trim(), "set-limit", "{program}");
            assert_eq!(complete("key set-limit --dail").trim(), "--daily-limit", "{program}");
        }
    }
}

#[test]
fn zsh_and_fish_completions_name_every_command() {
    for program in PROGRAMS {
        for shell in ["zsh", "fish"] {
            let script = stdout(program, &["completions", shell]);
            for word in ["completions", "admin-listen", program] {
                assert!(script.contains(word), "{program} {shell}: no {word}");
            }
        }
    }
    let unknown = run("ip-lookup", &["completions", "tcsh"], &[]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
}

#[test]
fn man_pages_cover_every_command_and_their_examples_parse() {
    let dir = tempfile::tempdir().unwrap();
    for program in PROGRAMS {
        let page = stdout(program, &["man"]);
        assert!(page.contains(&format!(".TH {program} 1")), "{page}");
        assert!(page.contains("IP_LOOKUP_ADMIN_LISTEN"), "{page}");
        let to = dir.path().join(program);
        stdout(program, &["man", "--to", to.to_str().unwrap()]);
        assert!(to.join(format!("{program}.1")).is_file(), "{program}");
        let examples: usize =
            fs::read_dir(&to).unwrap().map(|page| check_examples(&page.unwrap().path())).sum();
        assert!(examples > 0, "{program}");
    }
    let limit = fs::read_to_string(dir.path().join("ip-lookup/ip-lookup-key-set-limit.1")).unwrap();
    assert!(limit.contains(r"\-\-daily\-limit"), "{limit}");
}

/// Checks that the commands in the examples of a man page parse. Returns their number.
fn check_examples(page: &Path) -> usize {
    let text = fs::read_to_string(page).unwrap();
    let Some((_, examples)) = text.split_once(".SH EXAMPLES\n.nf\n") else { return 0 };
    let (examples, _) = examples.split_once(".fi\n").unwrap();
    let examples = examples.replace(r"\\", "\\").replace(r"\-", "-").replace("\\\n", " ");
    let programs = binary("ip-lookup").parent().unwrap().to_owned();
    let commands: Vec<_> = examples.lines().map(str::trim).filter(|line| !line.starts_with('#')).collect();
    for command in &commands {
        // `--help` comes last, so it succeeds only if all arguments before it are valid.
        let line = format!("PATH='{}':$PATH; {command} --help >/dev/null", programs.display());
        let output =
            Command::new("sh").args(["-c", &line]).current_dir(page.parent().unwrap()).output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    }
    commands.len()
}

/// The output of `program` on a terminal. `None` if `script`, which provides the terminal, is missing: the test is then
/// skipped.
fn on_terminal(program: &str, args: &str, env: &[(&str, &str)]) -> Option<String> {
    if !require_tool("script") {
        return None;
    }
    let line = format!("'{}' {args}", binary(program).display());
    let mut script = Command::new("script");
    script
        .args(["-qec", &line, "/dev/null"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("SHELL", "/bin/sh");
    let output = script.envs(env.iter().copied()).output().unwrap();
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn no_color_and_dumb_terminals_get_plain_text() {
    for (env, colored) in [
        (&[("TERM", "xterm")][..], true),
        (&[("TERM", "xterm"), ("NO_COLOR", "1")], false),
        (&[("TERM", "dumb")], false),
    ] {
        let Some(text) = on_terminal("quota-svc", "account list --unknown", env) else { return };
        assert_eq!(text.contains('\x1b'), colored, "{env:?}: {text:?}");
    }
}
