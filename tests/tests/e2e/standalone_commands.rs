//! The commands of `ip-lookup`, with the service running and stopped.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::http;
use testkit::ports::ReservedPort;
use testkit::process::{Service, binary};
use testkit::redis::Redis;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// A data directory, and the port of quota-svc while a service runs on it.
struct Instance {
    dir: TempDir,
    /// The name of the data directory in `dir`.
    name: String,
    quota: ReservedPort,
    /// More flags of the service and of commands.
    flags: Vec<String>,
}

#[derive(Debug)]
struct CommandOutput {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl CommandOutput {
    fn success(self) -> Self {
        assert!(self.status.success(), "{self:?}");
        self
    }

    fn json(self) -> Value {
        serde_json::from_str(&self.success().stdout).unwrap()
    }

    /// Asserts exit code 1 and no standard output; returns standard error.
    fn failure(self) -> String {
        assert_eq!((self.status.code(), self.stdout.as_str()), (Some(1), ""), "{self:?}");
        self.stderr
    }
}

/// A running service and its banner.
struct Running {
    service: Service,
    banner: String,
}

impl Instance {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            name: "data".to_owned(),
            quota: ReservedPort::new(),
            flags: Vec::new(),
        }
    }

    /// The data directory. It does not exist until the first start.
    fn data(&self) -> PathBuf {
        self.dir.path().join(&self.name)
    }

    fn common_flags(&self) -> Vec<String> {
        let data = self.data().to_str().unwrap().to_owned();
        ["--data-dir".to_owned(), data].into_iter().chain(self.flags.clone()).collect()
    }

    async fn start(&self) -> Running {
        let any = "127.0.0.1:0";
        let (common, quota) = (self.common_flags(), self.quota.addr().to_string());
        let mut flags: Vec<_> = common.iter().map(String::as_str).collect();
        flags.extend([
            "--listen",
            any,
            "--dashboard-listen",
            any,
            "--admin-listen",
            any,
            "--quota-listen",
            &quota,
            "--log-level",
            "info",
        ]);
        let mut service = Service::spawn("ip-lookup", &flags, &[]);
        service.listen_addr("lookup").await;
        let banner = testkit::wait::eventually_ok(WAIT_TIMEOUT, "banner is printed", async || {
            let text = service.stdout();
            if text.contains("Press Ctrl-C to stop") { Ok(text) } else { Err(service.logs()) }
        })
        .await;
        Running { service, banner }
    }

    async fn run(&self, args: &[&str]) -> CommandOutput {
        self.run_with_input(args, "").await
    }

    async fn run_with_input(&self, args: &[&str], input: &str) -> CommandOutput {
        let mut command = Command::new(binary("ip-lookup"));
        // Global flags may follow the command.
        command.args(args).args(self.common_flags());
        output(command, input).await
    }

    async fn json(&self, args: &[&str]) -> Value {
        self.run(&[args, &["--output", "json"]].concat()).await.json()
    }

    /// Creates an account with a key; returns the key's ID and the key.
    async fn create_account_and_key(&self, login: &str) -> (String, String) {
        self.run(&["account", "create", login]).await.success();
        let key = ["key", "create", "--account", login, "--name", "laptop", "--scope", "full"];
        let key = self.json(&key).await;
        (key["id"].as_str().unwrap().to_owned(), key["key"].as_str().unwrap().to_owned())
    }

    async fn quota_port_is_open(&self) -> bool {
        tokio::net::TcpStream::connect(self.quota.addr()).await.is_ok()
    }

    async fn logins(&self) -> Vec<String> {
        let list = self.json(&["account", "list"]).await;
        let accounts = list["accounts"].as_array().unwrap().iter();
        accounts.map(|account| account["login"].as_str().unwrap().to_owned()).collect()
    }
}

impl Running {
    async fn stop(mut self) {
        self.service.term();
        assert!(self.service.wait_exit(WAIT_TIMEOUT).await.success(), "{}", self.service.logs());
    }

    /// The status of a lookup with this key.
    async fn lookup(&mut self, key: &str) -> u16 {
        let api = self.service.listen_addr("lookup").await;
        let request = http::client().get(format!("http://{api}/api/v1/ip")).bearer_auth(key);
        request.send().await.unwrap().status().as_u16()
    }

    /// The status of a sign-in to the dashboard.
    async fn sign_in(&mut self, login: &str, password: &str) -> u16 {
        self.post("session", &json!({ "login": login, "password": password })).await
    }

    /// The status of setting a password with a link.
    async fn set_password(&mut self, link: &Value, password: &str) -> u16 {
        let (_, token) = link.as_str().unwrap().split_once("#set-password=").unwrap();
        self.post("account/password-link", &json!({ "token": token, "password": password })).await
    }

    async fn post(&mut self, path: &str, body: &Value) -> u16 {
        let dashboard = self.service.listen_addr("dashboard").await;
        let request = http::client().post(format!("http://{dashboard}/api/v1/{path}")).json(body);
        let request = request.header("origin", format!("http://{dashboard}")).header("x-csrf-token", "1");
        request.send().await.unwrap().status().as_u16()
    }
}

/// Runs a command with an environment that has only the programs of this workspace and of the system.
async fn output(command: Command, input: &str) -> CommandOutput {
    output_with_env(command, &[], input).await
}

async fn output_with_env(mut command: Command, env: &[(&str, &str)], input: &str) -> CommandOutput {
    let path = format!("{}:/usr/bin:/bin", binary("ip-lookup").parent().unwrap().display());
    command.env_clear().env("PATH", path).envs(env.iter().copied()).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Fails if the command exits without reading its input, which is fine.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandOutput { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs a command line of a banner or message, with `LOGIN` replaced.
async fn shell(line: &str, login: &str) -> CommandOutput {
    let mut command = Command::new("sh");
    command.args(["-c", &line.trim().replace("LOGIN", login)]);
    output(command, "").await
}

#[tokio::test]
async fn key_commands_work_while_the_service_runs_and_while_it_is_stopped() {
    let instance = Instance::new();
    let mut running = instance.start().await;
    let (id, key) = instance.create_account_and_key("ada").await;
    assert_eq!(running.lookup(&key).await, 200, "a key that was created while the service runs");
    assert!(instance.quota_port_is_open().await);
    running.stop().await;

    assert!(!instance.quota_port_is_open().await);
    assert_eq!(instance.logins().await, ["ada", "admin"]);
    assert_eq!(instance.json(&["key", "deactivate", &id]).await["state"], "inactive");
    let (_, other) = instance.create_account_and_key("bob").await;
    let shown = instance.run(&["key", "show", &id]).await.success().stdout;
    let next = shown.lines().find_map(|line| line.strip_prefix("To reactivate it: ")).unwrap().to_owned();

    let mut running = instance.start().await;
    assert_eq!(running.lookup(&key).await, 403, "deactivated while the service was stopped");
    assert_eq!(running.lookup(&other).await, 200, "created while the service was stopped");
    shell(&next, "").await.success();
    assert_eq!(running.lookup(&key).await, 200, "the command in the message has reached the service");
}

#[tokio::test]
async fn banner_of_the_second_start_names_commands_that_work() {
    let instance = Instance::new();
    instance.start().await.stop().await;
    let mut running = instance.start().await;
    let lines: Vec<_> = running
        .banner
        .lines()
        .map(str::trim)
        .filter(|line| line.contains("ip-lookup --data-dir ") && !line.contains("Geo data"))
        .collect();
    assert_eq!(lines.len(), 2, "{}", running.banner);
    assert!(shell(lines[0], "").await.success().stdout.contains("first key"));
    let printed = shell(lines[1], "admin").await.success().stdout;
    let password = printed.lines().find_map(|line| line.strip_prefix("    ")).unwrap().to_owned();
    assert_eq!(running.sign_in("admin", &password).await, 200, "{printed}");
    assert!(!running.service.logs().contains(&password));
}

#[tokio::test]
async fn passwords_are_set_and_reset_while_the_service_is_stopped() {
    let instance = Instance::new();
    instance.start().await.stop().await;
    let set = instance.run_with_input(&["set-password", "admin"], "typed by the operator\n").await.success();
    assert!(!format!("{set:?}").contains("typed"), "{set:?}");
    let mut running = instance.start().await;
    assert_eq!(running.sign_in("admin", "typed by the operator").await, 200);
    running.stop().await;

    let reset = instance.json(&["reset-password", "admin"]).await;
    assert_eq!(reset["account"], "admin");
    let mut running = instance.start().await;
    assert_eq!(running.sign_in("admin", "typed by the operator").await, 401);
    assert_eq!(running.sign_in("admin", reset["password"].as_str().unwrap()).await, 200);
    let error = instance.run(&["reset-password", "eve"]).await.failure();
    let create = error.trim().split("run: ").nth(1).unwrap();
    assert!(create.contains("ip-lookup --data-dir ") && create.ends_with(" account create eve"), "{error}");
    shell(create, "").await.success();
}

#[tokio::test]
async fn links_of_a_stopped_service_have_its_public_url_and_set_passwords() {
    let instance = Instance::new();
    let no_store = instance.run(&["invite", "ada"]).await.failure();
    assert!(no_store.contains("has no store"), "{no_store}");
    instance.start().await.stop().await;
    let invitation = instance.json(&["invite", "ada"]).await;
    let link = invitation["link"].as_str().unwrap();
    assert!(link.starts_with("http://localhost:8081/#set-password="), "{link}");
    let printed = instance.run(&["invite", "bob"]).await.success().stdout;
    assert!(printed.contains("within 7 days") && printed.contains("set --public-url"), "{printed}");
    let flags = ["--api-host", "ip.example", "--dashboard-host", "keys.example", "reset-password", "admin"];
    let reset = instance.json(&[&flags[..], &["--link"]].concat()).await;
    assert!(reset["link"].as_str().unwrap().starts_with("https://keys.example/#"), "{reset}");
    let given = ["reset-password", "admin", "--link", "--public-url", "https://other.example/"];
    let printed = instance.run(&given).await.success().stdout;
    assert!(
        printed.contains("https://other.example/#") && printed.contains("within 30 minutes"),
        "{printed}"
    );
    assert!(!printed.contains("set --public-url"), "{printed}");
    let without_link =
        instance.run(&["reset-password", "admin", "--public-url", "https://other.example"]).await;
    assert_eq!(without_link.status.code(), Some(2), "{without_link:?}");

    let mut running = instance.start().await;
    assert_eq!(running.set_password(&invitation["link"], "chosen by ada").await, 204);
    assert_eq!(running.set_password(&invitation["link"], "chosen by eve").await, 403);
    assert_eq!(running.sign_in("ada", "chosen by ada").await, 200);
    assert_eq!(running.set_password(&reset["link"], "chosen by admin").await, 204);
    assert_eq!(running.sign_in("admin", "chosen by admin").await, 200);
    let error = instance.run(&["invite", "ada", "--output=json"]).await.failure();
    assert_eq!(serde_json::from_str::<Value>(&error).unwrap()["error"], "account_exists");
}

#[tokio::test]
async fn export_imported_into_a_new_directory_has_the_same_keys() {
    let (old, new) = (Instance::new(), Instance::new());
    let running = old.start().await;
    let (_, key) = old.create_account_and_key("ada").await;
    let file = old.dir.path().join("backup.jsonl");
    old.run(&["export", "--to", file.to_str().unwrap()]).await.success();
    let export = old.run(&["export"]).await.success().stdout;
    running.stop().await;
    assert_eq!(old.run(&["export"]).await.success().stdout, export, "running and stopped");

    let report = new.json(&["import", file.to_str().unwrap()]).await;
    assert_eq!((&report["accounts_created"], &report["keys_created"]), (&2.into(), &2.into()), "{report}");
    let mut running = new.start().await;
    assert!(!running.banner.contains("First start"), "{}", running.banner);
    assert_eq!(running.lookup(&key).await, 200);
    let report = new.run_with_input(&["import", "-", "--output", "json"], &export).await.json();
    assert_eq!((&report["accounts_created"], &report["keys_kept"]), (&0.into(), &2.into()), "{report}");
}

#[tokio::test]
async fn command_without_a_store_fails_and_creates_nothing() {
    let instance = Instance::new();
    for args in [&["key", "list"][..], &["account", "create", "ada"], &["reset-password", "admin"]] {
        let error = instance.run(args).await.failure();
        assert!(error.contains("has no store") && error.contains("--data-dir"), "{error}");
    }
    assert!(!instance.data().exists());
}

#[tokio::test]
async fn token_is_not_sent_to_another_listener_on_the_quota_port() {
    let instance = Instance::new();
    instance.start().await.stop().await;
    let listener = instance.quota.listen();
    let mut received = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    });
    let mut command = Command::new(binary("ip-lookup"));
    command.args(["key", "list"]).args(instance.common_flags());
    let quota = instance.quota.addr().to_string();
    // Without the variable, the command would not know the port at all.
    let listed = output_with_env(command, &[("IP_LOOKUP_QUOTA_LISTEN", &quota)], "").await.success();
    assert!(listed.stdout.contains("first key"), "{listed:?}");
    assert!(!received.is_finished(), "{}", (&mut received).await.unwrap());
    received.abort();
}

#[tokio::test]
async fn socket_of_a_killed_service_is_replaced() {
    let instance = Instance::new();
    let mut killed = instance.start().await;
    killed.service.kill();
    assert!(instance.data().join("commands.sock").exists());
    let (id, _) = instance.create_account_and_key("ada").await;
    let _running = instance.start().await;
    assert_eq!(instance.json(&["key", "deactivate", &id]).await["state"], "inactive");
}

#[tokio::test]
async fn service_with_too_long_socket_path_runs_and_its_commands_fail_with_the_reason() {
    let instance = Instance { name: "d".repeat(100), ..Instance::new() };
    let running = instance.start().await;
    let logs = running.service.logs();
    assert!(logs.contains("can't create the socket for commands"), "{logs}");
    let error = instance.run(&["key", "list"]).await.failure();
    assert!(error.contains("commands.sock") && error.contains("in use by another process"), "{error}");
    running.stop().await;
    assert_eq!(instance.logins().await, ["admin"]);
    assert_eq!(instance.json(&["account", "show", "admin"]).await["role"], "admin");
}

#[tokio::test]
async fn commands_work_on_redis_with_and_without_the_service() {
    let (mut redis, mut instance) = (Redis::start().await, Instance::new());
    instance.flags = vec!["--redis-url".to_owned(), redis.url()];
    assert_eq!(instance.logins().await, [""; 0], "before the first start");
    let (id, _) = instance.create_account_and_key("ada").await;
    let running = instance.start().await;
    assert_eq!(instance.json(&["key", "deactivate", &id]).await["state"], "inactive");
    running.stop().await;
    assert_eq!(instance.json(&["key", "show", &id]).await["state"], "inactive");
    assert!(!instance.data().join("store.redb").exists());
    redis.stop();
    let error = instance.run(&["key", "list"]).await.failure();
    assert!(error.contains("can't access the store") && error.contains("--redis-url"), "{error}");
}

/// Waits until the service that printed this banner uses a database.
async fn wait_for_geo(banner: &str, database: &str) {
    let metrics = banner.lines().find_map(|line| line.trim().strip_prefix("Metrics")).unwrap();
    let readiness = metrics.trim().replace("/metrics", "/readyz");
    testkit::wait::eventually_ok(WAIT_TIMEOUT, format!("{database} is in use"), async || {
        let report = http::client().get(&readiness).send().await.unwrap().text().await.unwrap();
        if report.contains(database) { Ok(()) } else { Err(report) }
    })
    .await;
}

#[tokio::test]
async fn geo_update_flag_downloads_databases() {
    let mut instance = Instance::new();
    let provider = http::serve(testkit::mmdb::sample::build()).await;
    let flags = ["--geo-check-interval", "50ms", "--geo-update", &format!("{provider}/city.mmdb")];
    let missing = instance.data().join("new/geo");
    for directory in [&[][..], &["--geo-db", missing.to_str().unwrap()]] {
        instance.flags = flags.iter().chain(directory).map(|flag| (*flag).to_owned()).collect();
        let running = instance.start().await;
        wait_for_geo(&running.banner, "city.mmdb").await;
        running.stop().await;
    }
    assert!(missing.join("city.mmdb").is_file() && instance.data().join("geo/city.mmdb").is_file());
}

#[tokio::test]
async fn downloaded_databases_are_used_without_a_flag() {
    let mut instance = Instance::new();
    let provider = http::serve(testkit::mmdb::sample::build()).await;
    let update = ["geo-update", "dbip-lite", "--provider-url", &provider];
    instance.flags = vec!["--geo-check-interval".to_owned(), "50ms".to_owned()];
    let running = instance.start().await;
    instance.flags.clear();
    assert!(running.banner.contains("countries only"), "{}", running.banner);
    // The service finds the directory that the command creates.
    instance.run(&update).await.success();
    wait_for_geo(&running.banner, "dbip-city-lite.mmdb").await;
    running.stop().await;
    let printed = instance.run(&["lookup", "216.160.83.7"]).await.success().stdout;
    let body: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert!(printed.ends_with("}\n") && body["city"].is_string() && body["rtt"].is_null(), "{printed}");
    let running = instance.start().await;
    let geo = running.banner.lines().find(|line| line.contains("Geo data")).unwrap().to_owned();
    assert!(geo.contains("dbip-city-lite.mmdb"), "{geo}");
    running.stop().await;

    let sample = testkit::mmdb::sample::file();
    instance.flags = vec!["--geo-db".to_owned(), sample.path().to_str().unwrap().to_owned()];
    let running = instance.start().await;
    let name = sample.path().file_name().and_then(|name| name.to_str()).unwrap();
    let geo = running.banner.lines().find(|line| line.contains("Geo data")).unwrap();
    assert!(
        geo.contains(name) && geo.matches(".mmdb").count() == 1,
        "--geo-db replaces the directory: {geo}"
    );
}

#[tokio::test]
async fn errors_are_json_with_json_output() {
    let instance = Instance::new();
    let no_store = instance.run(&["key", "list", "--output", "json"]).await.failure();
    assert_eq!(serde_json::from_str::<Value>(&no_store).unwrap()["error"], "failed");
    instance.start().await.stop().await;
    let missing = ["key", "show", &"0".repeat(32), "--output", "json"];
    let error: Value = serde_json::from_str(&instance.run(&missing).await.failure()).unwrap();
    assert_eq!(error["error"], "key_not_found", "{error}");
    assert!(error["message"].as_str().unwrap().contains("ip-lookup --data-dir"), "{error}");
    let error = instance.run(&["reset-password", "eve", "--output=json"]).await.failure();
    assert_eq!(serde_json::from_str::<Value>(&error).unwrap()["error"], "account_not_found");
    for (key, code) in [("xyz", "invalid_id"), ("ipl_abc", "invalid_id"), ("ffff", "key_not_found")] {
        let error = instance.run(&["key", "show", key, "--output", "json"]).await.failure();
        assert_eq!(serde_json::from_str::<Value>(&error).unwrap()["error"], code, "{error}");
    }
}

#[tokio::test]
async fn directory_token_and_socket_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let (instance, backup) = (Instance::new(), tempfile::NamedTempFile::new().unwrap());
    instance.run(&["import", backup.path().to_str().unwrap()]).await.success();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&instance.data()), 0o700);
    assert_eq!(mode(&instance.data().join("quota-token")), 0o600);
    let _running = instance.start().await;
    assert_eq!(mode(&instance.data().join("commands.sock")), 0o600);
}
