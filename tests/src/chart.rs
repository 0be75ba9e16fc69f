//! The Helm chart, rendered by helm itself and read as JSON.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::tools::{STRICT, announce_skip};

pub mod api_server;
pub mod files;
pub mod pod;
pub mod release;
pub mod schemas;
pub mod typed;

/// The release's name and namespace in every test.
pub const RELEASE: &str = "ipl";
/// Where it is installed.
pub const NAMESPACE: &str = "ip-lookup";

const TO_JSON: &str = "
import json, sys, yaml
loader = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)
json.dump([document for document in yaml.load_all(sys.stdin, loader) if document], sys.stdout)
";

/// The objects of one rendering.
#[derive(Debug, Clone)]
pub struct Chart {
    /// As Kubernetes would get them.
    pub objects: Vec<Value>,
}

impl Chart {
    /// Renders with helm's arguments, such as `["--set", "edge.profile=haproxy"]`.
    ///
    /// # Errors
    /// What helm says about values it refuses.
    ///
    /// # Panics
    /// When helm can't be started.
    pub fn render(arguments: &[&str]) -> Result<Self, String> {
        Self::render_folder(&folder(), arguments)
    }

    /// The same for a changed copy of the chart.
    ///
    /// # Errors
    /// What helm says about values it refuses.
    ///
    /// # Panics
    /// When helm can't be started.
    pub fn render_folder(folder: &Path, arguments: &[&str]) -> Result<Self, String> {
        let chart = folder.to_str().expect("a readable path");
        let yaml = helm(&[&["template", RELEASE, chart, "--namespace", NAMESPACE], arguments].concat())?;
        let json = yaml_to_json(&yaml);
        Ok(Self { objects: serde_json::from_str(&json).expect("the converter writes a list") })
    }

    /// Renders one of `ci/*-values.yaml`.
    ///
    /// # Panics
    /// When helm refuses it.
    #[must_use]
    pub fn of_file(values: &Path) -> Self {
        let file = values.to_str().expect("a readable path");
        Self::render(&["--values", file]).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    /// The one object of this kind whose name ends so.
    ///
    /// # Panics
    /// When there is none, or more.
    #[must_use]
    pub fn object(&self, kind: &str, name_end: &str) -> &Value {
        let found: Vec<_> = self.of_kind(kind).filter(|object| name(object).ends_with(name_end)).collect();
        assert_eq!(found.len(), 1, "{kind} …{name_end} among {:?}", self.names());
        found[0]
    }

    /// All objects of a kind.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// `Kind/name` of every object, for messages.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.objects.iter().map(|object| format!("{}/{}", text(&object["kind"]), name(object))).collect()
    }
}

/// An object's name.
///
/// # Panics
/// When it has none.
#[must_use]
pub fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

/// A value that must be a string.
///
/// # Panics
/// When it is none.
#[must_use]
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string"))
}

/// The elements of a list; none where it is absent.
pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The root of the project.
///
/// # Panics
/// Never: this crate lies in it.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is a folder of the project").to_owned()
}

/// The chart's folder.
#[must_use]
pub fn folder() -> PathBuf {
    root().join("helm/ip-lookup")
}

/// Every `ci/*-values.yaml`.
///
/// # Panics
/// When there is no such folder.
#[must_use]
pub fn ci_values() -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder().join("ci")).expect("the chart has a ci folder");
    let mut files: Vec<_> = files.map(|file| file.expect("a readable folder").path()).collect();
    files.sort();
    files
}

/// A tool that `./test` installs into `.venv`; `None` means skipped, loudly.
///
/// # Panics
/// When it is missing under `./test`.
#[must_use]
pub fn venv_tool(name: &str) -> Option<PathBuf> {
    let tool = root().join(".venv/bin").join(name);
    if tool.is_file() {
        return Some(tool);
    }
    assert!(std::env::var_os(STRICT).is_none(), "{name} is missing, and under ./test nothing may be");
    announce_skip(&format!("{name} is missing (./test installs it)"));
    None
}

/// Runs helm and gives its output.
///
/// # Errors
/// What it prints when it fails.
///
/// # Panics
/// When it can't be started.
pub fn helm(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(root().join(".venv/bin/helm")).args(arguments).output().expect("helm starts");
    let printed = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(printed(&output.stdout)),
        false => Err(printed(&output.stdout) + &printed(&output.stderr)),
    }
}

/// Runs `.venv/bin/python -c SCRIPT` with this standard input.
///
/// # Panics
/// When it can't be started or fails.
#[must_use]
pub fn python(script: &str, input: &str) -> String {
    let mut command = Command::new(root().join(".venv/bin/python"));
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("python starts");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("python ends");
    let _ = writer.join();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Every document of a YAML text as one JSON list, read as Kubernetes reads it (YAML 1.1: `on` is a boolean).
#[must_use]
pub fn yaml_to_json(yaml: &str) -> String {
    python(TO_JSON, yaml)
}
