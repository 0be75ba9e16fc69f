//! Creates the volumes of a pod as local directories below a temporary root.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Chart, list, name, text};

/// The mounts of one container, and the mapping from container paths to local paths.
#[derive(Debug, Clone)]
pub struct Mounts {
    root: PathBuf,
    paths: Vec<String>,
}

impl Mounts {
    /// Writes, below `root`, the files of every volume that `container` mounts. The containers of a pod share `root`.
    ///
    /// # Panics
    /// If a volume is missing from the pod or the chart.
    #[must_use]
    pub fn create(root: &Path, chart: &Chart, pod: &Value, container: &Value) -> Self {
        let mut paths = Vec::new();
        for mount in list(&container["volumeMounts"]) {
            let path = text(&mount["mountPath"]).to_owned();
            let dir = root.join(path.trim_start_matches('/'));
            fs::create_dir_all(&dir).expect("temporary directory is writable");
            for (file, content) in volume_files(chart, pod, text(&mount["name"])) {
                fs::write(dir.join(file), content).expect("temporary directory is writable");
            }
            paths.push(path);
        }
        Self { root: root.to_owned(), paths }
    }

    /// Replaces the container paths in an argument with local paths.
    ///
    /// # Panics
    /// If the value of a flag is an absolute path outside all mounts.
    #[must_use]
    pub fn to_local(&self, argument: &str) -> String {
        let value = argument.split_once('=').map_or("", |(_, value)| value);
        let mounted = |path: &String| {
            value.strip_prefix(path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        assert!(!value.starts_with('/') || self.paths.iter().any(mounted), "{argument} is not in a volume");
        self.rewrite(argument)
    }

    /// Replaces every mount path in a text with its local path.
    #[must_use]
    pub fn rewrite(&self, text: &str) -> String {
        let root = self.root.to_str().expect("UTF-8 path");
        self.paths
            .iter()
            .fold(text.to_owned(), |text, path| text.replace(path.as_str(), &format!("{root}{path}")))
    }

    /// Rewrites the paths in the files below `mount`, then applies `change` to each file.
    pub fn rewrite_files(&self, mount: &str, change: impl Fn(String) -> String) {
        let dir = self.root.join(mount.trim_start_matches('/'));
        for file in fs::read_dir(dir).expect("mounted directory") {
            let file = file.expect("readable directory").path();
            let content = fs::read_to_string(&file).expect("text file");
            fs::write(&file, change(self.rewrite(&content))).expect("temporary directory is writable");
        }
    }
}

/// The files of a volume by name; empty for a writable directory.
fn volume_files(chart: &Chart, pod: &Value, volume: &str) -> BTreeMap<String, Vec<u8>> {
    let is_claim = list(&pod["volumeClaims"]).any(|claim| name(claim) == volume);
    let Some(found) = list(&pod["spec"]["volumes"]).find(|candidate| candidate["name"] == volume) else {
        assert!(is_claim, "pod has no volume {volume}");
        return BTreeMap::new();
    };
    if let Some(secret) = found["secret"]["secretName"].as_str() {
        let object = chart.object("Secret", secret);
        select(&found["secret"]["items"], |key| decode(text(&object["data"][key])))
    } else if let Some(map) = found["configMap"]["name"].as_str() {
        let data = chart.object("ConfigMap", map)["data"].as_object().expect("ConfigMap with data");
        data.iter().map(|(file, content)| (file.clone(), text(content).into())).collect()
    } else {
        assert!(found["emptyDir"].is_object(), "unsupported volume {found}");
        BTreeMap::new()
    }
}

/// The files of a Secret volume: `items` maps keys of the Secret to file names.
fn select(items: &Value, content: impl Fn(&str) -> Vec<u8>) -> BTreeMap<String, Vec<u8>> {
    list(items).map(|item| (text(&item["path"]).to_owned(), content(text(&item["key"])))).collect()
}

/// Decodes the base64 data of a Secret.
fn decode(base64: &str) -> Vec<u8> {
    let bytes: k8s_openapi::ByteString = serde_json::from_value(base64.into()).expect("base64");
    bytes.0
}
