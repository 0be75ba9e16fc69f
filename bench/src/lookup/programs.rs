//! The programs that are measured: built as they are shipped, found beside this one.

use std::path::PathBuf;

use anyhow::{Context, ensure};

/// Builds the services in the release profile, if cargo runs this program; else they must be there.
pub async fn build() -> anyhow::Result<()> {
    let Some(cargo) = std::env::var_os("CARGO") else { return Ok(()) };
    println!("building lookup-svc, quota-svc and hello");
    let mut command = tokio::process::Command::new(cargo);
    command.args([
        "build",
        "--release",
        "--quiet",
        "--bins",
        "-p",
        "lookup-svc",
        "-p",
        "quota-svc",
        "-p",
        "bench",
    ]);
    let status = command.status().await.context("cargo can't be run")?;
    ensure!(status.success(), "the services could not be built");
    Ok(())
}

/// The path of a program that was built with this one.
pub fn path(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    ensure!(
        path.is_file() && !cfg!(debug_assertions),
        "{} is missing or this is a debug build: use `cargo run --release -p bench --bin lookup-bench`",
        path.display()
    );
    Ok(path)
}
