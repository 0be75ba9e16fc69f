//! The Helm chart, rendered by helm and parsed as JSON.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

pub use testkit::tools::project_root;
use testkit::tools::require_installed;

pub mod api_server;
pub mod pod;
pub mod release;
pub mod schemas;
pub mod typed;
pub mod volumes;

/// Release name under which the tests render the chart.
pub const RELEASE: &str = "ipl";
/// Namespace for which the tests render the chart.
pub const NAMESPACE: &str = "ip-lookup";

const TO_JSON: &str = "
import json, sys, yaml
loader = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)
json.dump([document for document in yaml.load_all(sys.stdin, loader) if document], sys.stdout)
";

/// The objects that the chart renders to.
#[derive(Debug, Clone)]
pub struct Chart {
    pub objects: Vec<Value>,
}

impl Chart {
    /// Renders the chart with helm arguments such as `["--set", "edge.profile=haproxy"]`.
    ///
    /// # Errors
    /// The output of helm, if it rejects the values.
    pub fn render(arguments: &[&str]) -> Result<Self, String> {
        Self::render_dir(&chart_dir(), arguments)
    }

    /// Like [`Chart::render`], for a modified copy of the chart in `dir`.
    ///
    /// # Errors
    /// The output of helm, if it rejects the values.
    pub fn render_dir(dir: &Path, arguments: &[&str]) -> Result<Self, String> {
        let chart = dir.to_str().expect("UTF-8 path");
        let yaml = helm(&[&["template", RELEASE, chart, "--namespace", NAMESPACE], arguments].concat())?;
        let json = yaml_to_json(&yaml);
        Ok(Self { objects: serde_json::from_str(&json).expect("JSON list") })
    }

    /// Renders the chart with one of `ci/*-values.yaml`.
    #[must_use]
    pub fn render_values_file(values: &Path) -> Self {
        let file = values.to_str().expect("UTF-8 path");
        Self::render(&["--values", file]).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    /// The only object of this kind whose name ends with `name_suffix`.
    ///
    /// # Panics
    /// If there is no such object, or more than one.
    #[must_use]
    pub fn object(&self, kind: &str, name_suffix: &str) -> &Value {
        let found: Vec<_> = self.of_kind(kind).filter(|object| name(object).ends_with(name_suffix)).collect();
        assert_eq!(found.len(), 1, "number of {kind} objects named …{name_suffix}, among {:?}", self.names());
        found[0]
    }

    /// All objects of this kind.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// The pod template of every workload, with the workload's name.
    pub fn pods(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.objects.iter().filter_map(|object| {
            let template = match object["kind"].as_str()? {
                "Deployment" | "StatefulSet" | "Job" => &object["spec"]["template"],
                "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"],
                _ => return None,
            };
            Some((name(object), template))
        })
    }

    /// `Kind/name` of every object, for assertion messages.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.objects.iter().map(|object| format!("{}/{}", text(&object["kind"]), name(object))).collect()
    }
}

/// Name of an object.
#[must_use]
pub fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

/// The text of a JSON string.
///
/// # Panics
/// If the value is not a string.
#[must_use]
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string"))
}

/// The elements of a JSON array; empty if the value is not an array.
pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The directory of the chart.
#[must_use]
pub fn chart_dir() -> PathBuf {
    project_root().join("helm/ip-lookup")
}

/// Copies the chart into `dir`, to change it there.
///
/// # Panics
/// If `cp` fails.
#[must_use]
pub fn copy_chart(dir: &Path) -> PathBuf {
    let copy = dir.join("ip-lookup");
    let status = Command::new("cp").arg("-r").arg(chart_dir()).arg(&copy).status().expect("cp starts");
    assert!(status.success(), "the chart could not be copied");
    copy
}

/// All `ci/*-values.yaml` files.
#[must_use]
pub fn ci_values() -> Vec<PathBuf> {
    let files = std::fs::read_dir(chart_dir().join("ci")).expect("chart has a ci directory");
    let mut files: Vec<_> = files.map(|file| file.expect("readable directory").path()).collect();
    files.sort();
    files
}

/// The path of a tool that `./test` installs into `.venv`. `None` means that the test must be skipped.
///
/// # Panics
/// If it is missing under `./test`.
#[must_use]
pub fn venv_tool(name: &str) -> Option<PathBuf> {
    require_installed(&format!(".venv/bin/{name}"))
}

/// Runs helm and returns its output.
///
/// # Errors
/// The output of helm, if it fails.
pub fn helm(arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new(project_root().join(".venv/bin/helm")).args(arguments).output().expect("helm starts");
    let to_text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(to_text(&output.stdout)),
        false => Err(to_text(&output.stdout) + &to_text(&output.stderr)),
    }
}

/// Runs `.venv/bin/python -c SCRIPT` with `input` on standard input and returns its output.
///
/// # Panics
/// If the script fails.
#[must_use]
pub fn python(script: &str, input: &str) -> String {
    let mut command = Command::new(project_root().join(".venv/bin/python"));
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("python starts");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("python exits");
    let _ = writer.join();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8 output")
}

/// Converts all documents in a YAML text to one JSON array, using YAML 1.1 like Kubernetes (`on` is a boolean).
#[must_use]
pub fn yaml_to_json(yaml: &str) -> String {
    python(TO_JSON, yaml)
}
