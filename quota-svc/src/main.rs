//! Entry point of the `quota-svc` binary.

use clap::Parser;
use quota_svc::cli::{self, Cli};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    service_kit::tls::install_crypto_provider();
    service_kit::runtime::exit(cli::run(cli))
}
