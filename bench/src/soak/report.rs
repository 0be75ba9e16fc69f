//! The soak's last words: a table, the errors by name, memory, and whether every count is exact.

use std::time::Duration;

use super::tally::Tally;
use super::target::Counts;
use crate::gate::Gate;
use crate::table::{table, thousands};

/// More than this after the warm-up is a leak.
const MAY_GROW_MIB: f64 = 32.0;

/// Prints all that was seen.
pub fn print(tallies: &[Tally], took: Duration, before: [f64; 2], after: [f64; 2], counts: &Counts) {
    let mut rows =
        table(&["traffic", "requests", "right", "errors", "wrong", "p50 ms", "p99 ms", "p99.9 ms"]);
    for tally in tallies {
        let numbers =
            [tally.right + tally.failed() + tally.wrongs(), tally.right, tally.failed(), tally.wrongs()];
        let latencies = [0.5, 0.99, 0.999].map(|share| format!("{:.2}", tally.latency.percentile(share)));
        let cells = numbers.map(|number| thousands(number as f64)).into_iter().chain(latencies);
        rows.add_row([format!("{:?}", tally.kind).to_lowercase()].into_iter().chain(cells));
    }
    println!("{rows}");
    for tally in tallies {
        let named = tally.errors.iter().map(|seen| ("error", seen));
        for (what, (name, count)) in named.chain(tally.wrong.iter().map(|seen| ("WRONG", seen))) {
            println!("{what} of {:?}: {count} x {name}", tally.kind);
        }
    }
    let requests: u64 = tallies.iter().map(|tally| tally.right + tally.failed() + tally.wrongs()).sum();
    println!("{} requests in {:.0} s", thousands(requests as f64), took.as_secs_f64());
    for (name, (before, after)) in ["lookup-svc", "quota-svc"].iter().zip(before.into_iter().zip(after)) {
        println!("memory of {name}: {before:.1} MiB when warm, {after:.1} MiB at the end");
    }
    let Counts { keys, counted, differing, demo } = counts;
    println!("counters: {} requests on {keys} keys, {differing} keys differ", thousands(*counted as f64));
    match demo {
        Some((counted, least, most)) => println!("the demo: {counted} counted, {least} to {most} are right"),
        None => println!("the demo: not compared, midnight came between"),
    }
}

/// What must hold.
pub fn gates(tallies: &[Tally], before: [f64; 2], after: [f64; 2], counts: &Counts) -> Vec<Gate> {
    let wrong: u64 = tallies.iter().map(Tally::wrongs).sum();
    let demo_differs = counts.demo.is_some_and(|(counted, least, most)| !(least..=most).contains(&counted));
    let differing = counts.differing + usize::from(demo_differs);
    vec![
        Gate::at_most("wrong answers", wrong as f64, 0.0),
        Gate::at_most("counters that differ", differing as f64, 0.0),
        Gate::at_most("lookup-svc has grown by MiB", after[0] - before[0], MAY_GROW_MIB),
        Gate::at_most("quota-svc has grown by MiB", after[1] - before[1], MAY_GROW_MIB),
    ]
}
