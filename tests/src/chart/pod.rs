//! Runs the chart's pods as real processes: same flags, environment and files, but local ports and directories. This is
//! for what needs several pods, probes or the order of a shutdown; `containers.rs` shows users, capabilities, memory limits
//! and read-only file systems in real containers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use std::{fs, process::Command};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::volumes::Mounts;
use super::{Chart, list, text};
use testkit::http;
use testkit::ports::ReservedPort;
use testkit::process::binary;
use testkit::spawner::ChildGuard;
use testkit::tools::require_valkey;
use testkit::wait::eventually_ok;

/// Maximum time for a container to become ready on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// The local address for the in-cluster address (`NAME:PORT`) of each Service.
pub type Services = BTreeMap<String, String>;

/// A running pod; its containers are killed when it is dropped.
#[derive(Debug)]
pub struct Pod {
    ports: BTreeMap<u16, ReservedPort>,
    containers: Vec<Container>,
    // Last field: the processes are killed before their files are removed.
    root: TempDir,
}

/// A running container.
#[derive(Debug)]
struct Container {
    spec: Value,
    mounts: Mounts,
    process: ChildGuard,
    log: PathBuf,
}

impl Pod {
    /// Starts one pod of a workload (`Deployment`, `StatefulSet`, `Job`). The containers start in kubelet's
    /// order: init containers and native sidecars one by one, then the main containers. Waits until all probes pass.
    ///
    /// # Panics
    /// If a container exits or does not become ready. The message includes its log.
    pub async fn start(chart: &Chart, workload: &Value, services: &Services) -> Self {
        let pod = template(workload);
        let root = tempfile::Builder::new().prefix("pod-").tempdir().expect("temporary directory");
        let mut this = Self { ports: BTreeMap::new(), containers: Vec::new(), root };
        for port in [8080, 8081, 8082, 8090, 8091, 9080, 9081, 9082, 6379] {
            this.ports.insert(port, ReservedPort::new());
        }
        for spec in list(&pod["spec"]["initContainers"]) {
            let mut container = this.spawn(chart, &pod, spec, services);
            if spec["restartPolicy"] == "Always" {
                this.wait_for_probe(&mut container, "startupProbe").await;
                this.containers.push(container);
            } else {
                let status = container.wait_exit(READY_TIMEOUT).await;
                assert!(status.success(), "{} exited with {status}:\n{}", name_of(spec), container.log());
            }
        }
        for spec in list(&pod["spec"]["containers"]) {
            let container = this.spawn(chart, &pod, spec, services);
            this.containers.push(container);
        }
        this.wait_ready().await;
        this
    }

    /// Runs a pod with one container to completion and returns its exit status and log.
    pub async fn run(chart: &Chart, pod: &Value, services: &Services) -> (ExitStatus, String) {
        let root = tempfile::Builder::new().prefix("pod-").tempdir().expect("temporary directory");
        let this = Self { ports: BTreeMap::new(), containers: Vec::new(), root };
        let mut container = this.spawn(chart, pod, &pod["spec"]["containers"][0], services);
        let status = container.wait_exit(READY_TIMEOUT).await;
        (status, container.log())
    }

    /// Local address of a port of the pod.
    ///
    /// # Panics
    /// If the chart does not use this port.
    #[must_use]
    pub fn addr(&self, port: u16) -> String {
        self.ports[&port].addr().to_string()
    }

    /// The local path of a file in a volume, such as `/run/secrets/quota/token`.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// Log of a container.
    #[must_use]
    pub fn log(&self, container: &str) -> String {
        self.container(container).log()
    }

    /// Stops the pod like kubelet: SIGTERM to the main containers and, once they have exited, to the native sidecars.
    ///
    /// # Panics
    /// If a container does not exit within `grace`, or exits with an error.
    pub async fn stop(&mut self, grace: Duration) {
        let is_sidecar = |container: &Container| container.spec["restartPolicy"] == "Always";
        let (mut sidecars, mut mains): (Vec<_>, Vec<_>) = self.containers.drain(..).partition(is_sidecar);
        for group in [&mut mains, &mut sidecars] {
            group.iter().for_each(|container| container.process.signal(Signal::TERM));
            for container in group {
                let status = container.wait_exit(grace).await;
                assert!(
                    status.success(),
                    "{} exited with {status}:\n{}",
                    name_of(&container.spec),
                    container.log()
                );
            }
        }
    }

    /// Runs a probe of a container once. The error is its output.
    ///
    /// # Panics
    /// If there is no such container.
    pub async fn probe(&self, container: &str, probe: &str) -> Result<(), String> {
        let container = self.container(container);
        self.try_probe(&container.spec, &container.mounts, &container.spec[probe]).await
    }

    /// Sends a signal to a container.
    ///
    /// # Panics
    /// If there is no such container.
    pub fn signal(&self, container: &str, signal: Signal) {
        self.container(container).process.signal(signal);
    }

    fn container(&self, name: &str) -> &Container {
        let found = self.containers.iter().find(|container| name_of(&container.spec) == name);
        found.unwrap_or_else(|| panic!("the pod has no container {name}"))
    }

    async fn wait_ready(&mut self) {
        let mut containers = std::mem::take(&mut self.containers);
        for container in &mut containers {
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                self.wait_for_probe(container, probe).await;
            }
        }
        self.containers = containers;
    }

    /// Waits until a probe of the container passes. Returns immediately if it has no such probe.
    async fn wait_for_probe(&self, container: &mut Container, probe: &str) {
        let (spec, mounts) = (container.spec.clone(), container.mounts.clone());
        let check = &spec[probe];
        if check.is_null() {
            return;
        }
        let what = format!("{probe} of {} passes", name_of(&spec));
        eventually_ok(READY_TIMEOUT, &what, async || {
            assert!(container.process.is_running(), "{} exited:\n{}", name_of(&spec), container.log());
            self.try_probe(&spec, &mounts, check).await
        })
        .await;
    }

    async fn try_probe(&self, spec: &Value, mounts: &Mounts, check: &Value) -> Result<(), String> {
        if let Some(path) = check["httpGet"]["path"].as_str() {
            let addr = self.addr(port_number(spec, &check["httpGet"]["port"]));
            let response =
                http::client().get(format!("http://{addr}{path}")).send().await.map_err(|e| e.to_string())?;
            let status = response.status();
            return if status.is_success() { Ok(()) } else { Err(response.text().await.unwrap_or_default()) };
        }
        let words: Vec<_> = list(&check["exec"]["command"]).map(|word| mounts.rewrite(text(word))).collect();
        assert!(!words.is_empty(), "unknown kind of probe: {check}");
        let output = Command::new(&words[0]).args(&words[1..]).env("PATH", self.search_path()).output();
        let output = output.map_err(|error| error.to_string())?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(()) } else { Err(stdout) }
    }

    fn spawn(&self, chart: &Chart, pod: &Value, spec: &Value, services: &Services) -> Container {
        let mounts = Mounts::create(self.root.path(), chart, pod, spec);
        if name_of(spec) == "valkey" {
            self.use_valkey(&mounts);
        }
        let program = program(spec, &mounts);
        let localize = |word: &Value| self.localize(&mounts.to_local(text(word)), services);
        let arguments: Vec<_> = list(&spec["args"]).map(localize).collect();
        let log = self.root.path().join(format!("{}.log", name_of(spec)));
        let output = fs::File::options().create(true).append(true).open(&log).expect("log file");
        let process = ChildGuard::spawn(&program[0], |command| {
            command.args(&program[1..]).args(&arguments).env_clear().env("PATH", self.search_path());
            let environment = environment(chart, pod, spec);
            command.envs(environment.iter().map(|(name, value)| (name, mounts.rewrite(value))));
            command.stdin(Stdio::null());
            command.stdout(output.try_clone().expect("second file handle")).stderr(output);
        });
        Container { spec: spec.clone(), mounts, process, log }
    }

    /// Replaces in-cluster addresses in a text with local ones.
    fn localize(&self, text: &str, services: &Services) -> String {
        let mut text = text.to_owned();
        for (service, addr) in services {
            text = text.replace(service.as_str(), addr);
        }
        for (port, reserved) in &self.ports {
            for host in ["[::]", "127.0.0.1"] {
                text = text.replace(&format!("{host}:{port}"), &reserved.addr().to_string());
            }
        }
        text
    }

    /// Makes Valkey's commands available: the server from PyPI, and redis-cli. Puts the local port and paths into Valkey's
    /// configuration files.
    fn use_valkey(&self, mounts: &Mounts) {
        let bin_dir = self.root.path().join("bin");
        fs::create_dir_all(&bin_dir).expect("temporary directory is writable");
        let server = require_valkey().expect("the test has checked that Valkey is installed");
        for (name, program) in [("valkey-server", server.as_path()), ("valkey-cli", Path::new("redis-cli"))] {
            let script = format!("#!/bin/sh\nexec {} \"$@\"\n", program.display());
            write_script(&bin_dir.join(name), &script);
        }
        let port = self.ports[&6379].number().to_string();
        mounts.rewrite_files("/etc/valkey", |content| content.replace("6379", &port));
    }

    /// The value of `PATH`: the commands of [`Pod::use_valkey`] come first.
    fn search_path(&self) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        format!("{}:{path}", self.root.path().join("bin").display())
    }
}

impl Container {
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    async fn wait_exit(&mut self, timeout: Duration) -> ExitStatus {
        let (what, log) = (format!("{} exits", name_of(&self.spec)), self.log.clone());
        let child = self.process.child();
        eventually_ok(timeout, what, async || {
            let status = child.try_wait().expect("can wait for a child process");
            status.ok_or_else(|| fs::read_to_string(&log).unwrap_or_default())
        })
        .await
    }
}

/// The pod template of a workload. The volume claims of a StatefulSet are added as `volumeClaims`.
fn template(workload: &Value) -> Value {
    let mut pod = workload["spec"]["template"].clone();
    pod["volumeClaims"] = workload["spec"]["volumeClaimTemplates"].clone();
    pod
}

fn name_of(container: &Value) -> &str {
    text(&container["name"])
}

fn port_number(container: &Value, port: &Value) -> u16 {
    let named = list(&container["ports"]).find(|candidate| candidate["name"] == *port);
    let number = named.map_or(port, |found| &found["containerPort"]).as_u64();
    let number = number.unwrap_or_else(|| panic!("{} has no port {port}", name_of(container)));
    u16::try_from(number).expect("valid port")
}

/// The program of the container: its command or, if it has none, this workspace's binary with the name of its image.
fn program(spec: &Value, mounts: &Mounts) -> Vec<String> {
    if spec["command"].is_array() {
        return list(&spec["command"]).map(|word| mounts.rewrite(text(word))).collect();
    }
    let image = text(&spec["image"]);
    let name = image.rsplit('/').next().and_then(|last| last.split([':', '@']).next());
    vec![binary(name.expect("image has a name")).to_str().expect("UTF-8 path").to_owned()]
}

/// The environment of the container, from ConfigMaps, literal values and pod fields.
#[must_use]
pub fn environment(chart: &Chart, pod: &Value, spec: &Value) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for source in list(&spec["envFrom"]) {
        let map = chart.object("ConfigMap", text(&source["configMapRef"]["name"]));
        for (variable, value) in map["data"].as_object().expect("ConfigMap with data") {
            variables.insert(variable.clone(), text(value).to_owned());
        }
    }
    for variable in list(&spec["env"]) {
        let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            // A missing label results in an empty variable.
            Some(path) => {
                let label = path.trim_start_matches("metadata.labels['").trim_end_matches("']");
                pod["metadata"]["labels"][label].as_str().unwrap_or_default().to_owned()
            }
            None => text(&variable["value"]).to_owned(),
        };
        variables.insert(text(&variable["name"]).to_owned(), value);
    }
    variables
}

fn write_script(file: &Path, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(file, script).expect("temporary directory is writable");
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("can change permissions");
}
