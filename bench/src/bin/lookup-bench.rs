//! Benchmarks the whole chain (lookup-svc, quota-svc and Redis) against a minimal poem server, and against the same
//! chain without batching.

use std::process::ExitCode;

use bench::{gate, lookup};
use clap::Parser;

fn main() -> anyhow::Result<ExitCode> {
    let options = lookup::Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let gates = runtime.block_on(lookup::run(&options))?;
    Ok(gate::report(&gates, options.gate))
}
