//! Memory, CPU time and open files of a process, from /proc.

use std::fs;
use std::time::Duration;

/// Resident memory in bytes.
pub(super) fn rss(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// Peak resident memory in bytes.
pub(super) fn peak_rss(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, field: &str) -> u64 {
    let status = read(pid, "status");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("running process has memory");
    let kib = line.trim().strip_suffix(" kB").and_then(|n| n.parse::<u64>().ok()).expect("value in kB");
    kib * 1024
}

/// CPU time, user and kernel.
pub(super) fn cpu_time(pid: u32) -> Duration {
    let stat = read(pid, "stat");
    // The process name in parentheses may contain any character. The first field after it is field 3 of proc(5); utime
    // and stime are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(')').expect("name in parentheses");
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().expect("number of ticks")).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// Open file descriptors.
pub(super) fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("process is running").count()
}

fn read(pid: u32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).expect("process is running")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_usage_is_measured() {
        let pid = std::process::id();
        let before = cpu_time(pid);
        while cpu_time(pid) < before + Duration::from_millis(30) {}
        assert!(rss(pid) > 500_000);
        assert!(open_files(pid) >= 3);
    }
}
