//! The programs that are measured: built as they are shipped, found beside this one.

use std::path::PathBuf;

use anyhow::{Context, ensure};

const USE: &str = "use `cargo run --profile dist -p bench --bin lookup-bench`, or `soak`";

/// Builds the services in this program's own profile, if cargo runs it; else they must be there.
pub async fn build() -> anyhow::Result<()> {
    let Some(cargo) = std::env::var_os("CARGO") else { return Ok(()) };
    println!("building lookup-svc, quota-svc and hello");
    let mut command = tokio::process::Command::new(cargo);
    command.args(["build", "--quiet", "--bins", "-p", "lookup-svc", "-p", "quota-svc", "-p", "bench"]);
    command.args(["--profile", &profile()?]);
    let status = command.status().await.context("cargo can't be run")?;
    ensure!(status.success(), "the services could not be built");
    Ok(())
}

/// Cargo's folder for a profile has its name; only that of `dev` is called `debug`.
fn profile() -> anyhow::Result<String> {
    let folder =
        std::env::current_exe()?.parent().and_then(|folder| folder.file_name()).map(|name| name.to_owned());
    let name = folder.context("this program is in no folder")?.to_string_lossy().into_owned();
    ensure!(name != "debug", "{USE}");
    Ok(name)
}

/// The path of a program that was built with this one.
pub fn path(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    ensure!(
        path.is_file() && !cfg!(debug_assertions),
        "{} is missing or this is a debug build: {USE}",
        path.display()
    );
    Ok(path)
}
