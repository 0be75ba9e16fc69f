//! Runs the server or a subcommand.

use service_kit::{Kit, runtime};

use crate::api::Document;
use crate::app::LookupService;
use crate::config::{Cli, Command, Config};
use crate::{geo_update, selftest};

/// Runs the given command, or the server if no command is given.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    let serve_args = &cli.config.serving;
    match cli.command {
        None => runtime::run(serve_args, serve(&cli.config)),
        Some(Command::Openapi) => {
            print!("{}", Document::new(&cli.config.base_url).json());
            Ok(())
        }
        Some(Command::GeoUpdate(args)) => runtime::run(serve_args, geo_update::run(*args)),
        Some(Command::Selftest(args)) => runtime::run(serve_args, selftest::run(&args)),
    }
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let kit = Kit::start("lookup-svc", &config.serving, &config.telemetry)?;
    let service = LookupService::start(config, &kit).await?;
    kit.serve_admin(config.admin_listen).await?;
    service.run().await;
    kit.finish()
}
