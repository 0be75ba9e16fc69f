//! Version, commit and date of this build, for `--version` and metrics. `build.rs` finds out commit and date.

use std::sync::LazyLock;

/// Version of all crates of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The first 10 digits of the commit, or empty if it is unknown, as in debug builds and in builds of a source archive.
pub const COMMIT: &str = env!("IP_LOOKUP_BUILD_COMMIT");

/// Date (UTC) of the commit, such as `2026-11-16`, or empty if it is unknown.
pub const DATE: &str = env!("IP_LOOKUP_BUILD_DATE");

/// What `--version` prints after the program's name: `0.1.0 (commit 0123456789, 2026-11-16)`.
pub static LONG_VERSION: LazyLock<String> = LazyLock::new(|| long_version(COMMIT, DATE));

fn long_version(commit: &str, date: &str) -> String {
    let details = match (commit, date) {
        ("", "") if cfg!(debug_assertions) => "debug build".to_owned(),
        ("", "") => return VERSION.to_owned(),
        ("", date) => date.to_owned(),
        (commit, "") => format!("commit {commit}"),
        (commit, date) => format!("commit {commit}, {date}"),
    };
    format!("{VERSION} ({details})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_version_shows_what_is_known() {
        let details = |commit, date| long_version(commit, date).replacen(VERSION, "", 1);
        assert_eq!(details("0123456789", "2026-11-16"), " (commit 0123456789, 2026-11-16)");
        assert_eq!(details("0123456789", ""), " (commit 0123456789)");
        assert_eq!(details("", "2026-11-16"), " (2026-11-16)");
        assert_eq!(details("", ""), if cfg!(debug_assertions) { " (debug build)" } else { "" });
    }
}
