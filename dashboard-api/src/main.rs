//! Entry point of the `dashboard-api` binary.

use clap::Parser;
use dashboard_api::{cli, config::Cli};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    service_kit::tls::install_crypto_provider();
    service_kit::runtime::exit(cli::run(cli))
}
