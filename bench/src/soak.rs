//! The soak test: runs all kinds of well-behaved and misbehaving clients at the same time, checks each response, and
//! at the end compares the store's counters with the responses.

mod client_stats;
mod clients;
mod progress;
mod report;
mod target;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::task::JoinSet;

use crate::gate::Gate;
use crate::lookup::programs;
use client_stats::{ClientStats, TrafficKind};
use clients::Client;
use progress::Progress;
use target::{Target, VALID_KEYS};

/// The first memory measurement is made after this share of the run, when caches and pools are filled.
const WARM_UP_SHARE: f64 = 0.1;

/// Sends mixed traffic to lookup-svc, quota-svc and Redis on this machine, and prints a report at the end.
#[derive(clap::Parser, Debug)]
#[command(name = "soak")]
pub struct Options {
    /// Minutes of traffic
    #[arg(long, default_value_t = 10.0)]
    pub minutes: f64,
    /// Number of clients with valid keys, at most 2,000; each sends one request after another, without a delay
    #[arg(long, default_value_t = 32)]
    pub clients: usize,
    /// Worker threads per service; 0 means the service's default
    #[arg(long, default_value_t = 0)]
    pub workers: usize,
}

impl Options {
    /// Rejects values that can't work. Every valid client needs at least one key of its own.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.minutes > 0.0 && self.clients > 0, "--minutes and --clients must be greater than 0");
        ensure!(
            self.clients <= VALID_KEYS,
            "--clients must be at most {VALID_KEYS}, the number of keys: each client uses its own"
        );
        Ok(())
    }
}

/// Builds and starts everything, sends the traffic and compares the counters. Returns the gates.
pub async fn run(options: &Options) -> anyhow::Result<Vec<Gate>> {
    options.check()?;
    programs::build().await?;
    let target = Arc::new(Target::start(options.workers).await?);
    let duration = Duration::from_secs_f64(options.minutes * 60.0);
    let progress = Arc::new(Progress::new());
    let started = Instant::now();
    let clients = start_clients(&target, &progress, options.clients, started + duration);
    progress.show(&target, started + duration.mul_f64(WARM_UP_SHARE)).await?;
    let warm_memory = target.memory()?;
    progress.show(&target, started + duration).await?;
    let stats = merge(clients.join_all().await);
    let comparison = target.compare_counters(&stats).await?;
    let final_memory = target.memory()?;
    report::print(&stats, started.elapsed(), warm_memory, final_memory, &comparison);
    Ok(report::gates(&stats, warm_memory, final_memory, &comparison))
}

fn start_clients(
    target: &Arc<Target>,
    progress: &Arc<Progress>,
    valid_clients: usize,
    deadline: Instant,
) -> JoinSet<ClientStats> {
    let mut clients = JoinSet::new();
    for kind in TrafficKind::ALL {
        let count = if kind == TrafficKind::Valid { valid_clients } else { kind.clients() };
        for number in 0..count {
            let client = Client::new(kind, number, count, target.clone());
            clients.spawn(client.run(deadline, progress.clone()));
        }
    }
    clients
}

/// Merges the clients' statistics into one per kind, in the order of [`TrafficKind::ALL`].
fn merge(clients: Vec<ClientStats>) -> Vec<ClientStats> {
    let mut merged: Vec<ClientStats> = TrafficKind::ALL.into_iter().map(ClientStats::new).collect();
    for client in clients {
        if let Some(total) = merged.iter_mut().find(|total| total.kind == client.kind) {
            total.add(client);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_clients_than_keys_are_rejected() {
        let check = |clients| Options { minutes: 1.0, clients, workers: 0 }.check();
        assert!(check(VALID_KEYS).is_ok());
        let error = check(VALID_KEYS + 1).unwrap_err().to_string();
        assert_eq!(error, "--clients must be at most 2000, the number of keys: each client uses its own");
        assert!(check(0).is_err());
    }
}
