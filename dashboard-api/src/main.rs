//! dashboard-api: serves the dashboard, or runs an operator command.

use clap::Parser;
use dashboard_api::config::{Cli, Command, Config};
use dashboard_api::{app, set_password};
use service_kit::{Kit, runtime};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let Cli { command, config } = Cli::parse();
    service_kit::tls::install_crypto_provider();
    runtime::exit(runtime::run(&config.serving.clone(), async {
        match command {
            None => serve(config).await,
            Some(Command::Openapi) => {
                print!("{}", app::document().await?);
                Ok(())
            }
            Some(Command::SetPassword { login }) => {
                set_password::run(&config.quota_url, config.quota_token_file.as_deref(), &login).await
            }
        }
    }))
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let kit = Kit::start("dashboard-api", &config.serving, &config.telemetry)?;
    let dashboard = app::start(&config, &kit).await?;
    // Started after the dashboard's port is open, so that /readyz never reports ready before clients can connect.
    kit.serve_admin(config.admin_listen).await?;
    dashboard.run().await;
    kit.finish()
}
