//! Which programs of this machine the tests may count on.

use std::env;
use std::path::PathBuf;

/// Set by `./test`, where a missing tool fails the test that needs it.
pub const STRICT: &str = "IP_LOOKUP_TEST_STRICT";

/// Whether `name` is there. A test that gets `false` returns at once: it was skipped, and standard error says so.
///
/// # Panics
/// When it is missing under `./test`, which installs everything the tests require.
#[must_use]
pub fn require_tool(name: &str) -> bool {
    if find_tool(name).is_some() {
        return true;
    }
    assert!(env::var_os(STRICT).is_none(), "{name} is missing, and under ./test nothing may be");
    announce_skip(&format!("{name} is missing (./test installs it)"));
    false
}

/// The file that `./test` installs at `path` below the project's folder; `None` means skipped, as above.
///
/// # Panics
/// When it is missing under `./test`.
#[must_use]
pub fn require_installed(path: &str) -> Option<PathBuf> {
    let file = project().join(path);
    if file.exists() {
        return Some(file);
    }
    assert!(env::var_os(STRICT).is_none(), "{path} is missing, and under ./test nothing may be");
    announce_skip(&format!("{path} is missing (./test installs it)"));
    None
}

/// The project's folder.
///
/// # Panics
/// Never: this crate is a folder in it.
#[must_use]
pub fn project() -> PathBuf {
    let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("this crate is a folder of the project").to_owned()
}

/// Where `name` is, for tools that no distribution we support has to have (such as `valkey-server`): missing is
/// a loud skip under `./test` too.
#[must_use]
pub fn optional_tool(name: &str) -> Option<PathBuf> {
    let found = find_tool(name);
    if found.is_none() {
        announce_skip(&format!("{name} is not on this machine"));
    }
    found
}

/// What to start a service under ([`crate::process::Service::spawn_under`]) so that its clock is off by `offset`
/// (such as `+5m`); `None` means skipped.
///
/// # Panics
/// When libfaketime is missing under `./test`.
#[must_use]
pub fn faketime(offset: &str) -> Option<[String; 3]> {
    if !require_tool("faketime") {
        return None;
    }
    // Debian keeps it in a folder named for the machine's architecture.
    let folders =
        std::fs::read_dir("/usr/lib").into_iter().flatten().filter_map(|folder| Some(folder.ok()?.path()));
    let mut libraries = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    let library = libraries.find(|file| file.is_file()).expect("the faketime package has its library");
    Some(["env".to_owned(), format!("LD_PRELOAD={}", library.display()), format!("FAKETIME={offset}")])
}

/// Says on standard error that the running test proves nothing here, and why.
pub fn announce_skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    eprintln!("\n!!! SKIPPED {test}: {why}\n");
}

fn find_tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    // haproxy and nginx live in /usr/sbin, which a user's PATH lacks on Debian.
    let folders = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_on_the_path_is_found_and_another_is_not() {
        assert!(require_tool("sh"));
        assert!(find_tool("no-such-tool-anywhere").is_none());
    }
}
