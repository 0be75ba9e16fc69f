//! CPU time and memory of a process, in the units of the reports.

use anyhow::Context;
use testkit::process::usage;

/// CPU time of a process so far, user and kernel, in microseconds.
pub fn cpu_micros(pid: u32) -> anyhow::Result<f64> {
    let time = usage::cpu_time(pid).context("a measured process has exited")?;
    Ok(time.as_secs_f64() * 1e6)
}

/// Resident memory of a process in MiB.
pub fn rss_mib(pid: u32) -> anyhow::Result<f64> {
    let bytes = usage::rss(pid).context("a measured process has exited")?;
    Ok(bytes as f64 / f64::from(1 << 20))
}
