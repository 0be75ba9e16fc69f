//! The memory of idle connections, and the time from the start of lookup-svc to its first lookup.

use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::chain::Chain;
use super::client::{connect, exchange, open_idle};
use super::{KEYS, Options, World};
use crate::gate::Gate;
use crate::stats::median;
use crate::usage;
use quota_client::wire::Limits;

const IDLE_CONNECTIONS: usize = 10_000;

pub(super) async fn measure(options: &Options) -> anyhow::Result<Vec<Gate>> {
    let chain = Chain::start(KEYS, KEYS, options.programs(), &Limits::default()).await?;
    let keys = chain.keys().read()?;
    let memory = memory_of_idle_connections(&chain, &keys).await?;
    let world = World::write()?;
    let flags = world.flags();
    let flags = flags.each_ref().map(String::as_str);
    let mut starts = Vec::new();
    for _ in 0..options.rounds {
        starts.push(time_to_first_lookup(&chain, &flags, &keys[0]).await?);
    }
    Ok(vec![
        Gate::at_most("memory of lookup-svc in MiB, 10,000 idle connections", memory, 200.0),
        Gate::at_most("seconds from the start to the first lookup, two databases", median(starts), 2.0),
    ])
}

/// Memory in MiB with open connections that have had one request each.
async fn memory_of_idle_connections(chain: &Chain, keys: &[String]) -> anyhow::Result<f64> {
    // Each connection needs a file descriptor in this process, too.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    // At the default limit of 10,000, one more connection would close an idle one.
    let lookup = chain.start_lookup(&["--max-connections", "11000"]).await?;
    let mut idle = open_idle(lookup.addr(), None, &keys[..IDLE_CONNECTIONS]).await?;
    let memory = usage::rss_mib(lookup.pid())?;
    // All are still open.
    for (stream, key) in idle.iter_mut().zip(&keys[IDLE_CONNECTIONS..]) {
        exchange(stream, key, "keep-alive").await?;
    }
    Ok(memory)
}

async fn time_to_first_lookup(chain: &Chain, flags: &[&str], key: &str) -> anyhow::Result<f64> {
    let started = Instant::now();
    let lookup = chain.start_lookup(flags).await?;
    let (mut stream, _) = connect(lookup.addr(), None).await?;
    exchange(&mut stream, key, "close").await?;
    Ok(started.elapsed().as_secs_f64())
}
