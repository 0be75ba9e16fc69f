//! The table of the chain's benchmark and what must hold.

use std::fmt;

use crate::gate::Gate;
use crate::stats::{median, median_ratio};
use crate::table::{table, thousands};

pub const HELLO: &str = "hello";
pub const CHAIN: &str = "lookup + quota + Redis";
pub const UNBATCHED: &str = "the same, unbatched";
pub const EVERYWHERE: &str = "batched, 20,000 networks";
pub const ALONE: &str = "valid keys";
pub const MALFORMED: &str = "beside malformed keys";
pub const UNKNOWN: &str = "beside unknown keys";
pub const FEW: &str = "1,000 keys";
pub const MANY: &str = "--keys";

const HEADER: [&str; 8] = ["variant", "c", "rps", "x first", "p50 us", "p99 us", "CPU us/request", "in all"];

/// One measurement.
pub struct Round {
    pub name: &'static str,
    pub connections: usize,
    pub rps: f64,
    pub p50: f64,
    pub p99: f64,
    /// Processor time a request of each process, in microseconds.
    pub cpu: Vec<f64>,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} connections: {} rps", self.name, self.connections, thousands(self.rps))
    }
}

/// Prints the medians; ratios are to the first of the names.
pub fn print(rounds: &[Round], names: &[&'static str]) {
    let mut table = table(&HEADER);
    for connections in [64, 1] {
        for name in names {
            let Some(first) = of(rounds, name, connections).next() else { continue };
            let rps = |name| of(rounds, name, connections).map(|round| round.rps);
            let middle = |field: fn(&Round) -> f64| median(of(rounds, name, connections).map(field));
            let cpu: Vec<f64> = (0..first.cpu.len())
                .map(|n| median(of(rounds, name, connections).map(|r| r.cpu[n])))
                .collect();
            table.add_row([
                (*name).to_owned(),
                connections.to_string(),
                thousands(middle(|round| round.rps)),
                format!("{:.2}", median_ratio(rps(name), rps(names[0]))),
                thousands(middle(|round| round.p50)),
                thousands(middle(|round| round.p99)),
                cpu.iter().map(|cpu| format!("{cpu:.1}")).collect::<Vec<_>>().join(" + "),
                format!("{:.1}", cpu.iter().sum::<f64>()),
            ]);
        }
    }
    println!("{table}");
}

/// What must hold of the chain.
pub fn gates(rounds: &[Round], lookup_mib: f64) -> Vec<Gate> {
    let rps = |name| of(rounds, name, 64).map(|round| round.rps);
    let p50 = |name| median(of(rounds, name, 1).map(|round| round.p50));
    let cpu = median(of(rounds, CHAIN, 64).map(|round| round.cpu.iter().sum()));
    vec![
        Gate::at_least("rps x hello, c=64", median_ratio(rps(CHAIN), rps(HELLO)), 0.40),
        Gate::at_least("rps x unbatched, c=64", median_ratio(rps(CHAIN), rps(UNBATCHED)), 2.0),
        Gate::at_most("p50 above hello's in us, c=1", p50(CHAIN) - p50(HELLO), 130.0),
        Gate::at_most("CPU us a request, c=64", cpu, 30.0),
        Gate::at_most("MiB of lookup-svc, 1,000 connections", lookup_mib, 60.0),
    ]
}

/// What must hold of many keys.
pub fn gates_of_keys(rounds: &[Round]) -> Vec<Gate> {
    let rps = |name| of(rounds, name, 64).map(|round| round.rps);
    vec![Gate::at_least("rps with many keys x with 1,000", median_ratio(rps(MANY), rps(FEW)), 0.90)]
}

/// What must hold of valid keys beside strangers.
pub fn gates_of_strangers(rounds: &[Round]) -> Vec<Gate> {
    let p99 = |name| of(rounds, name, 1).map(|round| round.p99);
    [MALFORMED, UNKNOWN]
        .map(|name| Gate::at_most(&format!("p99 {name} x alone"), median_ratio(p99(name), p99(ALONE)), 1.20))
        .into()
}

fn of<'a>(rounds: &'a [Round], name: &str, connections: usize) -> impl Iterator<Item = &'a Round> {
    rounds.iter().filter(move |round| round.name == name && round.connections == connections)
}
