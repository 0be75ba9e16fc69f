//! Tests the Dockerfile and docker-compose.yaml without a container engine: lints the Dockerfile, compares both with
//! the chart, and starts the binaries with the flags, files and user of docker-compose.yaml, behind its HAProxy
//! configuration.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::chart::{Chart, list, project_root, text, venv_tool, yaml_to_json};
use e2e::edge_proxy::system_tool;
use serde_json::Value;
use tempfile::TempDir;
use testkit::ports::ReservedPort;
use testkit::process::binary;
use testkit::spawner::ChildGuard;
use testkit::tools::require_tool;
use testkit::wait::eventually_ok;

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
const SERVICES: [&str; 3] = ["quota-svc", "lookup-svc", "dashboard-api"];
/// The services of docker-compose.yaml that run our images, and the name of the image.
const COMPOSE_SERVICES: [(&str, &str); 4] = [
    ("quota-svc", "quota-svc"),
    ("quota-charges", "quota-svc"),
    ("lookup-svc", "lookup-svc"),
    ("dashboard-api", "dashboard-api"),
];

fn dockerfile() -> String {
    fs::read_to_string(project_root().join("Dockerfile")).unwrap()
}

fn compose() -> Value {
    let yaml = fs::read_to_string(project_root().join("docker-compose.yaml")).unwrap();
    serde_json::from_str::<Value>(&yaml_to_json(&yaml)).unwrap()[0].clone()
}

#[test]
fn hadolint_reports_no_problems() {
    let Some(hadolint) = venv_tool("hadolint") else { return };
    let output = Command::new(hadolint).arg(project_root().join("Dockerfile")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn dockerfile_chart_and_compose_agree_on_images_and_user() {
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

/// The Dockerfile builds the dependencies from manifests and empty sources. Cargo must accept these as a workspace.
#[test]
fn dockerfile_manifests_stage_is_a_valid_workspace() {
    let dockerfile = dockerfile();
    let stage = dockerfile.split("AS manifests\n").nth(1).unwrap();
    let script = stage.split("RUN ").nth(1).unwrap().split("\n\n").next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let ignore = fs::read_to_string(project_root().join(".dockerignore")).unwrap();
    // Copies the files that `COPY . .` would copy. In .dockerignore, a line with `!` includes a name; the other lines
    // exclude directories below it.
    let names = ignore.lines().filter_map(|line| line.strip_prefix('!'));
    let archive = dir.path().join("sources.tar");
    let mut tar = Command::new("tar");
    tar.args(["--exclude=node", "--exclude=artifacts", "--exclude=target", "-cf"])
        .arg(&archive)
        .arg("-C")
        .arg(project_root());
    assert!(tar.args(names).status().unwrap().success());
    let unpacked = Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(dir.path()).status().unwrap();
    assert!(unpacked.success());
    let prepared = Command::new("sh").args(["-ec", script]).current_dir(dir.path()).output().unwrap();
    assert!(prepared.status.success(), "{}", String::from_utf8_lossy(&prepared.stderr));
    let metadata = ["metadata", "--locked", "--offline", "--no-deps", "--format-version=1"];
    let output = Command::new(env!("CARGO")).args(metadata).current_dir(dir.path()).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let packages: Vec<_> = list(&metadata["packages"]).map(|package| text(&package["name"])).collect();
    assert!(SERVICES.iter().all(|service| packages.contains(service)), "{packages:?}");
    assert!(
        !dir.path().join("lookup-svc/data").exists(),
        "only manifests and empty sources are left, so that changes to other files do not invalidate the cached layer"
    );
}

/// The services of docker-compose.yaml as local processes, on local ports and paths.
struct ComposeStack {
    dir: TempDir,
    ports: Vec<ReservedPort>,
    replacements: Vec<(&'static str, String)>,
    processes: Vec<ChildGuard>,
}

// All constants below are indexes into `ComposeStack::ports`.
const VALKEY: usize = 0;
const QUOTA: usize = 1;
const QUOTA_CHARGES: usize = 3;
const LOOKUP: usize = 5;
const DASHBOARD: usize = 7;
const HTTPS: usize = 9;
const HTTP: usize = 10;
/// Main port and admin port of each of [`COMPOSE_SERVICES`].
const SERVICE_PORTS: [(usize, usize); 4] = [(QUOTA, 2), (QUOTA_CHARGES, 4), (LOOKUP, 6), (DASHBOARD, 8)];

impl ComposeStack {
    /// Copies the files that compose mounts, and creates the secrets with `prepare.sh`.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let set_mode = |dir: &Path, mode| fs::set_permissions(dir, fs::Permissions::from_mode(mode));
        set_mode(dir.path(), 0o755).unwrap();
        for file in ["prepare.sh", "haproxy.cfg", "valkey.sh"] {
            copy_readable(&project_root().join("deploy/compose").join(file), &dir.path().join(file));
        }
        assert!(Command::new("sh").arg(dir.path().join("prepare.sh")).status().unwrap().success());
        // Docker mounts each secret as a file. Here, the services read the secrets from this directory.
        set_mode(&dir.path().join("secrets"), 0o755).unwrap();
        for volume in ["data", "geo"].map(|name| dir.path().join(name)) {
            fs::create_dir(&volume).unwrap();
            set_mode(&volume, 0o777).unwrap();
        }
        let ports: Vec<_> = (0..11).map(|_| ReservedPort::new()).collect();
        let replacements = replacements(dir.path().to_str().unwrap(), &ports);
        Self { dir, ports, replacements, processes: Vec::new() }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn start_valkey(&mut self) {
        let script = self.path("valkey.sh");
        fs::write(&script, self.localize(&fs::read_to_string(&script).unwrap())).unwrap();
        self.start(&["sh".to_owned(), script], &[]);
    }

    fn start_services(&mut self, compose: &Value) {
        for ((service, image), (listen, admin)) in COMPOSE_SERVICES.into_iter().zip(SERVICE_PORTS) {
            let copy = copy_readable(&binary(image), &self.dir.path().join(service));
            let definition = &compose["services"][service];
            // Services that share a network namespace reach their quota-svc at 127.0.0.1.
            let quota = match definition["network_mode"].as_str() {
                Some("service:quota-charges") => QUOTA_CHARGES,
                _ => QUOTA,
            };
            let quota = self.ports[quota].addr().to_string();
            let flags = list(&definition["command"]).map(|flag| text(flag).replace("127.0.0.1:8082", &quota));
            let mut line: Vec<_> = [copy].into_iter().chain(flags.map(|flag| self.localize(&flag))).collect();
            line.push(format!("--listen={}", self.ports[listen].addr()));
            line.push(format!("--admin-listen={}", self.ports[admin].addr()));
            self.start(&line, &self.environment(definition));
        }
    }

    fn environment(&self, definition: &Value) -> Vec<(String, String)> {
        let variables = definition["environment"].as_object().into_iter().flatten();
        variables.map(|(name, value)| (name.clone(), self.localize(text(value)))).collect()
    }

    fn start_haproxy(&mut self, haproxy: &Path, compose: &Value) {
        let variables = self.environment(&compose["services"]["haproxy"]);
        let line = [haproxy.to_str().unwrap(), "-db", "-f", &self.path("haproxy.cfg")].map(str::to_owned);
        self.start(&line, &variables);
    }

    /// Sends a request from 127.0.0.5 with headers that claim another client address.
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

    /// Repeats a request over TLS until the response is 200, and returns that response.
    async fn get_ok(&self, host: &str, path: &str) -> String {
        eventually_ok(WAIT_TIMEOUT, format!("{host}{path} responds with 200 over TLS"), async || {
            let response = self.curl("https", host, HTTPS, path);
            if response.starts_with("HTTP/2 200") {
                Ok(response)
            } else {
                Err(format!("{response}\n{}", self.logs()))
            }
        })
        .await
    }

    /// Replaces the addresses and paths in the compose files with the local ones.
    fn localize(&self, text: &str) -> String {
        self.replacements.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// Starts a program, as the image's user if this test runs as root.
    fn start(&mut self, command_line: &[String], env: &[(String, String)]) {
        let log = fs::File::create(self.dir.path().join(format!("{}.log", self.processes.len()))).unwrap();
        let user = ["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups", "--no-new-privs", "--"];
        let is_root = rustix::process::getuid().is_root();
        let line: Vec<_> = user
            .iter()
            .filter(|_| is_root)
            .map(|word| (*word).to_owned())
            .chain(command_line.to_vec())
            .collect();
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

/// Copies a file so that the image's user can read and run it, even if the project directory is private.
fn copy_readable(from: &Path, to: &Path) -> String {
    fs::copy(from, to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
    to.to_str().unwrap().to_owned()
}

/// Pairs of a text in the compose files and its local replacement.
fn replacements(base: &str, ports: &[ReservedPort]) -> Vec<(&'static str, String)> {
    let addr = |index: usize| ports[index].addr().to_string();
    vec![
        ("/run/secrets/tls", format!("{base}/secrets/tls.pem")),
        ("/run/secrets/", format!("{base}/secrets/")),
        ("/var/lib/geo", format!("{base}/geo")),
        ("--dir /data", format!("--port {} --dir {base}/data", ports[VALKEY].number())),
        ("exec valkey-server", "exec redis-server".to_owned()),
        // Redis before 7.2 rejects the name of a command that it does not have.
        (" +waitaof", String::new()),
        ("valkey:6379", addr(VALKEY)),
        ("lookup:8080", addr(LOOKUP)),
        ("dashboard:8081", addr(DASHBOARD)),
        ("0.0.0.0:8443", addr(HTTPS)),
        ("0.0.0.0:8080", addr(HTTP)),
        // HAProxy's fixed address in compose's network.
        ("172.31.83.2", "127.0.0.1".to_owned()),
    ]
}

#[tokio::test]
async fn compose_serves_both_host_names_over_tls() {
    let tools = require_tool("redis-server") && require_tool("curl") && require_tool("openssl");
    let Some(haproxy) = tools.then(|| system_tool("haproxy")).flatten() else { return };
    let Some(_) = venv_tool("python") else { return };
    let (compose, mut stack) = (compose(), ComposeStack::new());
    stack.start_valkey();
    stack.start_services(&compose);
    stack.start_haproxy(&haproxy, &compose);

    let demo = stack.get_ok("localhost", "/api/v1/ip/demo").await;
    for part in ["\"ip\":\"127.0.0.5\"", "\"tls_version\":\"TLSv1.3\"", "\"http_protocol\":\"HTTP/2\""] {
        assert!(demo.contains(part), "{part}: {demo}");
    }
    let page = stack.get_ok("dashboard.localhost", "/").await;
    assert!(page.contains("<html"), "{page}");
    let quota_status = async |port: usize, path: &str, secret: Option<&str>| {
        let request = testkit::http::client().get(format!("http://{}{path}", stack.ports[port].addr()));
        let token = secret.map(|name| fs::read_to_string(stack.path(&format!("secrets/{name}"))).unwrap());
        let request = token.iter().fold(request, |request, token| request.bearer_auth(token.trim()));
        request.send().await.unwrap().status().as_u16()
    };
    let (accounts, token, charges) = ("/internal/v1/accounts", "quota-token", "quota-charges-token");
    assert_eq!(quota_status(QUOTA, accounts, None).await, 401);
    assert_eq!(quota_status(QUOTA, accounts, Some(charges)).await, 401, "each quota-svc has its own token");
    assert_eq!(quota_status(QUOTA, accounts, Some(token)).await, 200);
    assert_eq!(quota_status(QUOTA_CHARGES, accounts, Some(token)).await, 401);
    assert_eq!(quota_status(QUOTA_CHARGES, accounts, Some(charges)).await, 404, "lookup-svc can only charge");
    let plain = stack.curl("http", "localhost", HTTP, "/api/v1/ip?key=x");
    let redirects = plain.to_lowercase().contains("location: https://");
    assert!(plain.starts_with("HTTP/1.1 308") && redirects, "{plain}");
}
