//! Sends mixed traffic for minutes. Fails on a wrong response, a wrong counter, too many errors, growing memory, or a
//! service that does not exit with 0.

use std::process::ExitCode;

use bench::{gate, soak};
use clap::Parser;

fn main() -> anyhow::Result<ExitCode> {
    let options = soak::Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let gates = runtime.block_on(soak::run(&options))?;
    Ok(gate::report(&gates, true))
}
