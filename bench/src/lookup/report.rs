//! The result table of the lookup benchmark, and its required bounds.

use std::fmt;

use crate::gate::Gate;
use crate::stats::{median, median_ratio};
use crate::table::{table, thousands};

pub const HELLO: &str = "hello";
pub const CHAIN: &str = "lookup + quota + Redis";
pub const SAMPLE: &str = "the same, small sample";
pub const UNBATCHED: &str = "small sample, unbatched";
pub const IP_LOOKUP: &str = "ip-lookup";
pub const IP_LOOKUP_REDIS: &str = "ip-lookup, Redis";
pub const NGINX_GEO: &str = "nginx, geoip2";
pub const NGINX_KEYS: &str = "nginx, geoip2, Lua, Redis";
pub const OTHER: &str = "--against";
pub const OTHER_SAMPLE: &str = "--against, small sample";
pub const OTHER_SAMPLE_AGAIN: &str = "--against, small sample, again";
pub const OTHER_IP_LOOKUP: &str = "--against, ip-lookup";
pub const NO_LOAD: &str = "valid keys";
pub const MALFORMED: &str = "with malformed-key load";
pub const UNKNOWN: &str = "with unknown-key load";
pub const FEW_KEYS: &str = "1,000 keys";
pub const MANY_KEYS: &str = "--keys";
pub const ONE_PAIR: &str = "one pair";
pub const TWO_PAIRS: &str = "two pairs";
pub const ONE_PAIR_CLUSTER: &str = "one pair, Cluster";
pub const HTTP: &str = "HTTP";
pub const HTTPS: &str = "HTTPS";
pub const NEW_HTTP: &str = "HTTP, new";
pub const NEW_HTTPS: &str = "HTTPS, new";
pub const RESUMED: &str = "HTTPS, new, resumed";

const HEADER: [&str; 8] = ["variant", "c", "rps", "x first", "p50 us", "p99 us", "CPU us/request", "total"];

/// One measurement of one variant.
pub struct Measurement {
    pub variant: &'static str,
    pub connections: usize,
    /// Requests per second.
    pub rps: f64,
    /// Latency in microseconds.
    pub p50: f64,
    pub p99: f64,
    /// CPU time per request of each process, in microseconds.
    pub cpu: Vec<f64>,
    /// Steal time as a share of the machine's CPU time.
    pub steal: f64,
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} connections: {} rps", self.variant, self.connections, thousands(self.rps))?;
        if self.steal >= 0.01 { write!(f, ", {:.0}% steal time", self.steal * 100.0) } else { Ok(()) }
    }
}

/// Prints the medians. Ratios are relative to the first variant.
pub fn print(measurements: &[Measurement], variants: &[&'static str]) {
    let mut table = table(&HEADER);
    for connections in [64, 1] {
        for variant in variants {
            let select = |variant| select(measurements, variant, connections);
            let Some(first) = select(variant).next() else { continue };
            let rps = |variant| select(variant).map(|m| m.rps);
            let median_of = |field: fn(&Measurement) -> f64| median(select(variant).map(field));
            let cpu: Vec<f64> =
                (0..first.cpu.len()).map(|n| median(select(variant).map(|m| m.cpu[n]))).collect();
            table.add_row([
                (*variant).to_owned(),
                connections.to_string(),
                thousands(median_of(|m| m.rps)),
                format!("{:.2}", median_ratio(rps(variant), rps(variants[0]))),
                thousands(median_of(|m| m.p50)),
                thousands(median_of(|m| m.p99)),
                cpu.iter().map(|cpu| format!("{cpu:.1}")).collect::<Vec<_>>().join(" + "),
                format!("{:.1}", cpu.iter().sum::<f64>()),
            ]);
        }
    }
    println!("{table}");
    let steal = || measurements.iter().map(|m| m.steal * 100.0);
    println!(
        "steal time (CPU time that the host gave to others): {:.1}% (median), {:.1}% (maximum)",
        median(steal()),
        steal().fold(0.0, f64::max)
    );
}

/// The rate of one variant relative to another, with 64 connections.
pub fn rate_ratio(measurements: &[Measurement], variant: &str, baseline: &str) -> f64 {
    let rps = |variant| select(measurements, variant, 64).map(|m| m.rps);
    median_ratio(rps(variant), rps(baseline))
}

/// The bounds for the chain, on the sample and on realistic data (the main row), and for ip-lookup on the latter.
pub fn chain_gates(measurements: &[Measurement], lookup_mib: f64) -> Vec<Gate> {
    let ratio = |variant, baseline| rate_ratio(measurements, variant, baseline);
    let p50 = |variant| median(select(measurements, variant, 1).map(|m| m.p50));
    let p99 = |variant| select(measurements, variant, 64).map(|m| m.p99);
    let cpu = |variant| median(select(measurements, variant, 64).map(|m| m.cpu.iter().sum()));
    vec![
        Gate::at_least("sample: rps relative to hello, c=64", ratio(SAMPLE, HELLO), 0.55),
        Gate::at_most("sample: CPU us per request, c=64", cpu(SAMPLE), 23.0),
        Gate::at_most("sample: p50 minus p50 of hello in us, c=1", p50(SAMPLE) - p50(HELLO), 90.0),
        Gate::at_least("sample: rps relative to unbatched, c=64", ratio(SAMPLE, UNBATCHED), 2.0),
        Gate::at_least("main row: rps relative to hello, c=64", ratio(CHAIN, HELLO), 0.48),
        Gate::at_most("main row: CPU us per request, c=64", cpu(CHAIN), 20.0),
        Gate::at_most("main row: p50 minus p50 of hello in us, c=1", p50(CHAIN) - p50(HELLO), 70.0),
        Gate::at_least("main row: rps relative to nginx with Lua, c=64", ratio(CHAIN, NGINX_KEYS), 1.9),
        Gate::at_most("main row: p99 relative to hello, c=64", median_ratio(p99(CHAIN), p99(HELLO)), 2.0),
        Gate::at_least("ip-lookup: rps relative to hello, c=64", ratio(IP_LOOKUP, HELLO), 0.55),
        Gate::at_most("ip-lookup: p50 minus p50 of hello in us, c=1", p50(IP_LOOKUP) - p50(HELLO), 35.0),
        Gate::at_most("memory of lookup-svc in MiB, 1,000 connections", lookup_mib, 60.0),
    ]
}

/// The bound for `--keys`.
pub fn key_count_gates(measurements: &[Measurement]) -> Vec<Gate> {
    let rps = |variant| select(measurements, variant, 64).map(|m| m.rps);
    let ratio = median_ratio(rps(MANY_KEYS), rps(FEW_KEYS));
    vec![Gate::at_least("rps with --keys relative to rps with 1,000 keys", ratio, 0.95)]
}

/// The bounds for `--unknown-keys`.
pub fn unknown_key_gates(measurements: &[Measurement]) -> Vec<Gate> {
    let p99 = |variant| select(measurements, variant, 1).map(|m| m.p99);
    [MALFORMED, UNKNOWN]
        .map(|variant| {
            let ratio = median_ratio(p99(variant), p99(NO_LOAD));
            Gate::at_most(&format!("p99 {variant} relative to p99 without load"), ratio, 1.20)
        })
        .into()
}

fn select<'m>(
    measurements: &'m [Measurement],
    variant: &str,
    connections: usize,
) -> impl Iterator<Item = &'m Measurement> {
    measurements.iter().filter(move |m| m.variant == variant && m.connections == connections)
}
