//! Compares the rate of charges through quota-svc's stores with the rate of plain pipelined INCR.

use std::process::ExitCode;

use bench::{gate, store};
use clap::Parser;
use http_server::ServeArgs;
use service_kit::runtime;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<ExitCode> {
    let options = store::Options::parse();
    let serve = ServeArgs { workers: options.workers, ..ServeArgs::default() };
    let mut gates = Vec::new();
    runtime::run(&serve, async {
        gates = store::run(&options).await?;
        Ok(())
    })?;
    Ok(gate::report(&gates, options.gate))
}
