//! The baseline of lookup-bench: a minimal poem server with a JSON response, on poem's default server.

use std::net::SocketAddr;

use clap::Parser;
use http_server::ServeArgs;
use poem::listener::TcpListener;
use poem::web::Json;
use poem::{Route, Server, get, handler};
use serde::Serialize;
use service_kit::runtime;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Responds with `{"message":"hello"}`.
#[derive(Parser)]
struct Options {
    /// Listen address
    #[arg(long)]
    listen: SocketAddr,
    /// Worker threads
    #[arg(long)]
    workers: usize,
}

#[derive(Serialize)]
struct Hello {
    message: &'static str,
}

#[handler]
fn hello() -> Json<Hello> {
    Json(Hello { message: "hello" })
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let serve = ServeArgs { workers: options.workers, ..ServeArgs::default() };
    runtime::run(&serve, async {
        let server = Server::new(TcpListener::bind(options.listen));
        Ok(server.run(Route::new().at("/", get(hello))).await?)
    })
}
