//! The whole chain beside a bare poem server, and beside itself without batching.

use std::process::ExitCode;

use bench::{gate, lookup};
use clap::Parser;

fn main() -> anyhow::Result<ExitCode> {
    let options = lookup::Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let gates = runtime.block_on(lookup::run(&options))?;
    Ok(gate::report(&gates, options.gate))
}
