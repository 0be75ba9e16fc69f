//! The chain's benchmark: wrk against hello, lookup-svc with quota-svc and Redis, and the same without batching.

mod chain;
mod places;
pub(crate) mod programs;
mod report;
pub(crate) mod servers;
mod strangers;
mod wrk;

use std::io::Write;

use anyhow::ensure;
use quota_svc::domain::limits::Limits;

use crate::gate::Gate;
use crate::table::thousands;
use chain::Chain;
use report::Round;
use servers::Server;
use strangers::{Strangers, Tried};
use wrk::{Addresses, Wrk};

/// Connections that wrk keeps busy.
const CONNECTIONS: [usize; 2] = [64, 1];

/// Connections while memory is looked at.
const MANY: usize = 1000;

/// Enough that none is asked for more often than it may be.
const KEYS: usize = 20_000;

/// So many keys are compared with what `--keys` says.
const FEW_KEYS: usize = 1000;

/// Measures the whole chain with wrk: everything runs on this machine, on loopback, and ends by itself.
#[derive(clap::Parser, Debug)]
#[command(name = "lookup-bench")]
pub struct Options {
    /// Seconds for each measurement
    #[arg(long, default_value_t = 2)]
    pub seconds: u64,
    /// How often all variants are measured; the medians count
    #[arg(long, default_value_t = 9)]
    pub rounds: usize,
    /// Instead of all else, compare a store with so many keys to one with 1,000
    #[arg(long, value_name = "N")]
    pub keys: Option<usize>,
    /// Instead of all else, measure valid keys beside 10,000 requests a second with keys that nobody has
    #[arg(long, conflicts_with = "keys")]
    pub strangers: bool,
    /// Worker threads of each service; 0 leaves it to them. The yardstick always has as many as there are CPUs
    #[arg(long, default_value_t = 0)]
    pub workers: usize,
    /// Fail where a bound is missed
    #[arg(long)]
    pub gate: bool,
}

/// A server under a name; the processes that work for it are measured with it.
struct Variant<'a> {
    name: &'static str,
    url: String,
    /// The one that wrk talks to, then those behind it.
    pids: Vec<u32>,
    keys: &'a wrk::Keys,
    addresses: &'a Addresses,
}

/// Builds, starts, seeds and measures; gives back what must hold.
pub async fn run(options: &Options) -> anyhow::Result<Vec<Gate>> {
    ensure!(e2e::tools::require_tool("wrk"), "wrk is missing: it is Debian's package of that name");
    programs::build().await?;
    match options.keys {
        None if options.strangers => beside_strangers(options).await,
        None => compare_with_hello(options).await,
        Some(keys) => compare_numbers_of_keys(options, keys).await,
    }
}

async fn compare_with_hello(options: &Options) -> anyhow::Result<Vec<Gate>> {
    let hello = Server::hello().await?;
    let chain = Chain::start(KEYS, KEYS, options.workers, &Limits::default()).await?;
    let unbatched = chain.another_lookup(&["--no-batching"]).await?;
    let mut database = tempfile::Builder::new().suffix(".mmdb").tempfile()?;
    database.write_all(&places::database())?;
    let everywhere = chain.another_lookup(&["--geo-db", &database.path().to_string_lossy()]).await?;
    let (few, many) = (Addresses::write(places::SAMPLE)?, Addresses::write(places::addresses())?);
    let yardstick = Variant {
        name: report::HELLO,
        url: hello.url("/"),
        pids: vec![hello.pid()],
        keys: chain.keys(),
        addresses: &few,
    };
    let variants = [
        yardstick,
        chain.variant(report::CHAIN, chain.lookup(), &few),
        chain.variant(report::UNBATCHED, &unbatched, &few),
        chain.variant(report::EVERYWHERE, &everywhere, &many),
    ];
    let rounds = measure_all(options, &variants, &CONNECTIONS).await?;
    report::print(&rounds, variants.each_ref().map(|variant| variant.name).as_slice());
    let memory = wrk::memory_under_load(&variants[1], MANY, options.seconds).await?;
    println!(
        "memory with {MANY} connections open: lookup-svc {:.1} MiB, quota-svc {:.1} MiB",
        memory[0], memory[1]
    );
    Ok(report::gates(&rounds, memory[0]))
}

/// One connection with valid keys: alone, beside malformed keys, beside well-formed ones that nobody has.
async fn beside_strangers(options: &Options) -> anyhow::Result<Vec<Gate>> {
    let chain = Chain::start(KEYS, KEYS, options.workers, &Limits::default()).await?;
    let addresses = Addresses::write(places::SAMPLE)?;
    let turns = [
        (report::ALONE, None),
        (report::MALFORMED, Some(Tried::Malformed)),
        (report::UNKNOWN, Some(Tried::Unknown)),
    ];
    let mut rounds = Vec::new();
    Wrk { connections: 1, seconds: 1 }.run(&chain.variant(report::ALONE, chain.lookup(), &addresses)).await?;
    for number in 1..=options.rounds {
        for (name, tried) in turns {
            let strangers = tried.map(|tried| Strangers::start(chain.lookup().addr(), tried));
            let variant = chain.variant(name, chain.lookup(), &addresses);
            let round = Wrk { connections: 1, seconds: options.seconds }.run(&variant).await?;
            let beside = match strangers {
                Some(strangers) => format!(", {} strangers a second", thousands(strangers.stop()?)),
                None => String::new(),
            };
            println!("round {number} of {}: {round}{beside}", options.rounds);
            rounds.push(round);
        }
    }
    report::print(&rounds, &turns.map(|(name, _)| name));
    Ok(report::gates_of_strangers(&rounds))
}

/// Limits beyond what a run can reach, on both sides: 1,000 keys would exceed 300 a minute within seconds. And lists of
/// the same length: reading a long one slows wrk down, and with it everything on these processors.
async fn compare_numbers_of_keys(options: &Options, many: usize) -> anyhow::Result<Vec<Gate>> {
    let limits = Limits { burst: 60_000, daily: 1_000_000_000, ..Limits::default() };
    let few = Chain::start(FEW_KEYS, many, options.workers, &limits).await?;
    let many = Chain::start(many, many, options.workers, &limits).await?;
    let addresses = Addresses::write(places::SAMPLE)?;
    let variants = [
        few.variant(report::FEW, few.lookup(), &addresses),
        many.variant(report::MANY, many.lookup(), &addresses),
    ];
    let rounds = measure_all(options, &variants, &CONNECTIONS[..1]).await?;
    report::print(&rounds, &[report::FEW, report::MANY]);
    Ok(report::gates_of_keys(&rounds))
}

async fn measure_all(
    options: &Options,
    variants: &[Variant<'_>],
    connections: &[usize],
) -> anyhow::Result<Vec<Round>> {
    let mut rounds = Vec::new();
    for variant in variants {
        Wrk { connections: connections[0], seconds: 1 }.run(variant).await?;
    }
    for number in 1..=options.rounds {
        for &connections in connections {
            for variant in variants {
                let round = Wrk { connections, seconds: options.seconds }.run(variant).await?;
                println!("round {number} of {}: {round}", options.rounds);
                rounds.push(round);
            }
        }
    }
    Ok(rounds)
}
