//! Entry point of quota-svc: serves the internal API, or runs a command.

use clap::Parser;
use quota_svc::app::{self, QuotaService};
use quota_svc::cli;
use quota_svc::config::{Cli, Command, Config};
use service_kit::{Kit, runtime};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let Cli { command, client, config } = Cli::parse();
    service_kit::tls::install_crypto_provider();
    runtime::exit(runtime::run(&config.serving.clone(), async {
        match command {
            None => serve(config).await,
            Some(Command::Openapi) => {
                print!("{}", app::document()?);
                Ok(())
            }
            Some(Command::Operator(command)) => {
                cli::run(command, &client, config.quota_token_file.as_deref()).await
            }
        }
    }))
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let kit = Kit::start("quota-svc", &config.serving, &config.telemetry)?;
    let service = QuotaService::start(&config, &kit).await?;
    // Started only now, so that the API port accepts connections before /readyz reports ready.
    kit.serve_admin(config.admin_listen).await?;
    service.run().await;
    kit.finish()
}
