//! CPU time and memory of a process, from /proc.

use std::fs;

use anyhow::Context;

/// CPU time of a process so far, user and kernel, in microseconds.
pub fn cpu_micros(pid: u32) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("a measured process has exited")?;
    // The process name is in parentheses and may contain any character, so split at the last `)`. The rest starts
    // with the third field; utime and stime are the 14th and 15th.
    let (_, fields) = stat.rsplit_once(')').context("/proc/PID/stat has no process name")?;
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = times.map(|n| n.parse::<u64>().unwrap_or(0)).sum();
    Ok(ticks as f64 * 1e6 / rustix::param::clock_ticks_per_second() as f64)
}

/// Resident memory of a process in MiB.
pub fn rss_mib(pid: u32) -> anyhow::Result<f64> {
    let status =
        fs::read_to_string(format!("/proc/{pid}/status")).context("a measured process has exited")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("/proc/PID/status has no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS is not a number of kB")?;
    Ok(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_uses_cpu_and_memory() {
        let pid = std::process::id();
        let before = cpu_micros(pid).unwrap();
        while cpu_micros(pid).unwrap() < before + 20_000.0 {}
        assert!(rss_mib(pid).unwrap() > 0.5);
        assert!(cpu_micros(u32::MAX).is_err());
    }
}
