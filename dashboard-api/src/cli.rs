//! Runs the server or a command.

use std::process::ExitCode;

use anyhow::Context;
use quota_client::{COMMAND_TIMEOUT, QuotaClient, QuotaToken};
use service_kit::command_line::{self, Output};
use service_kit::{Kit, PublicPort, runtime};

use crate::app::{self, DashboardService};
use crate::config::{Cli, Command, Config};

/// Runs the given command, or the server if no command is given.
pub fn run(cli: Cli) -> ExitCode {
    let Cli { command, output, config } = cli;
    let output = output.output;
    let result = runtime::run(&config.service.serving, async {
        match command {
            None => serve(&config).await,
            Some(command) => run_command(command, &config, output).await,
        }
    });
    command_line::exit(output, result)
}

async fn run_command(command: Command, config: &Config, output: Output) -> anyhow::Result<()> {
    match command {
        Command::Openapi => command_line::print(&app::document().await?),
        Command::Password(command) => {
            let token = QuotaToken::load_flag(config.quota_token_file.as_deref())?;
            let quota = QuotaClient::new(&config.quota_url, COMMAND_TIMEOUT).context("--quota-url")?;
            let public_url = config.public_origin();
            command.run(&quota.with_token(&token), output, "quota-svc", public_url).await
        }
        Command::Manual(command) => command.run::<Cli>(),
    }
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let args = &config.service;
    let kit = Kit::start("dashboard-api", &args.serving, &args.telemetry)?;
    let (port_args, redirect_url) = (args.port("dashboard", "dashboard-tls")?, config.redirect_url()?);
    let service = DashboardService::start(config, &kit).await?.into_port_service(redirect_url)?;
    let port = PublicPort::bind(&kit, port_args).await?;
    // Started after the dashboard's port is open, so that /readyz never reports ready before clients can connect.
    kit.serve_admin(args.admin_listen).await?;
    port.serve("dashboard-api", service).await;
    kit.finish()
}
