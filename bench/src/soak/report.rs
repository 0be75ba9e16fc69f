//! The report at the end of the soak test: a table, the errors by kind, memory, and the counter comparison.

use std::time::Duration;

use super::client_stats::ClientStats;
use super::target::CounterComparison;
use crate::gate::Gate;
use crate::table::{table, thousands};

/// Growth above this, after the warm-up, counts as a leak.
const MAX_GROWTH_MIB: f64 = 32.0;

pub fn print(
    stats: &[ClientStats],
    duration: Duration,
    names: [&str; 2],
    [warm_memory, final_memory]: [[f64; 2]; 2],
    comparison: &CounterComparison,
) {
    let mut rows =
        table(&["traffic", "requests", "expected", "errors", "wrong", "p50 ms", "p99 ms", "p99.9 ms"]);
    for traffic in stats {
        let counts = [traffic.requests(), traffic.expected, traffic.error_count(), traffic.wrong_count()];
        let latencies = [0.5, 0.99, 0.999].map(|share| format!("{:.2}", traffic.latency.percentile(share)));
        let cells = counts.map(|count| thousands(count as f64)).into_iter().chain(latencies);
        rows.add_row([format!("{:?}", traffic.kind).to_lowercase()].into_iter().chain(cells));
    }
    println!("{rows}");
    for traffic in stats {
        let errors = traffic.errors.iter().map(|entry| ("error", entry));
        for (label, (name, count)) in errors.chain(traffic.wrong.iter().map(|entry| ("WRONG", entry))) {
            println!("{label}, {:?}: {count} x {name}", traffic.kind);
        }
    }
    let requests: u64 = stats.iter().map(ClientStats::requests).sum();
    println!("{} requests in {:.0} s", thousands(requests as f64), duration.as_secs_f64());
    let memory = warm_memory.into_iter().zip(final_memory);
    for (name, (warm, at_end)) in names.iter().zip(memory) {
        println!("memory of {name}: {warm:.1} MiB after the warm-up, {at_end:.1} MiB at the end");
    }
    let CounterComparison { keys, counted, mismatched_keys, demo } = comparison;
    println!(
        "counters: {} requests on {keys} keys, {mismatched_keys} keys with a wrong counter",
        thousands(*counted as f64)
    );
    match demo {
        Some((counted, min, max)) => println!("demo: {counted} requests counted, expected {min} to {max}"),
        None => println!("demo: not compared, because the run crossed midnight UTC"),
    }
}

pub fn gates(
    stats: &[ClientStats],
    names: [&str; 2],
    [warm_memory, final_memory]: [[f64; 2]; 2],
    comparison: &CounterComparison,
) -> Vec<Gate> {
    let wrong: u64 = stats.iter().map(ClientStats::wrong_count).sum();
    let demo_mismatch = comparison.demo.is_some_and(|(counted, min, max)| !(min..=max).contains(&counted));
    let wrong_counters = comparison.mismatched_keys + usize::from(demo_mismatch);
    let growth = [0, 1].map(|n| {
        let name = format!("{} memory growth in MiB", names[n]);
        Gate::at_most(&name, final_memory[n] - warm_memory[n], MAX_GROWTH_MIB)
    });
    let failing = stats.iter().filter(|traffic| traffic.expected <= traffic.error_count()).count();
    let responses = [
        Gate::at_most("wrong responses", wrong as f64, 0.0),
        Gate::at_most(
            "kinds of traffic with at least as many errors as expected responses",
            failing as f64,
            0.0,
        ),
        Gate::at_most("wrong counters", wrong_counters as f64, 0.0),
    ];
    responses.into_iter().chain(growth).collect()
}
