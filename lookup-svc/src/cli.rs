//! Runs the server or a subcommand.

use service_kit::{Kit, runtime};

use crate::api::Document;
use crate::app::LookupService;
use crate::config::{Cli, Command, Config};
use crate::{geo_update, selftest};

/// Runs the given command to completion; without one, the server.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    let serve = &cli.config.serve;
    match cli.command {
        None => runtime::run(serve, self::serve(&cli.config)),
        Some(Command::Openapi) => {
            print!("{}", Document::new(&cli.config.base_url).json());
            Ok(())
        }
        Some(Command::GeoUpdate(args)) => runtime::run(serve, geo_update::run(*args)),
        Some(Command::Selftest(args)) => runtime::run(serve, selftest::run(&args)),
    }
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let kit = Kit::start("lookup-svc", &config.serve, &config.telemetry)?;
    let service = LookupService::start(config, &kit).await?;
    kit.serve_admin(config.admin_listen).await?;
    service.run().await;
    kit.finish();
    Ok(())
}
