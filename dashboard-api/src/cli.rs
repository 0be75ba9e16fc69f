//! Runs the server or a command.

mod set_password;

use service_kit::{Kit, runtime};

use crate::app::{self, DashboardService};
use crate::config::{Cli, Command, Config};

/// Runs the given command, or the server if no command is given.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    let Cli { command, config } = cli;
    runtime::run(&config.serving, async {
        match command {
            None => serve(&config).await,
            Some(Command::Openapi) => {
                print!("{}", app::document().await?);
                Ok(())
            }
            Some(Command::SetPassword { login }) => set_password::run(&config, &login).await,
        }
    })
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let kit = Kit::start("dashboard-api", &config.serving, &config.telemetry)?;
    let service = DashboardService::start(config, &kit).await?;
    // Started after the dashboard's port is open, so that /readyz never reports ready before clients can connect.
    kit.serve_admin(config.admin_listen).await?;
    service.run().await;
    kit.finish()
}
