//! Runs the containers of the chart's pods in a container engine, with the image, arguments, environment, files, user,
//! security context and memory limit that the chart sets.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::Engine;
use crate::chart::pod::environment;
use crate::chart::volumes::Mounts;
use crate::chart::{Chart, list, text};

/// The group that owns the files of volumes (`fsGroup` in the chart).
const GROUP: u32 = 65532;

/// The files of a pod's volumes, below a temporary directory that its containers share.
#[derive(Debug)]
pub struct Pod<'a> {
    engine: &'a Engine,
    chart: &'a Chart,
    template: Value,
    name: String,
    files: TempDir,
}

impl<'a> Pod<'a> {
    /// A pod of a Deployment or StatefulSet. Its containers are named after it.
    ///
    /// # Panics
    /// If no directory can be created.
    #[must_use]
    pub fn new(engine: &'a Engine, chart: &'a Chart, workload: &Value, name: &str) -> Self {
        let files = tempfile::Builder::new().prefix("volumes-").tempdir().expect("temporary directory");
        fs::set_permissions(files.path(), fs::Permissions::from_mode(0o755)).expect("own directory");
        let mut template = workload["spec"]["template"].clone();
        template["volumeClaims"] = workload["spec"]["volumeClaimTemplates"].clone();
        Self { engine, chart, template, name: name.to_owned(), files }
    }

    /// Starts a container of the pod with extra flags: `--network=container:NAME` shares the network of another
    /// container, as in a pod. Returns its name.
    ///
    /// # Panics
    /// If the pod has no such container, or it can't be started.
    pub fn start(&self, container: &str, flags: &[&str]) -> String {
        let spec = &self.template["spec"];
        let mut containers = list(&spec["initContainers"]).chain(list(&spec["containers"]));
        let found = containers.find(|candidate| candidate["name"] == container);
        let found = found.unwrap_or_else(|| panic!("{} has no container {container}", self.name));
        let name = format!("{}-{container}", self.name);
        let mut words = ["run", "--detach", "--pull=never", "--name", &name].map(str::to_owned).to_vec();
        words.extend(flags.iter().map(|flag| (*flag).to_owned()));
        words.extend(security_flags(found));
        words.push(format!("--memory={}", bytes(&found["resources"]["limits"]["memory"])));
        for (variable, value) in environment(self.chart, &self.template, found) {
            words.push(format!("--env={variable}={value}"));
        }
        words.extend(self.volumes(found));
        let mut program =
            list(&found["command"]).chain(list(&found["args"])).map(|word| text(word).to_owned());
        if found["command"].is_array() {
            words.push(format!("--entrypoint={}", program.next().expect("a program")));
        }
        words.push(text(&found["image"]).to_owned());
        words.extend(program);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let _id = self.engine.docker(&words);
        name
    }

    /// The content of a file in a volume, such as `/run/secrets/quota/token`.
    ///
    /// # Panics
    /// If no container has been started that mounts it.
    #[must_use]
    pub fn read(&self, path: &str) -> String {
        let file = self.files.path().join(path.trim_start_matches('/'));
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The flags that mount the container's volumes, whose files belong to the pod's group.
    fn volumes(&self, container: &Value) -> Vec<String> {
        let _created = Mounts::create(self.files.path(), self.chart, &self.template, container);
        let mounts = list(&container["volumeMounts"]).map(|mount| {
            let path = text(&mount["mountPath"]);
            let dir = self.files.path().join(path.trim_start_matches('/'));
            give_to_group(&dir);
            let mode = if mount["readOnly"] == true { "ro" } else { "rw" };
            format!("--volume={}:{path}:{mode}", dir.display())
        });
        mounts.collect()
    }
}

/// The flags for a container's security context. Fields without a counterpart are asserted, so that a change in the chart
/// is noticed.
fn security_flags(container: &Value) -> Vec<String> {
    let context = &container["securityContext"];
    let number = |field: &str| context[field].as_u64().unwrap_or_else(|| panic!("no {field}: {context}"));
    assert_eq!(context["readOnlyRootFilesystem"], true);
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert_eq!(context["capabilities"], serde_json::json!({"drop": ["ALL"]}));
    assert_eq!(
        context["seccompProfile"]["type"], "RuntimeDefault",
        "the engine applies its profile by default"
    );
    vec![
        format!("--user={}:{}", number("runAsUser"), number("runAsGroup")),
        "--read-only".to_owned(),
        "--cap-drop=ALL".to_owned(),
        "--security-opt=no-new-privileges".to_owned(),
    ]
}

/// A quantity of memory, such as `512Mi`, in the engine's notation.
fn bytes(quantity: &Value) -> String {
    let quantity = text(quantity);
    let number = quantity.trim_end_matches("Mi").trim_end_matches("Gi");
    assert!(number.bytes().all(|digit| digit.is_ascii_digit()) && number != quantity, "memory {quantity}");
    quantity.replace("Mi", "m").replace("Gi", "g")
}

fn give_to_group(dir: &Path) {
    let set = |path: &Path, mode: u32| {
        chown(path, None, Some(GROUP)).expect("root can change owners");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("own file");
    };
    set(dir, 0o770);
    for file in fs::read_dir(dir).expect("own directory").map(|file| file.expect("own directory").path()) {
        if file.is_file() {
            set(&file, 0o440);
        }
    }
}
