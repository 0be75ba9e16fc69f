//! The lookup benchmark: runs wrk against a minimal server and against variants of the chain (lookup-svc, quota-svc
//! and Redis).

mod capacity;
mod chain;
mod client;
mod growth;
mod https;
mod ip_lookup;
mod locations;
mod nginx;
pub(crate) mod programs;
mod report;
pub(crate) mod servers;
mod transfer;
mod unknown_keys;
mod wrk;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use tempfile::NamedTempFile;

use crate::gate::Gate;
use crate::table::thousands;
use chain::Chain;
pub(crate) use chain::Programs;
pub(crate) use chain::{connect_store, open_file};
use ip_lookup::IpLookup;
pub(crate) use locations::client_addresses;
use nginx::{Databases, Nginx};
use quota_client::wire::Limits;
use report::Measurement;
use servers::Server;
use testkit::redis::Redis;
use unknown_keys::{InvalidKey, InvalidKeyLoad};
use wrk::{AddressFile, KeyFile, Wrk};

/// Numbers of connections that wrk keeps busy.
const CONNECTIONS: [usize; 2] = [64, 1];

/// Connections during the memory measurement.
const MEMORY_CONNECTIONS: usize = 1000;

/// Enough that no key exceeds its burst limit.
const KEYS: usize = 20_000;

/// The number of keys that `--keys` is compared with.
const FEW_KEYS: usize = 1000;

/// Measures lookup-svc, quota-svc and Redis together, with wrk as the client. Everything runs on loopback and is
/// stopped automatically.
#[derive(clap::Parser, Debug)]
#[command(name = "lookup-bench")]
pub struct Options {
    /// Seconds per measurement
    #[arg(long, default_value_t = 2)]
    pub seconds: u64,
    /// Number of times to measure each variant; the medians are reported
    #[arg(long, default_value_t = 9)]
    pub rounds: usize,
    /// Only compare a store of N keys with a store of 1,000, and export and import the N keys
    #[arg(long, value_name = "N")]
    pub keys: Option<usize>,
    /// Only measure requests with valid keys: alone, and next to 10,000 requests per second with malformed or unknown
    /// keys
    #[arg(long, alias = "strangers", conflicts_with = "keys")]
    pub unknown_keys: bool,
    /// Only compare HTTPS with plain HTTP: requests on open connections, new connections, memory of idle connections
    #[arg(long, conflicts_with_all = ["keys", "unknown_keys", "against"])]
    pub https: bool,
    /// Only measure the memory of 10,000 idle connections, and the time from a start to the first lookup
    #[arg(long, conflicts_with_all = ["keys", "unknown_keys", "https", "against"])]
    pub capacity: bool,
    /// Only compare one lookup-svc with two, each with its quota-svc, and one Redis server with a Cluster
    #[arg(long, conflicts_with_all = ["keys", "unknown_keys", "https", "capacity", "against"])]
    pub growth: bool,
    /// Only compare these programs with those in a directory, such as the build of an earlier commit (absolute path)
    #[arg(long, value_name = "DIR", value_parser = programs::absolute_dir, conflicts_with_all = ["keys", "unknown_keys"])]
    pub against: Option<PathBuf>,
    /// Measure the programs in this directory instead of building them, such as those of a release (absolute path)
    #[arg(long, value_name = "DIR", value_parser = programs::absolute_dir)]
    pub programs: Option<PathBuf>,
    /// Worker threads per service; 0 means the service's default. The baseline always has one per CPU
    #[arg(long, default_value_t = 0)]
    pub workers: usize,
    /// Exit with an error if a bound is missed
    #[arg(long)]
    pub gate: bool,
}

impl Options {
    fn programs(&self) -> Programs {
        Programs { dir: self.programs.clone(), workers: self.workers }
    }
}

/// A server to measure, together with the processes behind it.
struct Variant<'a> {
    name: &'static str,
    /// One wrk runs for each.
    urls: Vec<String>,
    /// The process that wrk sends requests to, then those behind it.
    pids: Vec<u32>,
    keys: &'a KeyFile,
    addresses: &'a AddressFile,
}

/// Builds and starts everything, creates the keys, and measures. Returns the gates.
pub async fn run(options: &Options) -> anyhow::Result<Vec<Gate>> {
    ensure!(testkit::tools::require_tool("wrk"), "wrk is missing; install the Debian package `wrk`");
    let one_pair_only = options.unknown_keys || options.https || options.capacity || options.growth;
    let ip_lookup = options.keys.is_none() && !one_pair_only;
    programs::build(options.programs.as_deref(), ip_lookup).await?;
    match options.keys {
        None if options.against.is_some() => compare_with_other_programs(options).await,
        None if options.https => https::compare(options).await,
        None if options.capacity => capacity::measure(options).await,
        None if options.growth => growth::compare(options).await,
        None if options.unknown_keys => measure_with_invalid_key_load(options).await,
        None => compare_with_hello(options).await,
        Some(keys) => compare_key_counts(options, keys).await,
    }
}

async fn compare_with_hello(options: &Options) -> anyhow::Result<Vec<Gate>> {
    let hello = Server::hello().await?;
    let world = World::write()?;
    let chain = Chain::start(KEYS, KEYS, options.programs(), &Limits::default()).await?;
    let flags = world.flags();
    let flags = flags.each_ref().map(String::as_str);
    let realistic = chain.start_lookup(&flags).await?;
    let ip_lookup = IpLookup::start(&options.programs(), None, &flags).await?;
    let redis = Some(Redis::start().await);
    let ip_lookup_redis = IpLookup::start(&options.programs(), redis, &flags).await?;
    let unbatched = chain.start_lookup(&["--quota-batch", "1", "--quota-in-flight", "4096"]).await?;
    let sample_addresses = AddressFile::write(locations::SAMPLE)?;
    let nginx_geo = Nginx::geo_only(&world.databases()).await?;
    let nginx_keys = Nginx::with_keys(&world.databases(), &chain.keys().read()?).await?;
    let nginx = |name, nginx: &Nginx| Variant {
        name,
        urls: vec![nginx.url()],
        pids: nginx.pids(),
        keys: chain.keys(),
        addresses: &world.addresses,
    };
    let baseline = Variant {
        name: report::HELLO,
        urls: vec![hello.url("/")],
        pids: vec![hello.pid()],
        keys: chain.keys(),
        addresses: &sample_addresses,
    };
    let variants = [
        baseline,
        chain.variant(report::CHAIN, &realistic, &world.addresses),
        chain.variant(report::SAMPLE, chain.lookup(), &sample_addresses),
        chain.variant(report::UNBATCHED, &unbatched, &sample_addresses),
        ip_lookup.variant(report::IP_LOOKUP, &world.addresses),
        ip_lookup_redis.variant(report::IP_LOOKUP_REDIS, &world.addresses),
        nginx(report::NGINX_GEO, &nginx_geo),
        nginx(report::NGINX_KEYS, &nginx_keys),
    ];
    let measurements = measure_all(options, &variants, &CONNECTIONS).await?;
    report::print(&measurements, variants.each_ref().map(|variant| variant.name).as_slice());
    let memory = wrk::memory_under_load(&variants[2], MEMORY_CONNECTIONS, options.seconds).await?;
    println!(
        "memory with {MEMORY_CONNECTIONS} connections and the sample: lookup-svc {:.1} MiB, quota-svc {:.1} MiB",
        memory[0], memory[1]
    );
    Ok(report::chain_gates(&measurements, memory[0]))
}

/// The realistic databases and client addresses, as files.
pub(crate) struct World {
    city: NamedTempFile,
    asn: NamedTempFile,
    addresses: AddressFile,
}

impl World {
    pub(crate) fn write() -> anyhow::Result<Self> {
        println!("building databases with the size of GeoLite2-City and GeoLite2-ASN");
        let file = |bytes: Vec<u8>| -> anyhow::Result<_> {
            println!("{:.0} MB", bytes.len() as f64 / 1e6);
            let mut file = tempfile::Builder::new().suffix(".mmdb").tempfile()?;
            file.write_all(&bytes)?;
            Ok(file)
        };
        Ok(Self {
            city: file(locations::city_database())?,
            asn: file(locations::asn_database())?,
            addresses: AddressFile::write(locations::client_addresses())?,
        })
    }

    /// The flags of lookup-svc.
    pub(crate) fn flags(&self) -> [String; 4] {
        let path = |file: &NamedTempFile| file.path().to_string_lossy().into_owned();
        ["--geo-db".to_owned(), path(&self.city), "--geo-db".to_owned(), path(&self.asn)]
    }

    fn databases(&self) -> Databases<'_> {
        Databases { city: self.city.path(), asn: self.asn.path() }
    }
}

/// Measures one connection with valid keys: first without background load, then with a load of malformed keys, then
/// with a load of well-formed but unknown keys.
async fn measure_with_invalid_key_load(options: &Options) -> anyhow::Result<Vec<Gate>> {
    let chain = Chain::start(KEYS, KEYS, options.programs(), &Limits::default()).await?;
    let addresses = AddressFile::write(locations::SAMPLE)?;
    let loads = [
        (report::NO_LOAD, None),
        (report::MALFORMED, Some(InvalidKey::Malformed)),
        (report::UNKNOWN, Some(InvalidKey::Unknown)),
    ];
    let mut measurements = Vec::new();
    let warm_up = chain.variant(report::NO_LOAD, chain.lookup(), &addresses);
    Wrk { connections: 1, seconds: 1 }.run(&warm_up).await?;
    for round in 1..=options.rounds {
        for (name, invalid_key) in loads {
            let load = invalid_key.map(|kind| InvalidKeyLoad::start(chain.lookup().addr(), kind));
            let variant = chain.variant(name, chain.lookup(), &addresses);
            let measurement = Wrk { connections: 1, seconds: options.seconds }.run(&variant).await?;
            let load_rate = match load {
                Some(load) => format!(", {} invalid keys per second", thousands(load.stop()?)),
                None => String::new(),
            };
            println!("round {round} of {}: {measurement}{load_rate}", options.rounds);
            measurements.push(measurement);
        }
    }
    report::print(&measurements, &loads.map(|(name, _)| name));
    Ok(report::unknown_key_gates(&measurements))
}

/// Compares these programs with those of `--against`, on the realistic data and on the sample. Two chains run the other
/// programs: their difference is the spread.
async fn compare_with_other_programs(options: &Options) -> anyhow::Result<Vec<Gate>> {
    let hello = Server::hello().await?;
    let world = World::write()?;
    let flags = world.flags();
    let flags = flags.each_ref().map(String::as_str);
    let other = Programs { dir: options.against.clone(), ..options.programs() };
    let limits = Limits::default();
    let first = Chain::start(KEYS, KEYS, other.clone(), &limits).await?;
    let second = Chain::start(KEYS, KEYS, other.clone(), &limits).await?;
    let this = Chain::start(KEYS, KEYS, options.programs(), &limits).await?;
    let (other_realistic, this_realistic) =
        (first.start_lookup(&flags).await?, this.start_lookup(&flags).await?);
    let mut ip_lookups = Vec::new();
    if other.path("ip-lookup").is_file() {
        for (name, programs) in [(report::OTHER_IP_LOOKUP, other), (report::IP_LOOKUP, options.programs())] {
            ip_lookups.push((name, IpLookup::start(&programs, None, &flags).await?));
        }
    }
    let addresses = AddressFile::write(locations::SAMPLE)?;
    let baseline = Variant {
        name: report::HELLO,
        urls: vec![hello.url("/")],
        pids: vec![hello.pid()],
        keys: this.keys(),
        addresses: &addresses,
    };
    let mut variants = vec![
        baseline,
        first.variant(report::OTHER, &other_realistic, &world.addresses),
        this.variant(report::CHAIN, &this_realistic, &world.addresses),
        first.variant(report::OTHER_SAMPLE, first.lookup(), &addresses),
        second.variant(report::OTHER_SAMPLE_AGAIN, second.lookup(), &addresses),
        this.variant(report::SAMPLE, this.lookup(), &addresses),
    ];
    variants.extend(ip_lookups.iter().map(|(name, program)| program.variant(name, &world.addresses)));
    let measurements = measure_all(options, &variants, &CONNECTIONS).await?;
    report::print(&measurements, &variants.iter().map(|variant| variant.name).collect::<Vec<_>>());
    let ratio = |this, other| report::rate_ratio(&measurements, this, other);
    println!(
        "rate relative to --against, 64 connections: {:.3} realistic, {:.3} sample (--against to itself: {:.3})",
        ratio(report::CHAIN, report::OTHER),
        ratio(report::SAMPLE, report::OTHER_SAMPLE),
        ratio(report::OTHER_SAMPLE_AGAIN, report::OTHER_SAMPLE),
    );
    match ip_lookups.is_empty() {
        true => println!("ip-lookup was not compared: the directory of --against has none"),
        false => println!("ip-lookup: {:.3}", ratio(report::IP_LOOKUP, report::OTHER_IP_LOOKUP)),
    }
    Ok(Vec::new())
}

/// Compares a store of `many` keys with a store of 1,000. Both have limits that no run can reach, because 1,000 keys
/// would exceed the default burst limit within seconds. wrk reads a list of the same length in both cases: a longer
/// list slows down wrk, and thus everything on the same CPUs. Finally exports and imports the keys.
async fn compare_key_counts(options: &Options, many: usize) -> anyhow::Result<Vec<Gate>> {
    let limits = Limits { burst: 60_000, daily: 1_000_000_000, ..Limits::default() };
    let few_keys = Chain::start(FEW_KEYS, many, options.programs(), &limits).await?;
    let many_keys = Chain::start(many, many, options.programs(), &limits).await?;
    let difference = used_memory(&many_keys).await? - used_memory(&few_keys).await?;
    let per_key = difference / (many as f64 - FEW_KEYS as f64);
    println!("memory of Redis per key, with a tenth of its account: {per_key:.0} bytes");
    let addresses = AddressFile::write(locations::SAMPLE)?;
    let variants = [
        few_keys.variant(report::FEW_KEYS, few_keys.lookup(), &addresses),
        many_keys.variant(report::MANY_KEYS, many_keys.lookup(), &addresses),
    ];
    let measurements = measure_all(options, &variants, &CONNECTIONS[..1]).await?;
    report::print(&measurements, &[report::FEW_KEYS, report::MANY_KEYS]);
    transfer::measure(many_keys, many, &options.programs()).await?;
    Ok(report::key_count_gates(&measurements))
}

/// Memory that the data of a chain's Redis server uses, in bytes.
async fn used_memory(chain: &Chain) -> anyhow::Result<f64> {
    let bytes = chain.redis().info("used_memory").await.map_err(anyhow::Error::msg)?;
    bytes.parse().context("INFO has a value that is not a number of bytes")
}

/// Warms up each variant, then measures all of them in every round.
async fn measure_all(
    options: &Options,
    variants: &[Variant<'_>],
    connections: &[usize],
) -> anyhow::Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    for variant in variants {
        Wrk { connections: connections[0], seconds: 1 }.run(variant).await?;
    }
    for round in 1..=options.rounds {
        for &connections in connections {
            for variant in variants {
                let measurement = Wrk { connections, seconds: options.seconds }.run(variant).await?;
                println!("round {round} of {}: {measurement}", options.rounds);
                measurements.push(measurement);
            }
        }
    }
    Ok(measurements)
}
