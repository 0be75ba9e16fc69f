//! Entry point of the `quota-svc` binary.

use quota_svc::cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let cli = service_kit::command_line::parse();
    cli::run(cli)
}
