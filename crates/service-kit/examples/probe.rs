//! A minimal service for the tests that need a separate process.

use std::{fs::File, net::SocketAddr};

use clap::Parser;
use http::HeaderMap;
use http_server::{ListenerArgs, ServeArgs, Server};
use poem::{EndpointExt, Response, Route, endpoint::make_sync, get};
use service_kit::{
    Kit, RequestTelemetry, TelemetryArgs, catch_all, named, responder, runtime, telemetry::inject_context,
};

#[derive(Parser)]
struct Cli {
    /// Number of files to hold open, to bring the process near its file descriptor limit
    #[arg(long, default_value_t = 0)]
    hold_files: usize,
    /// Read `traceparent` headers
    #[arg(long)]
    trust_traces: bool,
    /// Start a background task that fails
    #[arg(long, value_enum)]
    failing_task: Option<FailingTask>,
    /// Listen address
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[command(flatten)]
    listener: ListenerArgs,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

#[derive(clap::ValueEnum, Clone, Copy)]
enum FailingTask {
    Ends,
    Panics,
    /// A thread with the name of one of the OpenTelemetry SDK's
    ExportPanics,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    runtime::run(&cli.serve, serve(&cli))
}

async fn serve(cli: &Cli) -> anyhow::Result<()> {
    let kit = Kit::start("probe", &cli.serve, &cli.telemetry)?;
    let server = Server::bind("probe", cli.listen, &cli.serve).await?;
    let server = server.proxy_protocol(&cli.listener).trust(|_| true);
    kit.serve_admin(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    if let Some(task) = cli.failing_task {
        start_failing_task(task, &kit);
    }
    let held = (0..cli.hold_files).map(|_| File::open("/dev/null"));
    let _held = held.collect::<Result<Vec<_>, _>>()?;
    let trust = cli.trust_traces;
    let routes = Route::new()
        .at("/", get(make_sync(|_| "hello")))
        .at("/trace", get(named("trace", |_| traceparent())))
        .at("/panic", get(make_sync(|request| panic(request.uri().query()))))
        .with(catch_all(responder("https://docs.example", &HeaderMap::new())))
        .with(RequestTelemetry::new(&kit.telemetry, "probe").trust_trace_of(move |_| trust))
        .boxed();
    server.serve(routes, kit.lifecycle.clone()).await;
    kit.finish()
}

fn start_failing_task(task: FailingTask, kit: &Kit) {
    match task {
        FailingTask::Ends => drop(tokio::spawn(kit.tasks.watch("example", async {}))),
        FailingTask::Panics => drop(tokio::spawn(kit.tasks.watch("example", async { panic!("on purpose") }))),
        FailingTask::ExportPanics => {
            let thread = std::thread::Builder::new().name("OpenTelemetry.Example".into());
            drop(thread.spawn(|| panic!("on purpose")).expect("start a thread"));
        }
    }
}

/// Responds with the `traceparent` header that an outgoing request would have.
fn traceparent() -> Response {
    let mut headers = HeaderMap::new();
    inject_context(&mut headers);
    let value = headers.get("traceparent").map_or(&b"none"[..], |value| value.as_bytes());
    Response::builder().body(value.to_vec())
}

fn panic(query: Option<&str>) -> String {
    panic!("panic with query {query:?}")
}
