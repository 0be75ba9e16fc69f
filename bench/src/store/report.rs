//! The result table of the store benchmark, and its required bounds.

use super::IN_FLIGHT;
use crate::gate::Gate;
use crate::stats::{median, median_ratio};
use crate::table::{table, thousands};

/// Single INCRs from concurrent tasks, pipelined by their shared connection: like a service that counts with INCR.
pub const INCR: &str = "INCR";
/// Explicit pipelines of the same size as the batches of charges: the minimum cost of a command.
pub const INCR_PIPELINES: &str = "INCR, explicit pipelines";
pub const CHARGE_REDIS: &str = "charge, Redis";
pub const CHARGE_CLUSTER: &str = "charge, Redis Cluster";
pub const CHARGE_EMBEDDED: &str = "charge, embedded";

const HEADER: [&str; 9] = [
    "variant",
    "in flight",
    "per second",
    "x INCR",
    "x charge, Redis",
    "p50 us",
    "p99 us",
    "Redis CPU us",
    "client CPU us",
];

/// One measurement of one variant.
pub struct Measurement {
    pub variant: &'static str,
    pub in_flight: usize,
    /// Charges or INCRs per second.
    pub rate: f64,
    /// Latency in microseconds.
    pub p50: f64,
    pub p99: f64,
    /// CPU time of this process per charge, in microseconds.
    pub client_cpu: f64,
    /// CPU time of Redis per charge, in microseconds.
    pub redis_cpu: f64,
}

/// Prints the medians.
pub fn print(measurements: &[Measurement], variants: &[&'static str]) {
    let mut table = table(&HEADER);
    for in_flight in IN_FLIGHT {
        for variant in variants {
            let median_of =
                |field: fn(&Measurement) -> f64| median(values(measurements, variant, in_flight, field));
            let rate_relative_to =
                |baseline| format!("{:.2}", ratio(measurements, variant, baseline, in_flight, |m| m.rate));
            table.add_row([
                (*variant).to_owned(),
                in_flight.to_string(),
                thousands(median_of(|m| m.rate)),
                rate_relative_to(INCR),
                rate_relative_to(CHARGE_REDIS),
                format!("{:.0}", median_of(|m| m.p50)),
                format!("{:.0}", median_of(|m| m.p99)),
                format!("{:.2}", median_of(|m| m.redis_cpu)),
                format!("{:.2}", median_of(|m| m.client_cpu)),
            ]);
        }
    }
    println!("{table}");
}

/// The bounds for charges on Redis.
pub fn gates(measurements: &[Measurement]) -> Vec<Gate> {
    let ratio = |in_flight, field| ratio(measurements, CHARGE_REDIS, INCR, in_flight, field);
    vec![
        Gate::at_least("charges per second relative to INCR, 50 in flight", ratio(50, |m| m.rate), 0.5),
        Gate::at_least("charges per second relative to INCR, 500 in flight", ratio(500, |m| m.rate), 0.5),
        Gate::at_most("p50 relative to INCR, 1 in flight", ratio(1, |m| m.p50), 1.5),
    ]
}

fn ratio(
    measurements: &[Measurement],
    variant: &str,
    baseline: &str,
    in_flight: usize,
    field: fn(&Measurement) -> f64,
) -> f64 {
    median_ratio(
        values(measurements, variant, in_flight, field),
        values(measurements, baseline, in_flight, field),
    )
}

fn values(
    measurements: &[Measurement],
    variant: &str,
    in_flight: usize,
    field: fn(&Measurement) -> f64,
) -> impl Iterator<Item = f64> {
    measurements.iter().filter(move |m| m.variant == variant && m.in_flight == in_flight).map(field)
}
