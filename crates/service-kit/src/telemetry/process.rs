//! Metrics of the process and its build: `process_…`, with the names of Prometheus's own client libraries, and
//! `ip_lookup_build_info`.

use std::fs;

use opentelemetry::{KeyValue, metrics::Meter};
use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

use crate::build_info;

/// Registers the metrics. Those of the process are read at each scrape, and are absent where there is no /proc.
pub(super) fn publish(meter: &Meter, service: &'static str) {
    publish_build(meter, service);
    meter
        .f64_observable_counter("process_cpu")
        .with_unit("s")
        .with_description("CPU time of the process, user and kernel")
        .with_callback(|observer| {
            observe(Stat::read().map(|stat| stat.cpu_seconds), |v| observer.observe(v, &[]))
        })
        .build();
    meter
        .u64_observable_gauge("process_resident_memory")
        .with_unit("By")
        .with_description("Physical memory of the process")
        .with_callback(|observer| {
            observe(Stat::read().map(|stat| stat.resident_bytes), |v| observer.observe(v, &[]))
        })
        .build();
    meter
        .u64_observable_gauge("process_virtual_memory")
        .with_unit("By")
        .with_description("Virtual memory of the process")
        .with_callback(|observer| {
            observe(Stat::read().map(|stat| stat.virtual_bytes), |v| observer.observe(v, &[]))
        })
        .build();
    meter
        .u64_observable_gauge("process_threads")
        .with_description("Threads of the process")
        .with_callback(|observer| {
            observe(Stat::read().map(|stat| stat.threads), |v| observer.observe(v, &[]))
        })
        .build();
    meter
        .u64_observable_gauge("process_open_fds")
        .with_description("Open file descriptors")
        .with_callback(|observer| observe(open_files(), |v| observer.observe(v, &[])))
        .build();
    meter
        .u64_observable_gauge("process_max_fds")
        .with_description("Maximum number of open file descriptors")
        .with_callback(|observer| observe(getrlimit(Resource::Nofile).current, |v| observer.observe(v, &[])))
        .build();
    // Does not change, so it is read once.
    let started = start_time();
    meter
        .f64_observable_gauge("process_start_time")
        .with_unit("s")
        .with_description("Start of the process, as Unix time")
        .with_callback(move |observer| observe(started, |v| observer.observe(v, &[])))
        .build();
}

fn publish_build(meter: &Meter, service: &'static str) {
    let info = meter
        .u64_gauge("ip_lookup_build_info")
        .with_description("1, with the version and the commit of the build as labels")
        .build();
    let labels = [
        KeyValue::new("service", service),
        KeyValue::new("version", build_info::VERSION),
        KeyValue::new("commit", build_info::COMMIT),
    ];
    info.record(1, &labels);
}

fn observe<T>(value: Option<T>, record: impl FnOnce(T)) {
    value.map(record);
}

/// Fields of /proc/self/stat.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    threads: u64,
    /// Time from the start of the system to that of the process.
    start_seconds: f64,
    virtual_bytes: u64,
    resident_bytes: u64,
}

impl Stat {
    fn read() -> Option<Self> {
        let ticks_per_second = clock_ticks_per_second() as f64;
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?, ticks_per_second, page_size() as u64)
    }

    fn parse(stat: &str, ticks_per_second: f64, page_size: u64) -> Option<Self> {
        // The process name in parentheses may contain any character. The first field after it is field 3 of proc(5).
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let seconds = |ticks: u64| ticks as f64 / ticks_per_second;
        Some(Self {
            cpu_seconds: seconds(field(14)? + field(15)?),
            threads: field(20)?,
            start_seconds: seconds(field(22)?),
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * page_size,
        })
    }
}

/// The start of the process as Unix time.
fn start_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + Stat::read()?.start_seconds)
}

fn open_files() -> Option<u64> {
    // One of them is the directory itself, which is open only here.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn fields_after_a_name_with_parentheses_and_spaces_are_parsed() {
        let fields: Vec<String> = (4..=52).map(|number: u32| (number * 100).to_string()).collect();
        let stat = Stat::parse(&format!("7 (a) b) R {}\n", fields.join(" ")), 100.0, 4096);
        let expected = Stat {
            cpu_seconds: 29.0,
            threads: 2000,
            start_seconds: 22.0,
            virtual_bytes: 2300,
            resident_bytes: 2400 * 4096,
        };
        assert_eq!(stat, Some(expected));
        for malformed in ["", "7 (a)", "7 (a) R 1 2 3", "7 (a) R x"] {
            assert_eq!(Stat::parse(malformed, 100.0, 4096), None, "{malformed}");
        }
    }

    #[test]
    fn own_process_has_plausible_values() {
        let stat = Stat::read().expect("Linux has /proc");
        assert!(stat.threads >= 1 && stat.resident_bytes > 500_000, "{stat:?}");
        assert!(stat.virtual_bytes > stat.resident_bytes, "{stat:?}");
        assert!(open_files().expect("Linux has /proc") >= 3);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
        let started = Duration::from_secs_f64(start_time().expect("Linux has /proc"));
        // btime is in whole seconds, and clocks are adjusted.
        assert!(started < now + Duration::from_secs(5), "{started:?}");
        assert!(started + Duration::from_secs(600) > now, "the test started more than 10 minutes ago");
    }
}
