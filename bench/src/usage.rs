//! CPU time and memory of a process, in the units of the reports, and the steal time of the machine.

use std::fs;

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

/// CPU time of all CPUs so far, in ticks.
#[derive(Clone, Copy)]
pub struct MachineTime {
    total: u64,
    /// Steal time: this virtual machine was ready to run, but the host ran others.
    steal: u64,
}

impl MachineTime {
    pub fn now() -> anyhow::Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        Self::parse(&stat).context("/proc/stat has no CPU times")
    }

    /// Reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. The two guest fields
    /// after them are left out, because user and nice include them.
    fn parse(stat: &str) -> Option<Self> {
        let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<u64> = fields.take(8).map(|field| field.parse().ok()).collect::<Option<_>>()?;
        Some(Self { total: ticks.iter().sum(), steal: *ticks.get(7)? })
    }

    /// Steal time since `earlier`, as a share of all CPU time. The kernel's counters may decrease.
    pub fn steal_since(self, earlier: Self) -> f64 {
        let total = self.total.saturating_sub(earlier.total).max(1);
        self.steal.saturating_sub(earlier.steal) as f64 / total as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_share_counts_only_the_time_between_readings() {
        let earlier = MachineTime::parse("cpu  10 0 10 80 0 0 0 5 3 0\ncpu0 1").expect("CPU times");
        let later = MachineTime::parse("cpu  40 0 20 110 0 0 10 25 9 0\ncpu0 1").expect("CPU times");
        assert_eq!(later.steal_since(earlier), 0.2);
        assert!(MachineTime::parse("cpu  10 0 10 80").is_none());
        MachineTime::now().expect("Linux has CPU times");
    }
}
