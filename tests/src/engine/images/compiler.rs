//! A stand-in build image that compiles: this machine's C compiler, Rust toolchain and downloaded crates.

use std::collections::BTreeSet;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{BUILD_IMAGE, CA_CERTIFICATES, RootFs, libraries, tool};
use crate::engine::Engine;

/// Runs the real cargo. Link-time optimization and optimization are off: they would take most of the time, and the
/// compiler is not what is tested.
const CARGO: &str = r#"#!/bin/sh
set -eu
export CARGO_NET_OFFLINE=true CARGO_INCREMENTAL=0
export CARGO_PROFILE_DIST_LTO=off CARGO_PROFILE_DIST_OPT_LEVEL=0 CARGO_PROFILE_DIST_CODEGEN_UNITS=16
export CARGO_PROFILE_DIST_DEBUG=false CARGO_PROFILE_DIST_STRIP=symbols
export PATH=/usr/local/rust/bin:/usr/bin:$PATH
exec cargo "$@"
"#;

/// Debian's packages with the C library and its headers. Build scripts link the shared library, our programs the static
/// one.
const C_LIBRARY: [&str; 3] = ["libc6", "libc6-dev", "linux-libc-dev"];

/// Loads a stand-in of [`BUILD_IMAGE`] that compiles.
///
/// # Panics
/// If a package is missing, or a file can't be copied.
pub fn load(engine: &Engine) {
    let root = RootFs::with_busybox();
    root.add_file(Path::new(CA_CERTIFICATES), CA_CERTIFICATES);
    root.add_program(&tool("find"), "/usr/local/bin/find");
    root.add_script("/usr/local/bin/cargo", CARGO);
    add_c_compiler(&root);
    add_rust(&root, Path::new(&output("rustc", &["--print=sysroot"])));
    root.import(engine, BUILD_IMAGE, "ENV CARGO_HOME=/usr/local/cargo");
}

/// Adds gcc, the linker and the C library, at their usual paths.
fn add_c_compiler(root: &RootFs) {
    let gcc = format!("{ARCH}-linux-gnu-gcc");
    for (program, name) in [("cc", "cc"), ("cc", &gcc), ("as", "as"), ("ld", "ld"), ("ar", "ar")] {
        root.add_program(&tool(program), &format!("/usr/bin/{name}"));
    }
    let compiler = PathBuf::from(output("cc", &["-print-prog-name=cc1"]));
    let runtime = PathBuf::from(output("cc", &["-print-libgcc-file-name"]));
    for dir in BTreeSet::from([compiler.parent(), runtime.parent()]).into_iter().flatten() {
        root.copy(dir);
    }
    for program in ["cc1", "collect2"] {
        let path = PathBuf::from(output("cc", &[&format!("-print-prog-name={program}")]));
        root.add_program(&path, path.to_str().expect("UTF-8 path"));
    }
    let files = output("dpkg", &[&["--listfiles"][..], &C_LIBRARY].concat());
    for file in files.lines() {
        let path = file.trim_start_matches("/usr");
        if (path.starts_with("/lib") || path.starts_with("/include")) && Path::new(file).is_file() {
            // The linker scripts name some files by the path that they have if /lib is not a link to /usr/lib.
            root.add_file(Path::new(file), path);
            root.add_file(Path::new(file), &format!("/usr{path}"));
        }
    }
}

/// Adds cargo, rustc, the standard library and the downloaded crates.
fn add_rust(root: &RootFs, toolchain: &Path) {
    for program in ["cargo", "rustc"].map(|name| toolchain.join("bin").join(name)) {
        for library in libraries(&program).iter().filter(|library| !library.starts_with(toolchain)) {
            root.add_file(library, library.to_str().expect("UTF-8 path"));
        }
    }
    let files = fs::read_dir(toolchain.join("lib"))
        .expect("toolchain")
        .map(|file| file.expect("toolchain").file_name());
    let libraries = files.filter_map(|name| name.into_string().ok()).filter(|name| name.contains(".so"));
    let rust =
        ["bin/cargo".to_owned(), "bin/rustc".to_owned(), format!("lib/rustlib/{ARCH}-unknown-linux-gnu")];
    for path in rust.into_iter().chain(libraries.map(|name| format!("lib/{name}"))) {
        root.copy_to(&toolchain.join(&path), &format!("/usr/local/rust/{path}"));
    }
    let home = std::env::home_dir().expect("a home directory").join(".cargo");
    let home = std::env::var_os("CARGO_HOME").map_or(home, PathBuf::from);
    for name in ["registry/index", "registry/cache", "git", "config.toml"] {
        if home.join(name).exists() {
            root.copy_to(&home.join(name), &format!("/usr/local/cargo/{name}"));
        }
    }
}

impl RootFs {
    /// Copies a file or a whole directory to the same path.
    fn copy(&self, path: &Path) {
        self.copy_to(path, path.to_str().expect("UTF-8 path"));
    }

    /// Copies a file or a whole directory.
    fn copy_to(&self, from: &Path, to: &str) {
        let target = self.path(to);
        fs::create_dir_all(target.parent().expect("path below the root"))
            .expect("temporary directory is writable");
        let copied = Command::new("cp").arg("-a").arg(from).arg(&target).status();
        assert!(copied.is_ok_and(|status| status.success()), "{}", from.display());
    }
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the program starts");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8 output").trim().to_owned()
}
