//! Stand-ins for the images that the Dockerfile, docker-compose.yaml and the chart name, made of this machine's files.
//! They have the same names and commands as the published images, which the tests can't download.
//!
//! [`load_build_image`] copies binaries that are already built; [`compiler`] has one that compiles.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use testkit::process::binary;
use testkit::tools::{project_root, require_valkey};

use super::Engine;

pub mod compiler;

/// Maximum time of a build. Only [`compiler`] needs more than a few seconds.
const BUILD_TIMEOUT: Duration = Duration::from_secs(2400);

/// The image that all stages of the Dockerfile start from.
pub const BUILD_IMAGE: &str = "rust:1.95-slim";
/// The image of the store, in docker-compose.yaml and in the chart.
pub const VALKEY_IMAGE: &str = "valkey/valkey:9.1.1";
/// The image of the proxy in docker-compose.yaml.
pub const HAPROXY_IMAGE: &str = "haproxy:3.2-alpine";

const CA_CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Stands in for cargo: checks that the packages exist, then puts a file where cargo would put each binary for a target:
/// the binary if the test needs it, else an empty file. Binaries are linked dynamically, so the libraries go into the
/// image as well.
const STUB_CARGO: &str = r#"#!/bin/sh
set -eu
[ "$1" = build ]
profile= packages=
while [ $# -gt 0 ]; do
    case $1 in
        --profile) profile=$2; shift ;;
        -p) packages="$packages $2"; shift ;;
    esac
    shift
done
[ -s Cargo.lock ]
for package in $packages; do
    grep -q "^name = \"$package\"" */Cargo.toml
    binary=$package
    if [ "$package" = standalone ]; then binary=ip-lookup; fi
    mkdir -p "target/host/$profile" /out
    if [ -e "/prebuilt/$binary" ]; then
        cp "/prebuilt/$binary" "target/host/$profile/"
    else
        touch "target/host/$profile/$binary"
    fi
done
cp -R /prebuilt/libraries/. /out/
"#;

/// The file system of an image, in a temporary directory.
#[derive(Debug)]
pub struct RootFs(TempDir);

impl RootFs {
    fn empty() -> Self {
        let this = Self(tempfile::Builder::new().prefix("rootfs-").tempdir().expect("temporary directory"));
        // The mode of the directory becomes that of the image's root directory, which every user must be able to read.
        fs::set_permissions(this.0.path(), fs::Permissions::from_mode(0o755)).expect("own directory");
        this
    }

    /// A file system with a shell, busybox and its commands in `/bin`.
    ///
    /// # Panics
    /// If busybox is missing.
    #[must_use]
    pub fn with_busybox() -> Self {
        let this = Self::empty();
        this.add_program(&tool("busybox"), "/bin/busybox");
        // Debian's busybox shell prefers its own commands to those in PATH.
        this.add_program(&tool("dash"), "/bin/sh");
        let list = Command::new("busybox").arg("--list").output().expect("busybox starts");
        for name in
            String::from_utf8_lossy(&list.stdout).lines().filter(|name| !["busybox", "sh"].contains(name))
        {
            symlink("busybox", this.path("/bin").join(name)).expect("temporary directory is writable");
        }
        this.create_dir("/tmp", 0, 0o1777);
        this
    }

    /// Copies a file of this machine to `to`.
    ///
    /// # Panics
    /// If the file can't be copied.
    pub fn add_file(&self, from: &Path, to: &str) {
        let target = self.path(to);
        fs::create_dir_all(target.parent().expect("path of a file"))
            .expect("temporary directory is writable");
        fs::copy(from, &target).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    }

    /// Copies a program of this machine to `to`, and the libraries it needs to their usual paths.
    pub fn add_program(&self, from: &Path, to: &str) {
        self.add_file(from, to);
        for library in libraries(from) {
            self.add_file(&library, library.to_str().expect("UTF-8 path"));
        }
    }

    /// Writes a program with this text.
    ///
    /// # Panics
    /// If the file can't be written.
    pub fn add_script(&self, to: &str, text: &str) {
        let target = self.path(to);
        fs::create_dir_all(target.parent().expect("path of a file"))
            .expect("temporary directory is writable");
        fs::write(&target, text).expect("temporary directory is writable");
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755)).expect("own file");
    }

    /// Creates a directory that this user owns.
    ///
    /// # Panics
    /// If it can't be created.
    pub fn create_dir(&self, path: &str, user: u32, mode: u32) {
        let dir = self.path(path);
        fs::create_dir_all(&dir).expect("temporary directory is writable");
        chown(&dir, Some(user), Some(user)).expect("root can change owners");
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("own directory");
    }

    /// Loads the file system into the engine as an image. `change` is a Dockerfile instruction.
    ///
    /// # Panics
    /// If the engine rejects it.
    pub fn import(&self, engine: &Engine, name: &str, change: &str) {
        let import = "tar --numeric-owner -c . | docker import --change 'ENV PATH=/usr/local/bin:/bin' \
            --change \"$CHANGE\" - \"$NAME\"";
        let variables = [("NAME", name), ("CHANGE", change)];
        let result = engine.shell(import, self.0.path(), &variables);
        result.unwrap_or_else(|error| panic!("image {name}: {error}"));
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }
}

/// Loads the stand-in of [`BUILD_IMAGE`], with a cargo that copies the given binaries of this workspace.
///
/// # Panics
/// If a tool is missing.
pub fn load_build_image(engine: &Engine, binaries: &[&str]) {
    let root = RootFs::with_busybox();
    root.add_file(Path::new(CA_CERTIFICATES), CA_CERTIFICATES);
    root.add_script("/usr/local/bin/cargo", STUB_CARGO);
    // Debian's busybox has no `find -delete`.
    root.add_program(&tool("find"), "/usr/local/bin/find");
    for name in binaries {
        let target = root.path(&format!("/prebuilt/{name}"));
        fs::create_dir_all(root.path("/prebuilt/libraries")).expect("temporary directory is writable");
        let stripped = Command::new("strip").arg("-o").arg(&target).arg(binary(name)).status();
        assert!(stripped.is_ok_and(|status| status.success()), "strip {name}");
        for library in libraries(&target) {
            root.add_file(&library, &format!("/prebuilt/libraries{}", library.display()));
        }
    }
    root.import(engine, BUILD_IMAGE, "ENV CARGO_HOME=/usr/local/cargo");
}

/// Builds a target of the Dockerfile, without network access. Returns the name of the image.
///
/// # Panics
/// If the build fails.
#[must_use]
pub fn build_target(engine: &Engine, target: &str) -> String {
    let image = format!("ip-lookup/{target}:{}", env!("CARGO_PKG_VERSION"));
    let root = project_root();
    let context = root.to_str().expect("UTF-8 path");
    let mut build = engine.command_within(BUILD_TIMEOUT, "docker");
    build.args(["build", "--network=none", "--progress=plain", "--target", target, "--tag", &image]);
    // What --version shows: the commit and, on 2024-02-29, its date.
    build.args([
        "--build-arg",
        "IP_LOOKUP_COMMIT=0123456789abcdef",
        "--build-arg",
        "SOURCE_DATE_EPOCH=1709164800",
    ]);
    build.arg(context);
    super::output_of(&mut build).unwrap_or_else(|error| panic!("target {target}: {error}"));
    image
}

/// Loads the stand-in of [`VALKEY_IMAGE`]: the Valkey from PyPI, and Debian's redis-cli as valkey-cli. `false` means that
/// the test must return immediately.
///
/// # Panics
/// If a tool is missing under `./test`.
#[must_use]
pub fn load_valkey(engine: &Engine) -> bool {
    let Some(server) = require_valkey() else { return false };
    let root = RootFs::with_busybox();
    root.add_program(&server, "/usr/local/bin/valkey-server");
    root.add_program(&tool("redis-cli"), "/usr/local/bin/valkey-cli");
    // As in the published image: a new volume takes over the owner of this directory.
    root.create_dir("/data", 999, 0o755);
    root.import(engine, VALKEY_IMAGE, "VOLUME /data");
    true
}

/// Loads the stand-in of [`HAPROXY_IMAGE`]: Debian's HAProxy.
pub fn load_haproxy(engine: &Engine) {
    let root = RootFs::with_busybox();
    root.add_program(&tool("haproxy"), "/usr/local/bin/haproxy");
    root.import(engine, HAPROXY_IMAGE, "STOPSIGNAL SIGUSR1");
}

/// The path of a program of this machine.
fn tool(name: &str) -> PathBuf {
    let dirs = std::env::split_paths(&super::search_path()).collect::<Vec<_>>();
    let found = dirs.iter().map(|dir| dir.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing; ./test installs it"))
}

/// The shared libraries that a program needs, among them the dynamic loader. Empty for a static program.
fn libraries(program: &Path) -> BTreeSet<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}
