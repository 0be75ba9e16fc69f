//! ip-lookup: all services in one process, for one machine.

mod acme;
mod banner;
mod bootstrap;
mod config;
mod data_dir;
mod port_endpoints;
mod ports;
mod public_urls;
mod service_configs;
mod services;

use config::Config;
use service_kit::command_line::{self, Output};
use service_kit::{Kit, runtime};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let config: Config = command_line::parse();
    service_kit::tls::install_crypto_provider();
    let result = runtime::run(&config.serve_args(), async {
        let kit = Kit::start("ip-lookup", &config.serve_args(), &config.telemetry())?;
        services::run(&config, &kit).await?;
        kit.finish()
    });
    command_line::exit(Output::Text, result)
}
