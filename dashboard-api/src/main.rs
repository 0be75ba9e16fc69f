//! Entry point of the `dashboard-api` binary.

use dashboard_api::cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let cli = service_kit::command_line::parse();
    cli::run(cli)
}
