//! ip-lookup: all services in one process, for one machine.

mod acme;
mod banner;
mod bootstrap;
mod command_socket;
mod commands;
mod config;
mod data_dir;
mod ports;
mod service_urls;
mod services;

use commands::Cli;
use config::Config;
use service_kit::{Kit, command_line, runtime};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let Cli { command, output, config } = command_line::parse();
    let output = output.output;
    let result = runtime::run(&config.serve_args(), async {
        match command {
            Some(command) => commands::run(command, &config, output).await,
            None => serve(&config).await,
        }
    });
    command_line::exit(output, result)
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let kit = Kit::start("ip-lookup", &config.serve_args(), &config.telemetry)?;
    services::run(config, &kit).await?;
    kit.finish()
}
