//! Memory, CPU time and open files of a process, from /proc.

use std::time::Duration;
use std::{fs, io};

/// Resident memory in bytes.
pub fn rss(pid: u32) -> io::Result<u64> {
    memory(pid, "VmRSS:")
}

/// Peak resident memory in bytes.
pub fn peak_rss(pid: u32) -> io::Result<u64> {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, field: &str) -> io::Result<u64> {
    let status = read(pid, "status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let line = line.ok_or_else(|| io::Error::other("the process has ended"))?;
    let kib = line.trim().strip_suffix(" kB").and_then(|n| n.parse::<u64>().ok()).expect("value in kB");
    Ok(kib * 1024)
}

/// CPU time, user and kernel.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let stat = read(pid, "stat")?;
    // The process name in parentheses may contain any character. The first field after it is field 3 of proc(5); utime
    // and stime are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(')').expect("name in parentheses");
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().expect("number of ticks")).sum();
    Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

/// Open file descriptors.
pub fn open_files(pid: u32) -> io::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

fn read(pid: u32, file: &str) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_usage_is_measured() {
        let pid = std::process::id();
        let before = cpu_time(pid).unwrap();
        while cpu_time(pid).unwrap() < before + Duration::from_millis(30) {}
        assert!(rss(pid).unwrap() > 500_000);
        assert!(open_files(pid).unwrap() >= 3);
        assert!(cpu_time(u32::MAX).is_err());
    }
}
