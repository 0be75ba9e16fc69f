//! The volumes of a pod as folders: what kubelet would mount, below a temporary root.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Chart, list, name, text};

/// The mounts of one container, and how paths inside it are found outside.
#[derive(Debug, Clone)]
pub struct Mounts {
    root: PathBuf,
    paths: Vec<String>,
}

impl Mounts {
    /// Writes the files of every volume that `container` mounts below `root`; volumes of a pod are shared.
    ///
    /// # Panics
    /// When it mounts what the pod or the chart does not have.
    #[must_use]
    pub fn create(root: &Path, chart: &Chart, pod: &Value, container: &Value) -> Self {
        let mut paths = Vec::new();
        for mount in list(&container["volumeMounts"]) {
            let path = text(&mount["mountPath"]).to_owned();
            let folder = root.join(path.trim_start_matches('/'));
            fs::create_dir_all(&folder).expect("the temporary folder can be written");
            for (file, content) in volume_files(chart, pod, text(&mount["name"])) {
                fs::write(folder.join(file), content).expect("the temporary folder can be written");
            }
            paths.push(path);
        }
        Self { root: root.to_owned(), paths }
    }

    /// A text of the container (an argument, a script) with its paths as they are outside.
    ///
    /// # Panics
    /// When it names an absolute path as a flag's value that is in no mount.
    #[must_use]
    pub fn outside(&self, inside: &str) -> String {
        let value = inside.split_once('=').map_or("", |(_, value)| value);
        let mounted = |path: &String| {
            value.strip_prefix(path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        assert!(!value.starts_with('/') || self.paths.iter().any(mounted), "{inside} is in no volume");
        self.rewrite(inside)
    }

    /// Every mount path in a text, as it is outside.
    #[must_use]
    pub fn rewrite(&self, inside: &str) -> String {
        let root = self.root.to_str().expect("a readable path");
        self.paths
            .iter()
            .fold(inside.to_owned(), |text, path| text.replace(path.as_str(), &format!("{root}{path}")))
    }

    /// Rewrites the scripts and settings that were mounted, as their paths must fit too; `change` does the rest.
    ///
    /// # Panics
    /// When they can't be read or written.
    pub fn rewrite_files(&self, mount: &str, change: impl Fn(String) -> String) {
        let folder = self.root.join(mount.trim_start_matches('/'));
        for file in fs::read_dir(folder).expect("a mounted folder") {
            let file = file.expect("a readable folder").path();
            let content = fs::read_to_string(&file).expect("a text");
            fs::write(&file, change(self.rewrite(&content))).expect("the temporary folder can be written");
        }
    }
}

/// The files of a volume by name; a folder to write into has none.
fn volume_files(chart: &Chart, pod: &Value, volume: &str) -> BTreeMap<String, Vec<u8>> {
    let claims = list(&pod["volumeClaims"]).any(|claim| name(claim) == volume);
    let Some(found) = list(&pod["spec"]["volumes"]).find(|candidate| candidate["name"] == volume) else {
        assert!(claims, "the pod has no volume {volume}");
        return BTreeMap::new();
    };
    if let Some(secret) = found["secret"]["secretName"].as_str() {
        let object = chart.object("Secret", secret);
        select(&found["secret"]["items"], |key| decode(text(&object["data"][key])))
    } else if let Some(map) = found["configMap"]["name"].as_str() {
        let data = chart.object("ConfigMap", map)["data"].as_object().expect("a ConfigMap with data");
        data.iter().map(|(file, content)| (file.clone(), text(content).into())).collect()
    } else {
        assert!(found["emptyDir"].is_object(), "the renderer can't make the volume {found}");
        BTreeMap::new()
    }
}

fn select(items: &Value, content: impl Fn(&str) -> Vec<u8>) -> BTreeMap<String, Vec<u8>> {
    list(items).map(|item| (text(&item["path"]).to_owned(), content(text(&item["key"])))).collect()
}

/// Base64, as in the data of a Secret.
fn decode(base64: &str) -> Vec<u8> {
    let bytes: k8s_openapi::ByteString = serde_json::from_value(base64.into()).expect("base64");
    bytes.0
}
