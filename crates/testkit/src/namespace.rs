//! Runs a test in network and mount namespaces of its own. The machine's network and files are not touched, and the namespaces
//! end with the last process.

use std::path::PathBuf;
use std::process::Stdio;
use std::{env, fs};

use rustix::process::getuid;

use crate::spawner::ChildGuard;
use crate::tools::{STRICT, announce_skip, require_tool};

/// Environment variable with the folder of the test. It is set only in the namespace.
const FOLDER: &str = "NAMESPACE_FOLDER";

/// Sets up addresses and files, then runs the program. Removes proxies from the environment, because programs would send
/// requests for public names to them.
const PREPARE: &str = r#"
folder=$1 addresses=$2
shift 2
ip link set lo up
for address in $addresses; do ip address add "$address" dev lo; done
for file in "$folder"/etc/*; do [ ! -e "$file" ] || mount --bind "$file" "/etc/${file##*/}"; done
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
exec "$@"
"#;

/// The namespaces that the current test runs in.
#[derive(Debug)]
pub struct Namespace {
    /// A temporary folder.
    pub folder: PathBuf,
}

impl Namespace {
    /// Runs `test`, the name of the calling test, again in new namespaces, which have these addresses and these files in
    /// /etc. `None` means that the caller must return immediately: it is not in the namespaces.
    ///
    /// # Panics
    /// If the test in the namespaces fails or does not call [`Namespace::finish`], or if root or a tool is missing under
    /// `./test`.
    #[must_use]
    pub fn enter(test: &str, addresses: &[&str], files: &[(&str, &str)]) -> Option<Self> {
        if let Some(folder) = env::var_os(FOLDER) {
            return Some(Self { folder: folder.into() });
        }
        if !getuid().is_root() {
            assert!(env::var_os(STRICT).is_none(), "network namespaces need root");
            announce_skip("network namespaces need root");
            return None;
        }
        if !["ip", "unshare"].into_iter().all(require_tool) {
            return None;
        }
        let folder = tempfile::tempdir().expect("temporary directory");
        let etc = folder.path().join("etc");
        fs::create_dir(&etc).expect("writable folder");
        for (name, text) in files {
            fs::write(etc.join(name), text).expect("writable folder");
        }
        let mut process = ChildGuard::spawn("unshare", |command| {
            command.args(["--net", "--mount", "sh", "-ec", PREPARE, "sh"]).arg(folder.path());
            command.arg(addresses.join(" ")).arg(env::current_exe().expect("path of the test"));
            command.args(["--exact", test, "--nocapture"]).env(FOLDER, folder.path()).stdin(Stdio::null());
        });
        let status = process.child().wait().expect("unshare is running");
        // Without the file, a wrong name would mean that no test has run.
        let finished = folder.path().join("finished").exists();
        assert!(status.success() && finished, "the test in the namespaces: {status}");
        None
    }

    /// Reports that the test has reached its end.
    ///
    /// # Panics
    /// If the folder is gone.
    pub fn finish(self) {
        fs::write(self.folder.join("finished"), "").expect("writable folder");
    }
}
