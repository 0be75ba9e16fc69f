//! Runs the server or a subcommand.

use std::process::ExitCode;

use geo::update::{self, GeoUpdateArgs, Report};
use service_kit::command_line::{self, Output};
use service_kit::{Kit, LogFormat, PublicPort, TelemetryArgs, runtime, telemetry};

use crate::api::document;
use crate::app::{GeoData, LookupService};
use crate::config::{Cli, Command, Config};
use crate::public_urls::PublicUrls;
use crate::{explain, selftest};

/// Runs the given command, or the server if no command is given.
pub fn run(cli: Cli) -> ExitCode {
    let serve_args = &cli.config.service.serving;
    let output = match &cli.command {
        Some(Command::Explain { output, .. }) => output.output,
        Some(Command::GeoUpdate(_)) if cli.config.service.telemetry.log_format == LogFormat::Json => {
            Output::Json
        }
        _ => Output::Text,
    };
    let result = match cli.command {
        None => runtime::run(serve_args, serve(&cli.config)),
        Some(Command::Openapi) => {
            let urls = PublicUrls::new(&cli.config);
            let document = document(&urls.base, &urls, None, cli.config.ratelimit_headers);
            command_line::print(&document.json())
        }
        Some(Command::GeoUpdate(args)) => {
            runtime::run(serve_args, geo_update(*args, &cli.config.service.telemetry))
        }
        Some(Command::Explain { args, .. }) => {
            let Config { edge, geo, service, .. } = &cli.config;
            let proxy_protocol = service.listener.proxy_protocol;
            runtime::run(serve_args, explain::run(edge, geo, proxy_protocol, args, output))
        }
        Some(Command::Selftest(args)) => runtime::run(serve_args, selftest::run(&args, selftest::RETRY_FOR)),
        Some(Command::Manual(command)) => command.run::<Cli>(),
    };
    command_line::exit(output, result)
}

/// With `--log-format json`, every line of output is a JSON object, as in the logs of the pod's other containers.
async fn geo_update(args: GeoUpdateArgs, telemetry: &TelemetryArgs) -> anyhow::Result<()> {
    let report = match telemetry.log_format {
        LogFormat::Text => Report::default(),
        LogFormat::Json => {
            telemetry::start_log("lookup-svc", telemetry)?;
            Report::to_log()
        }
    };
    update::run(args, report).await
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let args = &config.service;
    let kit = Kit::start("lookup-svc", &args.serving, &args.telemetry)?;
    let port_args = args.port("lookup", "lookup-tls")?;
    let geo = GeoData::load(&config.geo).await?;
    let service = LookupService::start(config, geo, &kit, None).await?;
    let port = PublicPort::bind(&kit, port_args).await?;
    kit.serve_admin(args.admin_listen).await?;
    port.serve("lookup-svc", service.into_port_service(args.redirect_listen.is_some())?).await;
    kit.finish()
}
