//! The table of the store's benchmark and its aims.

use super::IN_FLIGHT;
use crate::gate::Gate;
use crate::stats::{median, median_ratio};
use crate::table::{table, thousands};

/// Each caller sends its own and the connection pipelines them, as a service that counts by INCR would.
pub const INCR: &str = "INCR";
/// Whole pipelines made by hand, of the size of the charges' batches: the least that a command can cost.
pub const PIPELINES: &str = "INCR, whole pipelines";
pub const CHARGE: &str = "charge, Redis";
pub const EMBEDDED: &str = "charge, embedded";

const HEADER: [&str; 8] =
    ["variant", "in flight", "per second", "x INCR", "p50 us", "p99 us", "Redis CPU us", "client CPU us"];

/// One measurement.
pub struct Round {
    pub name: &'static str,
    pub in_flight: usize,
    pub rate: f64,
    pub p50: f64,
    pub p99: f64,
    pub client: f64,
    pub server: f64,
}

/// Prints the medians.
pub fn print(rounds: &[Round], names: &[&'static str]) {
    let mut table = table(&HEADER);
    for in_flight in IN_FLIGHT {
        for name in names {
            let of = |field: fn(&Round) -> f64| median(values(rounds, name, in_flight, field));
            table.add_row([
                (*name).to_owned(),
                in_flight.to_string(),
                thousands(of(|round| round.rate)),
                format!("{:.2}", ratio(rounds, name, in_flight, |round| round.rate)),
                format!("{:.0}", of(|round| round.p50)),
                format!("{:.0}", of(|round| round.p99)),
                format!("{:.2}", of(|round| round.server)),
                format!("{:.2}", of(|round| round.client)),
            ]);
        }
    }
    println!("{table}");
}

/// The aims of charging on Redis.
pub fn gates(rounds: &[Round]) -> Vec<Gate> {
    let charge = |in_flight, field| ratio(rounds, CHARGE, in_flight, field);
    vec![
        Gate::at_least("charges x INCR, 50 in flight", charge(50, |round| round.rate), 0.5),
        Gate::at_least("charges x INCR, 500 in flight", charge(500, |round| round.rate), 0.5),
        Gate::at_most("one charge's p50 x one INCR's", charge(1, |round| round.p50), 1.5),
    ]
}

fn ratio(rounds: &[Round], name: &str, in_flight: usize, field: fn(&Round) -> f64) -> f64 {
    median_ratio(values(rounds, name, in_flight, field), values(rounds, INCR, in_flight, field))
}

fn values(
    rounds: &[Round],
    name: &str,
    in_flight: usize,
    field: fn(&Round) -> f64,
) -> impl Iterator<Item = f64> {
    rounds.iter().filter(move |round| round.name == name && round.in_flight == in_flight).map(field)
}
