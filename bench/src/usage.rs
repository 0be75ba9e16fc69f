//! What a process costs, from /proc.

use std::fs;

use anyhow::Context;

/// Processor time of a process so far, user and kernel, in microseconds.
pub fn cpu_micros(pid: u32) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("a measured process has ended")?;
    // The name in brackets may hold anything; after it come the fields from the third on.
    let (_, fields) = stat.rsplit_once(')').context("/proc/PID/stat has no name")?;
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = times.map(|n| n.parse::<u64>().unwrap_or(0)).sum();
    Ok(ticks as f64 * 1e6 / rustix::param::clock_ticks_per_second() as f64)
}

/// Resident memory of a process in MiB.
pub fn rss_mib(pid: u32) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("a measured process has ended")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("a process without VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS is in kB")?;
    Ok(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_process_costs_time_and_memory() {
        let pid = std::process::id();
        let before = cpu_micros(pid).unwrap();
        while cpu_micros(pid).unwrap() < before + 20_000.0 {}
        assert!(rss_mib(pid).unwrap() > 0.5);
        assert!(cpu_micros(u32::MAX).is_err());
    }
}
