//! Runs the server or a subcommand.

use std::process::ExitCode;

use service_kit::command_line::{self, Output};
use service_kit::{Kit, PublicPort, runtime};

use crate::api::Document;
use crate::app::LookupService;
use crate::config::{Cli, Command, Config};
use crate::public_urls::PublicUrls;
use crate::{explain, selftest};

/// Runs the given command, or the server if no command is given.
pub fn run(cli: Cli) -> ExitCode {
    let serve_args = &cli.config.serving;
    let output = match &cli.command {
        Some(Command::Explain { output, .. }) => output.output,
        _ => Output::Text,
    };
    let result = match cli.command {
        None => runtime::run(serve_args, serve(&cli.config)),
        Some(Command::Openapi) => {
            let urls = PublicUrls::new(&cli.config);
            let document = Document::new(&urls.base, &urls, None, cli.config.ratelimit_headers);
            command_line::print(&document.json())
        }
        Some(Command::GeoUpdate(args)) => runtime::run(serve_args, geo::update::run(*args)),
        Some(Command::Explain { args, .. }) => {
            let Config { edge, geo, listener, .. } = &cli.config;
            runtime::run(serve_args, explain::run(edge, geo, listener.proxy_protocol, args, output))
        }
        Some(Command::Selftest(args)) => runtime::run(serve_args, selftest::run(&args)),
        Some(Command::Manual(command)) => command.run::<Cli>(),
    };
    command_line::exit(output, result)
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let kit = Kit::start("lookup-svc", &config.serving, &config.telemetry)?;
    let port_args = config.port_args()?;
    let service = LookupService::start(config, &kit).await?;
    let port = PublicPort::bind(&kit, port_args).await?;
    kit.serve_admin(config.admin_listen).await?;
    port.serve("lookup-svc", service.into_port_service(config.redirect_listen.is_some())?).await;
    kit.finish()
}
