//! What a process costs, from /proc.

use std::fs;
use std::time::Duration;

/// Resident memory in bytes.
pub(super) fn rss(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// The most resident memory it ever had, in bytes.
pub(super) fn peak_rss(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, field: &str) -> u64 {
    let status = read(pid, "status");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a living process has memory");
    let kib = line.trim().strip_suffix(" kB").and_then(|n| n.parse::<u64>().ok()).expect("it is in kB");
    kib * 1024
}

/// User and kernel time.
pub(super) fn cpu_time(pid: u32) -> Duration {
    let stat = read(pid, "stat");
    // The name in brackets may hold anything; after it come the fields from the third on.
    let (_, fields) = stat.rsplit_once(')').expect("the name is in brackets");
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// Open file descriptors.
pub(super) fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("the process lives").count()
}

fn read(pid: u32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).expect("the process lives")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_process_has_memory_time_and_files() {
        let pid = std::process::id();
        let before = cpu_time(pid);
        while cpu_time(pid) < before + Duration::from_millis(30) {}
        assert!(rss(pid) > 500_000);
        assert!(open_files(pid) >= 3);
    }
}
