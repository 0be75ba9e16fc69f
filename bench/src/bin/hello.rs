//! The yardstick: the least that a poem server can do for a JSON answer, with poem's server as it comes.

use std::net::SocketAddr;

use clap::Parser;
use poem::listener::TcpListener;
use poem::web::Json;
use poem::{Route, Server, get, handler};
use serde::Serialize;
use service_kit::{ServeArgs, runtime};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Answers `{"message":"hello"}`.
#[derive(Parser)]
struct Options {
    /// Where to listen
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
