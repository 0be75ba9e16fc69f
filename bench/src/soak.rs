//! The soak: good and bad clients of every kind at once, each answer judged, each count compared at the end.

mod clients;
mod progress;
mod report;
mod tally;
mod target;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::task::JoinSet;

use crate::gate::Gate;
use crate::lookup::programs;
use clients::{Client, Kind};
use progress::Progress;
use tally::Tally;
use target::Target;

/// Memory at the start is looked at after this share of the time: caches and pools are filled by then.
const WARM_UP: f64 = 0.1;

/// Mixed traffic against lookup-svc, quota-svc and Redis on this machine; ends by itself and reports.
#[derive(clap::Parser, Debug)]
#[command(name = "soak")]
pub struct Options {
    /// Minutes of traffic
    #[arg(long, default_value_t = 10.0)]
    pub minutes: f64,
    /// Clients with good keys, which ask without a pause
    #[arg(long, default_value_t = 32)]
    pub clients: usize,
    /// Worker threads of each service; 0 leaves it to them
    #[arg(long, default_value_t = 0)]
    pub workers: usize,
}

/// Builds, starts, drives and compares; gives back what must hold.
pub async fn run(options: &Options) -> anyhow::Result<Vec<Gate>> {
    ensure!(options.minutes > 0.0 && options.clients > 0, "minutes and clients must be more than 0");
    programs::build().await?;
    let target = Arc::new(Target::start(options.workers).await?);
    let length = Duration::from_secs_f64(options.minutes * 60.0);
    let progress = Arc::new(Progress::new(length));
    let began = Instant::now();
    let clients = start_clients(&target, &progress, options.clients, began + length);
    progress.show(&target, began + length.mul_f64(WARM_UP)).await?;
    let before = target.memory()?;
    progress.show(&target, began + length).await?;
    let tallies = merge(clients.join_all().await);
    progress.finish();
    let counts = target.compare(&tallies).await?;
    let after = target.memory()?;
    report::print(&tallies, began.elapsed(), before, after, &counts);
    Ok(report::gates(&tallies, before, after, &counts))
}

fn start_clients(
    target: &Arc<Target>,
    progress: &Arc<Progress>,
    good: usize,
    until: Instant,
) -> JoinSet<Tally> {
    let mut clients = JoinSet::new();
    for kind in Kind::ALL {
        let count = if kind == Kind::Good { good } else { kind.clients() };
        for number in 0..count {
            let client = Client::new(kind, number, count, target.clone());
            clients.spawn(client.run(until, progress.clone()));
        }
    }
    clients
}

/// One tally for each kind, in their order.
fn merge(tallies: Vec<Tally>) -> Vec<Tally> {
    let mut merged: Vec<Tally> = Kind::ALL.into_iter().map(Tally::new).collect();
    for tally in tallies {
        if let Some(of_its_kind) = merged.iter_mut().find(|merged| merged.kind == tally.kind) {
            of_its_kind.add(tally);
        }
    }
    merged
}
