//! Sets `IP_LOOKUP_BUILD_COMMIT` and `IP_LOOKUP_BUILD_DATE` for `src/build_info.rs`.
//!
//! The environment variables `IP_LOOKUP_COMMIT` and `SOURCE_DATE_EPOCH` take precedence, for builds without a git
//! repository such as the Dockerfile's. Otherwise an optimized build reads the commit from git. A build without
//! optimization, such as that of `./test`, does not: every commit would then recompile all crates of the workspace.
//! Without git and variables (a source archive), both values are empty.
//!
//! Uses only the standard library, so that tests/tests/e2e/build_info.rs can compile it alone.

use std::{env, path::Path, process::Command};

/// Number of hexadecimal digits that are shown.
const COMMIT_DIGITS: usize = 10;
const SECONDS_PER_DAY: u64 = 86_400;

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    let (commit, seconds) = (variable("IP_LOOKUP_COMMIT"), variable("SOURCE_DATE_EPOCH"));
    let git = if commit.is_none() && env::var("OPT_LEVEL").as_deref() != Ok("0") {
        head_of_workspace()
    } else {
        None
    };
    let (git_commit, git_seconds) = git.unzip();
    let commit = commit.or(git_commit).unwrap_or_default();
    if !commit.is_empty() && (commit.len() < 7 || !commit.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        return Err(format!("IP_LOOKUP_COMMIT must be a commit hash, not {commit:?}"));
    }
    let date = match seconds.or(git_seconds) {
        Some(seconds) => utc_date(&seconds)?,
        None => String::new(),
    };
    println!("cargo::rustc-env=IP_LOOKUP_BUILD_COMMIT={}", &commit[..commit.len().min(COMMIT_DIGITS)]);
    println!("cargo::rustc-env=IP_LOOKUP_BUILD_DATE={date}");
    Ok(())
}

/// The value of an environment variable. Empty counts as unset: an `ARG` of a Dockerfile without a value is empty.
fn variable(name: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The commit and its time in seconds since 1970, if this workspace is a git repository of its own. A source archive
/// that is unpacked inside another repository is not.
fn head_of_workspace() -> Option<(String, String)> {
    let workspace = Path::new("../..").canonicalize().ok()?;
    if Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != workspace {
        return None;
    }
    // Rerun when HEAD moves. The commit is in the branch's file or in packed-refs; logs/HEAD also changes when a packed
    // branch gets its own file. Only existing files are listed: a missing one would rerun the script at every build.
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "logs/HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).is_file()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    Some((git(&["rev-parse", "HEAD"])?, git(&["show", "--no-patch", "--format=%ct", "HEAD"])?))
}

/// The output of a git command, or `None` if it fails or git is missing.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Converts seconds since 1970 to a date such as 2026-11-16, by Howard Hinnant's algorithm `civil_from_days`: it counts in
/// eras of 400 years that start on March 1.
fn utc_date(seconds: &str) -> Result<String, String> {
    let error = |_| format!("SOURCE_DATE_EPOCH must be a number of seconds since 1970, not {seconds:?}");
    let days = seconds.parse::<u64>().map_err(error)? / SECONDS_PER_DAY + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    Ok(format!("{:04}-{month:02}-{day:02}", era * 400 + year + next_year))
}
