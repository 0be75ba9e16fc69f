//! Exports all keys of a chain and imports them into an empty Redis server, with the commands of quota-svc.

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::process::{TOKEN_FILE, token_file};
use testkit::redis::Redis;
use tokio::process::Command;

use super::chain::{Chain, Programs};
use super::programs;
use super::servers::Server;
use crate::table::thousands;

/// Stops the chain after the export: two stores of 10 million keys would not fit into the memory of a small machine.
pub(super) async fn measure(chain: Chain, keys: usize, programs: &Programs) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("export.jsonl");
    let file = file.to_string_lossy();
    let source = programs.start("quota-svc", &["--redis-url", &chain.redis().url()]).await?;
    let exported = run(programs, &source, &["export", "--to", &file], keys).await?;
    ensure!(exported["keys"] == keys, "{exported}");
    drop((source, chain));
    let redis = Redis::start().await;
    let target = programs.start("quota-svc", &["--redis-url", &redis.url()]).await?;
    let imported = run(programs, &target, &["import", &file], keys).await?;
    ensure!(imported["keys_created"] == keys, "{imported}");
    Ok(())
}

/// Runs a command of quota-svc and prints its duration. Returns its result.
async fn run(programs: &Programs, quota: &Server, command: &[&str], keys: usize) -> anyhow::Result<Value> {
    let program = programs::path(&programs.path("quota-svc").to_string_lossy())?;
    let started = Instant::now();
    let mut process = Command::new(program);
    process.args(command).args(["--output", "json", "--quota-url", &quota.url("")]);
    process.env(TOKEN_FILE, token_file()).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = process.kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "quota-svc {} failed: {}", command[0], output.status);
    let seconds = started.elapsed().as_secs_f64();
    println!("{}: {seconds:.1} s, {} keys per second", command[0], thousands(keys as f64 / seconds));
    serde_json::from_slice(&output.stdout).context("the result is not JSON")
}
