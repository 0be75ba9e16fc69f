//! A Docker engine of the test's own. It runs in its own network, mount and process namespaces and keeps its data in a
//! temporary directory, so that the machine's containers, firewall and mounts stay as they are.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;
use testkit::spawner::ChildGuard;
use testkit::tools::{STRICT, announce_skip, project_root, require_tool};
use testkit::wait::eventually_ok;

pub mod images;
pub mod pod;

/// Maximum time for the engine to start; an idle machine needs 2 s.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// After this time, a command of the test is ended.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs as process 1 of the namespaces, where it reaps the processes of ended containers. `/run` and `/opt` are
/// replaced because the engine writes there. Its data is in memory, if the first argument names the directory: removing
/// a thousand files from a busy disk would take longer than a test.
const INIT: &str = "
ip link set lo up
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /opt
[ -z \"$1\" ] || mount -t tmpfs tmpfs \"$1\"
shift
dockerd \"$@\" &
wait $!
";

/// A running engine. All of its containers are killed when it is dropped, or when the test process dies.
#[derive(Debug)]
pub struct Engine {
    namespaces: ChildGuard,
    // Last field: the processes are killed before their files are removed.
    dir: TempDir,
}

impl Engine {
    /// Starts an engine with its data in memory. `None` means that the test must return immediately, as with
    /// [`require_tool`].
    ///
    /// # Panics
    /// If the engine does not start, or if `./test` runs this test although it can't work.
    pub async fn start() -> Option<Self> {
        Self::start_with(true).await
    }

    /// Like [`Engine::start`], with its data on disk: for images of gigabytes.
    ///
    /// # Panics
    /// As [`Engine::start`].
    pub async fn start_on_disk() -> Option<Self> {
        Self::start_with(false).await
    }

    async fn start_with(data_in_memory: bool) -> Option<Self> {
        if !getuid().is_root() {
            assert!(env::var_os(STRICT).is_none(), "a container engine needs root");
            announce_skip("a container engine needs root");
            return None;
        }
        let is_complete = unpacked().is_some() || require_tool("dockerd") && require_tool("docker");
        if !is_complete || !["runc", "iptables", "unshare", "nsenter"].into_iter().all(require_tool) {
            return None;
        }
        let dir = tempfile::Builder::new().prefix("engine-").tempdir().expect("temporary directory");
        write_config(dir.path());
        let data = dir.path().join("data");
        fs::create_dir(&data).expect("temporary directory is writable");
        let namespaces = ChildGuard::spawn("unshare", |command| {
            command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
            command.args(["sh", "-euc", INIT, "init"]);
            command.arg(if data_in_memory { data.as_os_str() } else { "".as_ref() });
            command.args(daemon_flags(dir.path()));
            let log = fs::File::create(dir.path().join("log")).expect("temporary directory is writable");
            command.env("PATH", search_path()).stdin(Stdio::null());
            command.stdout(log.try_clone().expect("second file handle")).stderr(log);
        });
        let mut this = Self { namespaces, dir };
        eventually_ok(START_TIMEOUT, "the container engine starts", async || {
            assert!(this.namespaces.is_running(), "dockerd exited:\n{}", this.log());
            this.try_run("docker", &["version"]).map_err(|error| format!("{error}\n{}", this.log()))
        })
        .await;
        Some(this)
    }

    /// A command that uses this engine and its network. It is ended after two minutes.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        self.command_within(COMMAND_TIMEOUT, program)
    }

    /// Like [`Engine::command`], with another time limit.
    #[must_use]
    pub fn command_within(&self, limit: Duration, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.namespaces.pid()));
        command
            .args(["timeout", "--kill-after=5", &limit.as_secs().to_string(), program])
            .stdin(Stdio::null());
        // Without the variables of proxies, and those that compose would put into its file.
        command.env_clear().env("PATH", search_path()).env("HOME", self.dir.path());
        command.env("DOCKER_HOST", self.socket()).env("DOCKER_CONFIG", self.dir.path());
        command
    }

    /// Runs a docker command and returns its output.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn docker(&self, arguments: &[&str]) -> String {
        self.try_run("docker", arguments).unwrap_or_else(|error| panic!("docker {arguments:?}: {error}"))
    }

    /// Runs a program that uses this engine and returns its standard output.
    ///
    /// # Errors
    /// Its whole output, if it fails.
    pub fn try_run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        output_of(self.command(program).args(arguments))
    }

    /// Runs a shell script in `dir`, as a user of this engine would, and returns its standard output.
    ///
    /// # Errors
    /// Its whole output, if it fails.
    pub fn shell(&self, script: &str, dir: &Path, variables: &[(&str, &str)]) -> Result<String, String> {
        let mut command = self.command("bash");
        output_of(
            command.args(["-euo", "pipefail", "-c", script]).current_dir(dir).envs(variables.iter().copied()),
        )
    }

    /// Runs a program of this machine in the network of a container. The images themselves contain no tools.
    ///
    /// # Errors
    /// Its whole output, if it fails.
    pub fn run_in_network_of(&self, container: &str, arguments: &[&str]) -> Result<String, String> {
        let pid = self.pid_of(container);
        output_of(self.inside().args(["nsenter", "--target", &pid, "--net", "--"]).args(arguments))
    }

    /// The lines of `/proc/PID/status` of a container's main process.
    ///
    /// # Panics
    /// If the container is not running.
    #[must_use]
    pub fn process_status(&self, container: &str) -> String {
        let file = format!("/proc/{}/status", self.pid_of(container));
        output_of(self.inside().args(["cat", &file])).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The value of a field that `docker inspect` shows, such as `.State.OOMKilled`.
    #[must_use]
    pub fn inspect(&self, container: &str, field: &str) -> String {
        self.docker(&["inspect", "--format", &format!("{{{{{field}}}}}"), container]).trim().to_owned()
    }

    /// The logs of a container, or why there are none.
    #[must_use]
    pub fn logs(&self, container: &str) -> String {
        let output = self.command("docker").args(["logs", container]).output().expect("nsenter starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// A command in the process and mount namespaces of the engine, where its process IDs are valid.
    fn inside(&self) -> Command {
        let init = self.init().expect("the engine is running").as_raw_nonzero().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &init, "--mount", "--pid", "--", "timeout", "--kill-after=5", "60"]);
        command.stdin(Stdio::null());
        command
    }

    fn pid_of(&self, container: &str) -> String {
        self.inspect(container, ".State.Pid")
    }

    /// Process 1 of the namespaces: the only child of `unshare`.
    fn init(&self) -> Option<Pid> {
        let pid = self.namespaces.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
    }

    fn socket(&self) -> String {
        format!("unix://{}", self.dir.path().join("sock").display())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The kernel ends a process namespace before its process 1 can be reaped, and `unshare` exits after that. So
        // nothing writes to the directory any more when it is removed.
        if let Some(init) = self.init() {
            let _ = kill_process(init, Signal::KILL);
            let _ = self.namespaces.child().wait();
        }
        remove_cgroups(&cgroup(self.dir.path()));
    }
}

/// The engine that `./test` has unpacked, if the distribution has no suitable one.
fn unpacked() -> Option<PathBuf> {
    let dir = project_root().join(".engine/usr");
    dir.join("sbin/dockerd").is_file().then_some(dir)
}

fn search_path() -> String {
    let inherited = env::var("PATH").unwrap_or_default();
    let unpacked = unpacked().map_or(String::new(), |dir| format!("{0}/bin:{0}/sbin:", dir.display()));
    format!("{unpacked}{inherited}:/usr/sbin:/sbin")
}

/// The name of the control group below which the engine creates those of its containers.
fn cgroup(dir: &Path) -> String {
    dir.file_name().and_then(|name| name.to_str()).expect("UTF-8 name").to_owned()
}

fn daemon_flags(dir: &Path) -> Vec<String> {
    let path = |name: &str| dir.join(name).display().to_string();
    [
        ("config-file", path("daemon.json")),
        ("data-root", path("data")),
        ("exec-root", "/run/docker".to_owned()),
        ("pidfile", "/run/docker.pid".to_owned()),
        ("host", format!("unix://{}", path("sock"))),
        // The machine may have no systemd.
        ("exec-opt", "native.cgroupdriver=cgroupfs".to_owned()),
        ("cgroup-parent", format!("/{}", cgroup(dir))),
        ("default-ulimit", "nofile=4096:4096".to_owned()),
    ]
    .map(|(flag, value)| format!("--{flag}={value}"))
    .into()
}

/// Writes the configuration of daemon and client, which would otherwise be the machine's and the user's.
fn write_config(dir: &Path) {
    let home = env::var("HOME").unwrap_or_default();
    let mut plugins = vec![format!("{home}/.docker/cli-plugins")];
    plugins.extend(unpacked().map(|dir| format!("{}/libexec/docker/cli-plugins", dir.display())));
    let client = serde_json::json!({ "cliPluginsExtraDirs": plugins }).to_string();
    for (name, content) in [("config.json", client.as_str()), ("daemon.json", "{}")] {
        fs::write(dir.join(name), content).expect("temporary directory is writable");
    }
}

/// Removes the empty control groups that killed containers leave behind, in every hierarchy.
fn remove_cgroups(name: &str) {
    let root = Path::new("/sys/fs/cgroup");
    for hierarchy in directories(root).into_iter().chain([root.to_owned()]) {
        remove_group(&hierarchy.join(name));
    }
}

/// Removes a control group and those below it. The files in it can't be removed, and don't prevent it.
fn remove_group(group: &Path) {
    directories(group).iter().for_each(|below| remove_group(below));
    let _ = fs::remove_dir(group);
}

fn directories(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    entries.filter(|path| path.is_dir() && !path.is_symlink()).collect()
}

pub(crate) fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let to_text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(to_text(&output.stdout)),
        false => Err(format!("{}\n{}{}", output.status, to_text(&output.stdout), to_text(&output.stderr))),
    }
}
