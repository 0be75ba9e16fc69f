//! The soak test: runs all kinds of well-behaved and misbehaving clients at the same time, checks each response, and
//! at the end compares the store's counters with the responses.

mod client_stats;
mod clients;
mod progress;
mod report;
mod target;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::task::JoinSet;

use crate::gate::Gate;
use crate::lookup::{Programs, programs};
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
    /// Number of clients that send valid requests over plain HTTP, each the next one as soon as it has the response
    #[arg(long, default_value_t = 32)]
    pub clients: usize,
    /// Test the programs in this directory instead of building them, such as those of a release (absolute path)
    #[arg(long, value_name = "DIR", value_parser = programs::absolute_dir)]
    pub programs: Option<PathBuf>,
    /// Test ip-lookup with its embedded store instead of lookup-svc, quota-svc and Redis. The clients of HTTPS use a lookup-svc
    /// that charges through it
    #[arg(long)]
    pub ip_lookup: bool,
    /// Worker threads per service; 0 means the service's default
    #[arg(long, default_value_t = 0)]
    pub workers: usize,
}

impl Options {
    /// Rejects values that can't work. Every client with valid requests needs at least one key of its own.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.minutes > 0.0 && self.clients > 0, "--minutes and --clients must be greater than 0");
        let max = VALID_KEYS - TrafficKind::Https.clients();
        ensure!(self.clients <= max, "--clients must be at most {max}: each client uses its own keys");
        Ok(())
    }

    fn clients(&self, kind: TrafficKind) -> usize {
        if kind == TrafficKind::Valid { self.clients } else { kind.clients() }
    }
}

/// Builds and starts everything, sends the traffic and compares the counters. Returns the gates.
pub async fn run(options: &Options) -> anyhow::Result<Vec<Gate>> {
    options.check()?;
    if options.programs.is_none() {
        programs::build(None, options.ip_lookup).await?;
    }
    let programs = Programs { dir: options.programs.clone(), workers: options.workers };
    let target = Arc::new(Target::start(&programs, options.ip_lookup).await?);
    let duration = Duration::from_secs_f64(options.minutes * 60.0);
    let progress = Arc::new(Progress::new());
    let started = Instant::now();
    let clients = start_clients(&target, &progress, options, started + duration)?;
    progress.show(&target, started + duration.mul_f64(WARM_UP_SHARE)).await?;
    let warm_memory = target.memory()?;
    progress.show(&target, started + duration).await?;
    let stats = merge(clients.join_all().await);
    let comparison = target.compare_counters(&stats).await?;
    let final_memory = target.memory()?;
    report::print(&stats, started.elapsed(), target.names, [warm_memory, final_memory], &comparison);
    let gates = report::gates(&stats, target.names, [warm_memory, final_memory], &comparison);
    Arc::into_inner(target).context("a client is still running")?.stop().await?;
    Ok(gates)
}

fn start_clients(
    target: &Arc<Target>,
    progress: &Arc<Progress>,
    options: &Options,
    deadline: Instant,
) -> anyhow::Result<JoinSet<ClientStats>> {
    let mut clients = JoinSet::new();
    let with_keys = TrafficKind::ALL.into_iter().filter(|kind| kind.has_keys());
    let key_users: usize = with_keys.map(|kind| options.clients(kind)).sum();
    let mut first_keys = 0..key_users;
    for kind in TrafficKind::ALL {
        for number in 0..options.clients(kind) {
            let first_key = if kind.has_keys() { first_keys.next() } else { None };
            let keys = first_key.map(|first| (first..VALID_KEYS).step_by(key_users).collect());
            let client = Client::new(kind, number, keys.unwrap_or_default(), target.clone())?;
            clients.spawn(client.run(deadline, progress.clone()));
        }
    }
    Ok(clients)
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
        let check =
            |clients| Options { minutes: 1.0, clients, programs: None, ip_lookup: false, workers: 0 }.check();
        assert!(check(1996).is_ok());
        let error = check(1997).unwrap_err().to_string();
        assert_eq!(error, "--clients must be at most 1996: each client uses its own keys");
        assert!(check(0).is_err());
    }
}
