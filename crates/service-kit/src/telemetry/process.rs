//! Metrics of the process, read from /proc at each scrape.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// In Prometheus text format. `None` without /proc.
pub fn prometheus_text() -> Option<String> {
    let (stat, system) =
        (fs::read_to_string("/proc/self/stat").ok()?, fs::read_to_string("/proc/stat").ok()?);
    // The fields from the 4th on, see proc(5). The 2nd, the name in parentheses, may contain spaces.
    let fields: Vec<f64> =
        stat.rsplit_once(") ")?.1.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    let field = |number: usize| fields.get(number - 4).copied();
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
    let ticks = clock_ticks_per_second() as f64;
    // Without the descriptor of the directory itself.
    let open = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64;
    let limit = getrlimit(Resource::Nofile).current.map_or(f64::INFINITY, |limit| limit as f64);
    let metrics = [
        ("cpu_seconds_total", "counter", "User and system CPU time.", (field(14)? + field(15)?) / ticks),
        ("open_fds", "gauge", "Open file descriptors.", open),
        ("max_fds", "gauge", "Maximum number of open file descriptors.", limit),
        ("virtual_memory_bytes", "gauge", "Virtual memory size.", field(23)?),
        ("resident_memory_bytes", "gauge", "Resident memory size.", field(24)? * page_size() as f64),
        ("start_time_seconds", "gauge", "Start time, in seconds since 1970.", boot + field(22)? / ticks),
        ("threads", "gauge", "Threads.", field(20)?),
    ];
    let lines = metrics.map(|(name, kind, help, value)| {
        format!("# HELP process_{name} {help}\n# TYPE process_{name} {kind}\nprocess_{name} {value}\n")
    });
    Some(lines.concat())
}
