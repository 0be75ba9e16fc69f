//! Measures the operations of the admin pages in a large store.

use std::process::ExitCode;

use bench::{admin, gate};
use clap::Parser;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let options = admin::Options::parse();
    let gates = admin::run(&options).await?;
    Ok(gate::report(&gates, options.gate))
}
