//! How much memory this process can still use under the limits of its control groups (cgroups), such as a container's
//! memory limit. The kernel kills a process that exceeds such a limit.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use crate::GeoError;

/// Left for requests while a file is loaded.
const RESERVE: u64 = 16 << 20;

/// The control groups that limit the memory of this process: its own and those that contain it.
pub(crate) struct MemoryLimit {
    groups: Vec<PathBuf>,
}

impl MemoryLimit {
    /// Finds the groups in `/proc/self/cgroup`. Each line is `ID:CONTROLLERS:PATH`. In version 2 there is one line, without controllers.
    pub(crate) fn of_this_process() -> Self {
        let text = read_to_string("/proc/self/cgroup").unwrap_or_default();
        let groups = text.lines().filter_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let root = match controllers {
                "" => "/sys/fs/cgroup",
                "memory" => "/sys/fs/cgroup/memory",
                _ => return None,
            };
            Some(
                Path::new(path)
                    .ancestors()
                    .map(move |path| Path::new(root).join(path.strip_prefix("/").unwrap_or(path))),
            )
        });
        Self { groups: groups.flatten().collect() }
    }

    /// Fails if a file of `size` bytes can't be loaded next to what is in memory now. While a database is verified, it
    /// needs about twice its size (measured: 1.6 to 2.1 times).
    pub(crate) fn require_for(&self, size: u64) -> Result<(), GeoError> {
        self.require(size.saturating_mul(2).saturating_add(RESERVE))
    }

    /// Whether a file was rejected for lack of memory that is available now.
    pub(crate) fn fits_now(&self, error: &GeoError) -> bool {
        matches!(error, GeoError::NotEnoughMemory { needed, .. } if self.require(*needed).is_ok())
    }

    fn require(&self, needed: u64) -> Result<(), GeoError> {
        match self.groups.iter().filter_map(|group| available(group)).min() {
            Some(available) if available < needed => Err(GeoError::NotEnoughMemory { needed, available }),
            _ => Ok(()),
        }
    }
}

/// The memory that a control group has left. The kernel frees cached files on demand, so they don't count as used. `None`
/// without a limit.
fn available(group: &Path) -> Option<u64> {
    // Each pair has the name of version 2, then that of version 1.
    let number = |names: [&str; 2]| {
        let text = names.iter().find_map(|name| read_to_string(group.join(name)).ok())?;
        text.trim().parse::<u64>().ok()
    };
    let limit = number(["memory.max", "memory.limit_in_bytes"])?;
    let used = number(["memory.current", "memory.usage_in_bytes"])?;
    let stat = read_to_string(group.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().filter_map(|line| match line.split_once(' ')? {
        ("active_file" | "inactive_file", bytes) => bytes.parse::<u64>().ok(),
        _ => None,
    });
    Some(limit.saturating_sub(used.saturating_sub(cached.sum())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;
    use testkit::mmdb::{Builder, Value};

    use super::*;
    use crate::{Geo, GeoArgs};

    const MIB: u64 = 1 << 20;

    /// A control group with these files, and a group that can't be read.
    fn group(files: &[(&str, &str)]) -> (TempDir, MemoryLimit) {
        let dir = TempDir::new().expect("temp dir");
        for (name, text) in files {
            fs::write(dir.path().join(name), text).expect("write");
        }
        let groups = vec![dir.path().to_owned(), dir.path().join("missing")];
        (dir, MemoryLimit { groups })
    }

    /// The result for a file of 100 MiB.
    fn result(files: &[(&str, &str)]) -> Result<(), String> {
        group(files).1.require_for(100 * MIB).map_err(|error| error.to_string())
    }

    #[test]
    fn file_needs_twice_its_size_next_to_what_is_not_cached() {
        let cached = format!("anon 1\nactive_file {}\ninactive_file {}\n", 64 * MIB, 20 * MIB);
        let with_used = |used: u64| {
            let (max, current) = ((512 * MIB).to_string() + "\n", used.to_string() + "\n");
            result(&[("memory.max", &max), ("memory.current", &current), ("memory.stat", &cached)])
        };
        assert_eq!(with_used((512 - 216 + 84) * MIB), Ok(()));
        let expected =
            "needs 216 MiB of free memory, but the memory limit leaves only 215 MiB; raise the limit";
        assert_eq!(with_used((512 - 216 + 84) * MIB + 1), Err(expected.to_owned()));
    }

    #[test]
    fn limit_of_cgroup_version_1_applies() {
        let limit = |limit| result(&[("memory.limit_in_bytes", limit), ("memory.usage_in_bytes", "0\n")]);
        assert!(limit("209715200\n").is_err());
        assert_eq!(limit("9223372036854771712\n"), Ok(()), "the number for no limit");
    }

    #[test]
    fn group_without_limit_accepts_every_file() {
        assert_eq!(result(&[]), Ok(()));
        assert_eq!(result(&[("memory.max", "max\n"), ("memory.current", "1\n")]), Ok(()));
    }

    #[test]
    fn database_that_does_not_fit_is_reported_and_loaded_once_it_fits() {
        let (cgroup, memory) = group(&[("memory.max", "536870912\n"), ("memory.current", "0\n")]);
        let use_memory =
            |bytes: u64| fs::write(cgroup.path().join("memory.current"), bytes.to_string()).expect("write");
        let dir = TempDir::new().expect("temp dir");
        let path = dir.path().join("city.mmdb");
        let write = |city: &str| {
            let record = Value::map([("city", Value::from(city))]);
            fs::write(&path, Builder::new("city").add("81.2.69.0/24", &record).finish()).expect("write");
        };
        write("Berlin");
        let geo = Geo::open_within(&GeoArgs { geo_db: vec![path.clone()], ..GeoArgs::default() }, memory);
        let geo = geo.expect("load geo data");
        let city = || {
            geo.lookup("81.2.69.1".parse().expect("IP address"), 0, |location| {
                location.city.map(str::to_owned)
            })
        };

        use_memory(511 * MIB);
        assert!(
            !geo.check() && geo.reload_status().rejections.is_empty(),
            "the same content needs no memory"
        );
        write("Hamburg");
        for _ in 0..3 {
            assert!(!geo.check());
            assert_eq!((city().as_deref(), geo.reload_status().rejections.len()), (Some("Berlin"), 1));
            assert_eq!(geo.reload_status().rejected, 1, "counted once");
        }
        let expected = "; rejected: city.mmdb needs 16 MiB of free memory, but the memory limit leaves only 1 MiB; raise the limit";
        assert!(geo.summary(0).ends_with(expected), "{}", geo.summary(0));
        use_memory(0);
        assert!(geo.check());
        assert_eq!((city().as_deref(), geo.reload_status().rejections.len()), (Some("Hamburg"), 0));
        assert!(!geo.summary(0).contains("rejected"), "{}", geo.summary(0));
    }
}
