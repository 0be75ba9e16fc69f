//! Builds the measured programs with the same profile as this program, and finds them: in the same directory, or in one
//! that a flag names.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

const USAGE: &str = "run `cargo run --profile dist -p bench --bin lookup-bench`, or `--bin soak`";

/// Builds the measured programs if cargo started this program. If it was started directly, they must already exist.
/// With `services_dir`, builds only the programs of this package, such as hello. `ip_lookup` tells whether ip-lookup is
/// measured.
pub async fn build(services_dir: Option<&Path>, ip_lookup: bool) -> anyhow::Result<()> {
    let services = &["bench", "lookup-svc", "quota-svc"];
    build_packages(if services_dir.is_some() { &services[..1] } else { services }).await?;
    if ip_lookup && services_dir.is_none() {
        // In a command of its own, as in a release: together with the services, it would get their features.
        build_packages(&["standalone"]).await?;
    }
    Ok(())
}

async fn build_packages(packages: &[&str]) -> anyhow::Result<()> {
    let Some(cargo) = std::env::var_os("CARGO") else { return Ok(()) };
    println!("building {}", packages.join(", "));
    let mut command = tokio::process::Command::new(cargo);
    command.args(["build", "--quiet", "--bins", "--profile", &profile()?]);
    command.args(packages.iter().flat_map(|package| ["-p", package]));
    let status = command.status().await.context("can't run cargo")?;
    ensure!(status.success(), "cargo could not build the measured programs");
    Ok(())
}

/// The profile of this program. It is the name of cargo's output directory, except that the directory of `dev` is named
/// `debug`; a debug build is rejected.
fn profile() -> anyhow::Result<String> {
    let program = std::env::current_exe()?;
    let dir = program.parent().and_then(|dir| dir.file_name()).context("this program has no directory")?;
    let name = dir.to_string_lossy().into_owned();
    ensure!(name != "debug", "this is a debug build; {USAGE}");
    Ok(name)
}

/// Parses the flags that name a directory with programs.
pub fn absolute_dir(text: &str) -> Result<PathBuf, String> {
    let dir = PathBuf::from(text);
    if dir.is_absolute() { Ok(dir) } else { Err("must be an absolute path".to_owned()) }
}

/// The path of a program in the same directory as this one, or `name` if it is an absolute path.
pub fn path(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    ensure!(Path::new(name).is_absolute() || !cfg!(debug_assertions), "this is a debug build; {USAGE}");
    ensure!(path.is_file(), "{} is missing; {USAGE}", path.display());
    Ok(path)
}
