//! Builds every image of the Dockerfile and runs them in a container engine: alone, with docker-compose.yaml, and with
//! the security settings and memory limits of the chart. The commands are those of docs/docker.md.
//!
//! The base images are stand-ins made of this machine's files, and `cargo` copies binaries that are already built: this
//! proves the Dockerfile's other instructions and how the containers work together, but not the published base images.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use e2e::chart::release::render;
use e2e::chart::{project_root, text, venv_tool};
use e2e::engine::Engine;
use e2e::engine::images::{build_target, compiler, load_build_image, load_haproxy, load_valkey};
use e2e::engine::pod::Pod;
use serde_json::{Value, json};
use testkit::tools::require_tool;
use testkit::wait::eventually_ok;

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// The images of docker-compose.yaml and the chart.
const SERVICES: [&str; 3] = ["quota-svc", "lookup-svc", "dashboard-api"];

/// All images of the Dockerfile.
const TARGETS: [&str; 4] = ["dashboard-api", "ip-lookup", "lookup-svc", "quota-svc"];

/// The shell blocks of docs/docker.md with this info string, such as `sh compose`.
fn documented(info: &str) -> Vec<String> {
    let document = fs::read_to_string(project_root().join("docs/docker.md")).unwrap();
    let start = format!("\n```{info}\n");
    document.split(&start).skip(1).map(|rest| rest.split("\n```").next().unwrap().to_owned()).collect()
}

/// Sends a request with curl and returns the response with its headers.
fn curl(engine: &Engine, arguments: &[&str]) -> String {
    let common = ["--silent", "--show-error", "--include", "--max-time", "10"];
    engine.try_run("curl", &[&common, arguments].concat()).unwrap_or_else(|error| error)
}

/// Signs in to the dashboard and returns the response.
fn sign_in(engine: &Engine, dashboard: &str, login: &str, password: &str, extra: &[&str]) -> String {
    let body = json!({"login": login, "password": password}).to_string();
    let (origin, url) = (format!("Origin: {dashboard}"), format!("{dashboard}/api/v1/session"));
    let headers = ["-H", &origin, "-H", "X-CSRF-Token: 1", "-H", "Content-Type: application/json"];
    curl(engine, &[&headers, extra, &["--data", &body, &url]].concat())
}

/// Whether the status of a response with headers is 2xx.
fn is_success(response: &str) -> bool {
    response.split(' ').nth(1).is_some_and(|status| status.starts_with('2'))
}

async fn wait_for_log(engine: &Engine, container: &str, part: &str) -> String {
    eventually_ok(WAIT_TIMEOUT, format!("{container} logs {part:?}"), async || {
        let log = engine.logs(container);
        if log.contains(part) { Ok(log) } else { Err(log) }
    })
    .await
}

/// The value after `name` in the banner of `ip-lookup`.
fn shown<'a>(banner: &'a str, name: &str) -> &'a str {
    banner.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap().trim()
}

#[tokio::test]
async fn slow_as_root_image_of_ip_lookup_works_as_documented() {
    let Some(engine) = Engine::start().await else { return };
    load_build_image(&engine, &["ip-lookup"]);
    let root = project_root();
    let commands = documented("sh docker");
    let [start, again, operator] = commands.as_slice() else { panic!("{commands:?}") };
    let run =
        |script: &str| engine.shell(script, &root, &[]).unwrap_or_else(|error| panic!("{script}: {error}"));

    run(start);
    let first = wait_for_log(&engine, "ip-lookup", "Press Ctrl-C to stop").await;
    let lines: Vec<_> = first.lines().map(str::trim).filter(|line| line.starts_with("curl ")).collect();
    let [line] = lines.as_slice() else { panic!("one line that needs no forwarded address: {first}") };
    let response: Value = serde_json::from_str(&run(line)).unwrap();
    assert_eq!((&response["status"], &response["country"]), (&json!("success"), &Value::Null), "{response}");
    let bridge =
        engine.docker(&["network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}"]);
    assert_eq!(response["ip"], bridge.trim(), "the peer is Docker's bridge");
    let forged: Value =
        serde_json::from_str(&run(&line.replace("curl ", "curl -H 'X-Forwarded-For: 203.0.113.7' ")))
            .unwrap();
    assert_eq!(forged["ip"], bridge.trim(), "the bridge is not a trusted proxy");
    let (login, password) = (shown(&first, "Login"), shown(&first, "Password"));
    let signed_in = sign_in(&engine, shown(&first, "Dashboard"), login, password, &[]);
    assert!(is_success(&signed_in), "{signed_in}");
    let listed = run(operator);
    assert!(listed.contains("first key"), "{listed}");

    let status = engine.process_status("ip-lookup");
    assert!(status.contains("Uid:\t65532\t65532\t65532\t65532"), "{status}");
    let _stopped = engine.docker(&["stop", "ip-lookup"]);
    assert_eq!(engine.inspect("ip-lookup", ".State.ExitCode"), "0", "{}", engine.logs("ip-lookup"));
    run(again);
    let second = wait_for_log(&engine, "ip-lookup", "Press Ctrl-C to stop").await;
    assert!(!second.contains("First start"), "{second}");
    let response: Value = serde_json::from_str(&run(line)).unwrap();
    assert_eq!(response["status"], "success", "the key of the first start: {response}");
    let signed_in = sign_in(&engine, shown(&second, "Dashboard"), login, password, &[]);
    assert!(is_success(&signed_in), "{signed_in}");
}

/// A copy of the files that Compose uses, so that the secrets are not created in the checkout.
fn compose_project() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let files = ["docker-compose.yaml", "deploy/compose"].map(|path| project_root().join(path));
    fs::create_dir(dir.path().join("deploy")).unwrap();
    for (from, to) in files.iter().zip(["", "deploy"]) {
        let copied = Command::new("cp").arg("-R").arg(from).arg(dir.path().join(to)).status().unwrap();
        assert!(copied.success());
    }
    let _ = fs::remove_dir_all(dir.path().join("deploy/compose/secrets"));
    dir
}

#[tokio::test]
async fn as_root_compose_file_works_as_documented() {
    if !require_tool("curl") || !require_tool("openssl") {
        return;
    }
    let Some(engine) = Engine::start().await else { return };
    if !load_valkey(&engine) {
        return;
    }
    load_haproxy(&engine);
    load_build_image(&engine, &SERVICES);
    for service in SERVICES {
        let _image = build_target(&engine, service);
    }
    let project = compose_project();
    let password = "correct horse battery";
    let run = |script: &str| {
        // The images are built above, under the names that the file uses.
        let script = script.replace("up --build", "up --no-build --pull never");
        let result = engine.shell(&script, project.path(), &[("PASSWORD", password)]);
        result.unwrap_or_else(|error| {
            let logs = engine.shell("docker compose ps --all; docker compose logs", project.path(), &[]);
            panic!("{script}: {error}\n{}", logs.unwrap_or_else(|error| error))
        })
    };
    let commands = documented("sh compose");
    let [start, account, set_password] = commands.as_slice() else { panic!("{commands:?}") };
    // The demo can fail until HAProxy and lookup-svc listen, so the last line is repeated.
    let (up, demo) = start.rsplit_once('\n').unwrap();
    run(up);
    eventually_ok(WAIT_TIMEOUT, demo, async || {
        engine
            .shell(demo, project.path(), &[])
            .and_then(|response| if response.contains("\"success\"") { Ok(()) } else { Err(response) })
    })
    .await;

    let ca = project.path().join("deploy/compose/secrets/tls.pem");
    let tls = ["--cacert", ca.to_str().unwrap(), "--http2"];
    let forged = ["-H", "X-Edge-Client-IP: 203.0.113.9", "-H", "X-Forwarded-For: 203.0.113.9"];
    let url = ["https://localhost:8443/api/v1/ip/demo"];
    let response = curl(&engine, &[&tls[..], &forged, &url].concat());
    for part in [
        "HTTP/2 200",
        "\"ip\":\"172.31.83.1\"",
        "\"tls_version\":\"TLSv1.3\"",
        "\"http_protocol\":\"HTTP/2\"",
    ] {
        assert!(response.contains(part), "{part}: {response}");
    }
    let redirected = curl(&engine, &["http://localhost:8080/api/v1/ip?key=x"]);
    let location = "location: https://localhost:8443/api/v1/ip?key=x\r";
    assert!(redirected.starts_with("HTTP/1.1 308") && redirected.contains(location), "{redirected}");

    let created = run(account);
    let key = created.split_whitespace().find(|word| word.starts_with("ipl_")).unwrap();
    let bearer = format!("Authorization: Bearer {key}");
    let lookup = curl(&engine, &[&tls[..], &["-H", &bearer, "https://localhost:8443/api/v1/ip"]].concat());
    assert!(lookup.starts_with("HTTP/2 200"), "{lookup}");
    run(set_password);
    let dashboard = "https://dashboard.localhost:8443";
    let resolve = ["--resolve", "dashboard.localhost:8443:127.0.0.1"];
    let signed_in = sign_in(&engine, dashboard, "you@example.com", password, &[&tls[..], &resolve].concat());
    assert!(is_success(&signed_in) && signed_in.contains("set-cookie: __Host-"), "{signed_in}");

    let container = |service: &str| run(&format!("docker compose ps --quiet {service}")).trim().to_owned();
    let secret =
        |name: &str| fs::read_to_string(project.path().join("deploy/compose/secrets").join(name)).unwrap();
    check_tokens(
        &engine,
        (&container("quota-svc"), &secret("quota-token")),
        (&container("quota-charges"), &secret("quota-charges-token")),
    );
    let restarts = run("docker compose ps --all --format '{{.Service}} {{.State}}'");
    for service in ["haproxy", "valkey", "lookup-svc", "dashboard-api", "quota-svc", "quota-charges"] {
        assert!(restarts.contains(&format!("{service} running")), "{restarts}");
    }
    let logs = run("docker compose logs");
    assert!(
        !logs.contains("other users can read"),
        "root gives the secrets to the containers' group: {logs}"
    );
    // geo-update has no network access, and nothing has waited for it.
    wait_for_log(&engine, &container("geo-update"), "retry").await;
}

/// Each quota-svc (container and token) requires its own token, and that of lookup-svc serves only charges.
fn check_tokens(engine: &Engine, dashboard: (&str, &str), lookup: (&str, &str)) {
    for (container, token, expected) in [
        (dashboard.0, "none", "401"),
        (dashboard.0, lookup.1, "401"),
        (dashboard.0, dashboard.1, "200"),
        (lookup.0, dashboard.1, "401"),
        (lookup.0, lookup.1, "404"),
    ] {
        let header = format!("Authorization: Bearer {}", token.trim());
        let url = "http://127.0.0.1:8082/internal/v1/accounts";
        let arguments = ["curl", "--silent", "--include", "--max-time", "10", "-H", &header, url];
        let response = engine.run_in_network_of(container, &arguments).unwrap();
        assert_eq!(response.split(' ').nth(1), Some(expected), "{container}: {response}");
    }
}

/// The chart's Valkey requires a password, evicts nothing and persists its data.
async fn check_store(engine: &Engine, store: &str, password: &str) {
    let cli = |arguments: &[&str]| {
        engine.try_run("docker", &[&["exec", store, "valkey-cli", "--no-auth-warning"], arguments].concat())
    };
    let info = eventually_ok(WAIT_TIMEOUT, "the store responds", async || {
        cli(&["-a", password, "INFO"])
            .and_then(|info| if info.contains("loading:0") { Ok(info) } else { Err(info) })
    })
    .await;
    assert!(info.contains("maxmemory_policy:noeviction") && info.contains("aof_enabled:1"), "{info}");
    assert!(cli(&["GET", "x"]).unwrap().contains("NOAUTH"));
    assert!(cli(&["-a", "wrong", "GET", "x"]).unwrap().contains("NOAUTH"));
    assert!(cli(&["-a", password, "FLUSHALL"]).unwrap().contains("unknown command"));
}

/// The lookup pod, the dashboard's sidecar and Valkey, as the chart configures them.
#[tokio::test]
async fn slow_as_root_chart_containers_survive_load_within_their_limits() {
    if !require_tool("wrk") || venv_tool("helm").is_none() {
        return;
    }
    let Some(engine) = Engine::start().await else { return };
    if !load_valkey(&engine) {
        return;
    }
    load_build_image(&engine, &["quota-svc", "lookup-svc"]);
    for service in ["quota-svc", "lookup-svc"] {
        let _image = build_target(&engine, service);
    }
    let chart = render(&["--set", "quota.dailyLimit=10000000,quota.burstLimit=60000"]);
    let _network = engine.docker(&["network", "create", "pods"]);
    let valkey = Pod::new(&engine, &chart, chart.object("StatefulSet", "-valkey"), "store");
    let store = valkey.start("valkey", &["--network=pods", "--network-alias=ipl-ip-lookup-valkey"]);
    check_store(&engine, &store, valkey.read("/run/secrets/store/password").trim()).await;
    let dashboard = Pod::new(&engine, &chart, chart.object("Deployment", "-dashboard-api"), "dashboard");
    let admin = dashboard.start("quota-svc", &["--network=pods"]);
    let lookup = Pod::new(&engine, &chart, chart.object("Deployment", "-lookup-svc"), "lookup");
    let sidecar = lookup.start("quota-svc", &["--network=pods"]);
    let service = lookup.start("lookup-svc", &[&format!("--network=container:{sidecar}")]);

    let exec = |arguments: &[&str]| {
        let words = [&["exec", &admin, "quota-svc"], arguments, &["--output", "json"]].concat();
        engine.try_run("docker", &words)
    };
    let create = async || exec(&["account", "create", "you@example.com"]);
    eventually_ok(WAIT_TIMEOUT, "the store is reached", create).await;
    let created =
        exec(&["key", "create", "--account", "you@example.com", "--name", "load", "--scope", "full"]);
    let created: Value = serde_json::from_str(&created.unwrap()).unwrap();
    let bearer = format!("Authorization: Bearer {}", text(&created["key"]));
    let address = engine.inspect(&sidecar, ".NetworkSettings.Networks.pods.IPAddress");
    let url = format!("http://{address}:8080/api/v1/ip");
    eventually_ok(WAIT_TIMEOUT, "the first lookup succeeds", async || {
        let response = curl(&engine, &["-H", &bearer, &url]);
        if is_success(&response) { Ok(()) } else { Err(response) }
    })
    .await;

    let token = |pod: &Pod<'_>| pod.read("/run/secrets/quota/token");
    check_tokens(&engine, (&admin, &token(&dashboard)), (&sidecar, &token(&lookup)));
    for container in [&service, &sidecar, &store] {
        let status = engine.process_status(container);
        for line in [
            "Uid:\t65532\t65532\t65532\t65532",
            "Gid:\t65532\t65532\t65532\t65532",
            "CapEff:\t0000000000000000",
            "CapBnd:\t0000000000000000",
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
        ] {
            assert!(status.contains(line), "{container}: {line}\n{status}");
        }
    }
    // Two seconds: the burst limit allows 60,000 requests in a minute.
    let report =
        engine.try_run("wrk", &["-t1", "-c200", "-d2s", "--timeout", "10s", "-H", &bearer, &url]).unwrap();
    println!("{report}");
    let requests = report.split_once(" requests in ").unwrap().0.rsplit('\n').next().unwrap().trim();
    assert!(requests.parse::<u32>().unwrap() > 1_000, "{report}");
    assert!(!report.contains("Non-2xx") && !report.contains("Socket errors"), "{report}");
    for container in [&service, &sidecar, &store] {
        let state =
            engine.inspect(container, ".State.Status") + " " + &engine.inspect(container, ".State.OOMKilled");
        assert_eq!(state, "running false", "{container}: {}", engine.logs(container));
        let limit = engine.inspect(container, ".HostConfig.Memory");
        let memory = engine.process_status(container);
        let peak = memory.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        println!("{container}: limit {limit} bytes, {peak}");
        assert_ne!(limit, "0");
    }
}

/// Runs the Dockerfile's own commands with this machine's compiler. Does not prove that the published image's toolchain
/// and packages suffice, nor the optimization of the profile `dist`.
#[tokio::test]
async fn slow_as_root_dockerfile_compiles_static_binaries() {
    let Some(engine) = Engine::start_on_disk().await else { return };
    compiler::load(&engine);
    for target in TARGETS {
        let image = build_target(&engine, target);
        let version = engine.docker(&["run", "--rm", "--read-only", &image, "--version"]);
        let details = "(commit 0123456789, 2024-02-29)";
        assert_eq!(version.trim(), format!("{target} {} {details}", env!("CARGO_PKG_VERSION")));
        let list = format!("docker export $(docker create {image}) | tar -t | grep -v '/$'");
        let files = engine.shell(&list, Path::new("/"), &[]).unwrap();
        let ours = files.lines().filter(|file| file.starts_with("usr/") || file.starts_with("lib"));
        let binary = format!("usr/local/bin/{target}");
        assert_eq!(ours.collect::<Vec<_>>(), [binary.as_str()], "the binary is static: {files}");
    }
}

/// A release builds its images from the programs of its archives: no stage runs a command, so the machine's architecture
/// does not matter. The base images are not loaded, so nothing can be compiled.
#[tokio::test]
async fn slow_as_root_release_images_contain_the_given_programs() {
    let Some(engine) = Engine::start().await else { return };
    let programs = tempfile::tempdir().unwrap();
    let run =
        |script: &str| engine.shell(script, &project_root(), &[]).unwrap_or_else(|error| panic!("{error}"));
    for (target, (arch, architecture)) in
        TARGETS.iter().zip([("x86_64", "amd64"), ("aarch64", "arm64")].into_iter().cycle())
    {
        let program = format!("{target} for {arch}");
        fs::write(programs.path().join(target), &program).unwrap();
        let (image, dir) = (format!("test/{target}"), programs.path().display());
        run(&format!("release/image.sh {target} {arch} {dir} --load --tag {image} --label revision=0123"));
        let field = |field: &str| {
            let format = format!("{{{{json {field}}}}}");
            let printed = engine.docker(&["image", "inspect", "--format", &format, &image]);
            serde_json::from_str::<Value>(&printed).unwrap()
        };
        assert_eq!(field(".Architecture"), architecture);
        assert_eq!(field(".Config.User"), "65532:65532");
        assert_eq!(field(".Config.Entrypoint"), json!([format!("/usr/local/bin/{target}")]));
        assert_eq!(field(".Config.Labels")["org.opencontainers.image.title"], *target);
        assert_eq!(field(".Config.Labels")["revision"], "0123");
        let export = format!("docker export $(docker create --platform linux/{architecture} {image})");
        assert_eq!(run(&format!("{export} | tar -xO usr/local/bin/{target}")), program);
        let files = run(&format!("{export} | tar -t"));
        assert!(files.contains("etc/ssl/certs/ca-certificates.crt"), "{files}");
        assert_eq!(files.contains("\ndata/\n"), *target == "ip-lookup", "{files}");
    }
}

/// Stages with an entry point are images. The tests above build and start all of them.
#[test]
fn targets_of_the_dockerfile_are_the_tested_images() {
    let dockerfile = fs::read_to_string(project_root().join("Dockerfile")).unwrap();
    let stages = dockerfile.split("\nFROM ").filter(|stage| stage.contains("\nENTRYPOINT "));
    let mut targets: Vec<_> = stages.map(|stage| stage.split_whitespace().nth(2).unwrap()).collect();
    targets.sort_unstable();
    assert_eq!(targets, TARGETS);
}
