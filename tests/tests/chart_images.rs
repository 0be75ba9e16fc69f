//! The Dockerfile and docker-compose.yaml, as far as they can be proved without a container engine: linted, and the
//! same binaries started with the same flags, files and user behind the same HAProxy configuration.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::chart::{Chart, list, root, text, venv_tool, yaml_to_json};
use e2e::edge_proxy::system_tool;
use e2e::ports::ReservedPort;
use e2e::process::binary;
use e2e::spawner::ChildGuard;
use e2e::tools::require_tool;
use e2e::wait::eventually_ok;
use serde_json::Value;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);
const SERVICES: [&str; 3] = ["quota-svc", "lookup-svc", "dashboard-api"];

fn dockerfile() -> String {
    fs::read_to_string(root().join("Dockerfile")).unwrap()
}

fn compose() -> Value {
    let yaml = fs::read_to_string(root().join("docker-compose.yaml")).unwrap();
    serde_json::from_str::<Value>(&yaml_to_json(&yaml)).unwrap()[0].clone()
}

#[test]
fn hadolint_has_nothing_to_say() {
    let Some(hadolint) = venv_tool("hadolint") else { return };
    let output = Command::new(hadolint).arg(root().join("Dockerfile")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn every_image_of_the_chart_and_of_compose_is_a_target_that_runs_as_the_charts_user() {
    if venv_tool("helm").is_none() {
        return;
    }
    let (dockerfile, compose) = (dockerfile(), compose());
    assert!(dockerfile.contains("\nUSER 65532:65532\n"));
    let chart = Chart::render(&[]).unwrap();
    for service in SERVICES {
        assert!(dockerfile.contains(&format!("\nFROM base AS {service}\n")), "{service}");
        assert!(dockerfile.contains(&format!("ENTRYPOINT [\"/usr/local/bin/{service}\"]")), "{service}");
        assert_eq!(compose["services"][service]["build"]["target"], service);
        assert_eq!(compose["services"][service]["user"], "65532:65532");
        assert_eq!(compose["services"][service]["read_only"], true);
        let image = format!("ip-lookup/{service}:{}", env!("CARGO_PKG_VERSION"));
        assert_eq!(compose["services"][service]["image"], image.as_str());
        assert!(
            chart.objects.iter().any(|object| object.to_string().contains(&format!("\"{image}\""))),
            "{image}"
        );
    }
    for deployment in chart.of_kind("Deployment") {
        let security = &deployment["spec"]["template"]["spec"]["securityContext"];
        assert_eq!((&security["runAsUser"], &security["runAsNonRoot"]), (&65532.into(), &true.into()));
    }
}

/// The layer with the dependencies is built from manifests and empty sources: cargo must accept those.
#[test]
fn the_dependency_layer_is_a_workspace_that_cargo_understands() {
    let dockerfile = dockerfile();
    let stage = dockerfile.split("AS manifests\n").nth(1).unwrap();
    let script = stage.split("RUN ").nth(1).unwrap().split("\n\n").next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let ignore = fs::read_to_string(root().join(".dockerignore")).unwrap();
    // `tests` has a folder of Node modules that .dockerignore leaves out as well.
    let names = ignore.lines().filter_map(|line| line.strip_prefix('!'));
    let archive = dir.path().join("sources.tar");
    let mut tar = Command::new("tar");
    tar.args(["--exclude=node", "--exclude=artifacts", "--exclude=target", "-cf"])
        .arg(&archive)
        .arg("-C")
        .arg(root());
    assert!(tar.args(names).status().unwrap().success());
    let unpacked = Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(dir.path()).status().unwrap();
    assert!(unpacked.success());
    let planned = Command::new("sh").args(["-ec", script]).current_dir(dir.path()).output().unwrap();
    assert!(planned.status.success(), "{}", String::from_utf8_lossy(&planned.stderr));
    let metadata = ["metadata", "--locked", "--offline", "--no-deps", "--format-version=1"];
    let output = Command::new(env!("CARGO")).args(metadata).current_dir(dir.path()).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let packages: Vec<_> = list(&metadata["packages"]).map(|package| text(&package["name"])).collect();
    assert!(SERVICES.iter().all(|service| packages.contains(service)), "{packages:?}");
    assert!(!dir.path().join("lookup-svc/data").exists(), "sources would spoil the cache");
}

/// docker-compose.yaml on this machine: where its names and paths are.
struct Machine {
    dir: TempDir,
    ports: Vec<ReservedPort>,
    replacements: Vec<(&'static str, String)>,
    processes: Vec<ChildGuard>,
}

/// Which of the ports is whose.
const VALKEY: usize = 0;
/// Those of each service: its own and its admin's.
const OF_SERVICES: [(usize, usize); 3] = [(QUOTA, 2), (LOOKUP, 4), (DASHBOARD, 6)];
const QUOTA: usize = 1;
const LOOKUP: usize = 3;
const DASHBOARD: usize = 5;
const HTTPS: usize = 7;
const HTTP: usize = 8;

impl Machine {
    /// The files that compose mounts, and the secrets that its preparation makes.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let open = |folder: &Path, mode| fs::set_permissions(folder, fs::Permissions::from_mode(mode));
        open(dir.path(), 0o755).unwrap();
        for file in ["prepare.sh", "haproxy.cfg", "valkey.sh"] {
            open_copy(&root().join("deploy/compose").join(file), &dir.path().join(file));
        }
        assert!(Command::new("sh").arg(dir.path().join("prepare.sh")).status().unwrap().success());
        // Docker mounts the files themselves; here they are reached through their folder.
        open(&dir.path().join("secrets"), 0o755).unwrap();
        for folder in ["data", "geo"].map(|name| dir.path().join(name)) {
            fs::create_dir(&folder).unwrap();
            open(&folder, 0o777).unwrap();
        }
        let ports: Vec<_> = (0..9).map(|_| ReservedPort::new()).collect();
        let replacements = replacements(dir.path().to_str().unwrap(), &ports);
        Self { dir, ports, replacements, processes: Vec::new() }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn start_valkey(&mut self) {
        let script = self.path("valkey.sh");
        fs::write(&script, self.here(&fs::read_to_string(&script).unwrap())).unwrap();
        self.start(&["sh".to_owned(), script], &[]);
    }

    fn start_services(&mut self, compose: &Value) {
        for (service, (listen, admin)) in SERVICES.into_iter().zip(OF_SERVICES) {
            let copy = open_copy(&binary(service), &self.dir.path().join(service));
            let flags = list(&compose["services"][service]["command"]).map(|flag| self.here(text(flag)));
            let mut line: Vec<_> = [copy].into_iter().chain(flags).collect();
            line.push(format!("--listen={}", self.ports[listen].addr()));
            line.push(format!("--admin-listen={}", self.ports[admin].addr()));
            self.start(&line, &[]);
        }
    }

    fn start_haproxy(&mut self, haproxy: &Path, compose: &Value) {
        let variables = compose["services"]["haproxy"]["environment"].as_object().unwrap();
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| (name.clone(), self.here(text(value)))).collect();
        let line = [haproxy.to_str().unwrap(), "-db", "-f", &self.path("haproxy.cfg")].map(str::to_owned);
        self.start(&line, &variables);
    }

    /// Asks as a client at 127.0.0.5 that claims to be somebody else.
    fn curl(&self, scheme: &str, host: &str, port: usize, path: &str) -> String {
        let port = self.ports[port].number();
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--include", "--noproxy", "*", "--max-time", "10", "--http2"]);
        curl.args(["--interface", "127.0.0.5", "--resolve", &format!("{host}:{port}:127.0.0.1")]);
        curl.args(["--cacert", &self.path("secrets/tls.pem")]);
        curl.args(["--header", "X-Edge-Client-IP: 203.0.113.9", "--header", "X-Forwarded-For: 203.0.113.9"]);
        let output = curl.arg(format!("{scheme}://{host}:{port}{path}")).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The answer over TLS, once it is a 200.
    async fn served(&self, host: &str, path: &str) -> String {
        eventually_ok(PATIENCE, format!("{host}{path} answers over TLS"), async || {
            let answer = self.curl("https", host, HTTPS, path);
            if answer.starts_with("HTTP/2 200") {
                Ok(answer)
            } else {
                Err(format!("{answer}\n{}", self.logs()))
            }
        })
        .await
    }

    fn here(&self, inside: &str) -> String {
        self.replacements.iter().fold(inside.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// Starts a program as the image's user, where we may choose.
    fn start(&mut self, words: &[String], env: &[(String, String)]) {
        let log = fs::File::create(self.dir.path().join(format!("{}.log", self.processes.len()))).unwrap();
        let user = ["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups", "--no-new-privs", "--"];
        let is_root = rustix::process::getuid().is_root();
        let line: Vec<_> =
            user.iter().filter(|_| is_root).map(|word| (*word).to_owned()).chain(words.to_vec()).collect();
        self.processes.push(ChildGuard::spawn(&line[0], |command| {
            command.args(&line[1..]).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
            command.envs(env.iter().cloned()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        }));
    }

    fn logs(&self) -> String {
        let log = |index: usize| {
            fs::read_to_string(self.dir.path().join(format!("{index}.log"))).unwrap_or_default()
        };
        (0..self.processes.len()).map(log).collect()
    }
}

/// A copy that the other user can read, wherever the project lies.
fn open_copy(from: &Path, to: &Path) -> String {
    fs::copy(from, to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
    to.to_str().unwrap().to_owned()
}

/// What compose calls things, and what they are here.
fn replacements(base: &str, ports: &[ReservedPort]) -> Vec<(&'static str, String)> {
    let addr = |index: usize| ports[index].addr().to_string();
    vec![
        ("/run/secrets/tls", format!("{base}/secrets/tls.pem")),
        ("/run/secrets/", format!("{base}/secrets/")),
        ("/var/lib/geo", format!("{base}/geo")),
        ("--dir /data", format!("--port {} --dir {base}/data", ports[VALKEY].number())),
        ("exec valkey-server", "exec redis-server".to_owned()),
        ("valkey:6379", addr(VALKEY)),
        ("127.0.0.1:8082", addr(QUOTA)),
        ("services:8080", addr(LOOKUP)),
        ("services:8081", addr(DASHBOARD)),
        ("0.0.0.0:8443", addr(HTTPS)),
        ("0.0.0.0:8080", addr(HTTP)),
        // HAProxy's fixed address in the network of compose.
        ("172.31.83.2", "127.0.0.1".to_owned()),
    ]
}

#[tokio::test]
async fn compose_serves_both_host_names_over_tls() {
    let tools = require_tool("redis-server") && require_tool("curl") && require_tool("openssl");
    let Some(haproxy) = tools.then(|| system_tool("haproxy")).flatten() else { return };
    let Some(_) = venv_tool("python") else { return };
    let (compose, mut machine) = (compose(), Machine::new());
    machine.start_valkey();
    machine.start_services(&compose);
    machine.start_haproxy(&haproxy, &compose);

    let demo = machine.served("localhost", "/api/v1/ip/demo").await;
    for part in ["\"ip\":\"127.0.0.5\"", "\"tls_version\":\"TLSv1.3\"", "\"http_protocol\":\"HTTP/2\""] {
        assert!(demo.contains(part), "{part}: {demo}");
    }
    let page = machine.served("dashboard.localhost", "/").await;
    assert!(page.contains("<html"), "{page}");
    let plain = machine.curl("http", "localhost", HTTP, "/api/v1/ip?key=x");
    let elsewhere = plain.to_lowercase().contains("location: https://");
    assert!(plain.starts_with("HTTP/1.1 308") && elsewhere, "{plain}");
}
