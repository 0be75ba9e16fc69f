//! Checks at every connect whether a server's settings endanger the data: eviction of records, a read-only replica, or no
//! persistence.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a server's settings mean for the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assessment {
    Safe,
    /// The data is not in danger, or that is unknown.
    Warning(String),
    /// A restart would lose data. Logged and in the metric, but never a reason to reject the connection.
    AtRisk(String),
    /// Data can be lost, or writes fail, at any time. Connections are rejected until the first success.
    Unsafe(String),
}

/// The assessments of all servers of a store.
///
/// Until the store was available once, a connection to a server with unsafe settings is rejected, so that the process
/// does not become ready. Later it is accepted, with an error in the log and in a metric: a failover to such a server
/// must not stop the service.
#[derive(Default)]
pub struct SettingsCheck {
    passed: AtomicBool,
    by_server: Mutex<HashMap<String, Assessment>>,
}

impl SettingsCheck {
    /// Records and logs an assessment. Returns the reason if the connection must be rejected.
    pub fn record(&self, server: &str, assessment: Assessment) -> Result<(), String> {
        let previous = self.by_server().insert(server.to_owned(), assessment.clone());
        if previous.as_ref() != Some(&assessment) {
            log(server, &assessment, previous.is_some());
        }
        match assessment {
            Assessment::Unsafe(reason) if !self.passed.load(Ordering::Acquire) => Err(reason),
            _ => Ok(()),
        }
    }

    /// Called when the store is available: later findings no longer reject a connection.
    pub fn pass(&self) {
        self.passed.store(true, Ordering::Release);
    }

    pub fn unsafe_settings(&self) -> Option<String> {
        self.find(|assessment| match assessment {
            Assessment::Unsafe(reason) | Assessment::AtRisk(reason) => Some(reason),
            _ => None,
        })
    }

    pub fn rejection(&self) -> Option<String> {
        if self.passed.load(Ordering::Acquire) {
            return None;
        }
        self.find(|assessment| match assessment {
            Assessment::Unsafe(reason) => Some(reason),
            _ => None,
        })
    }

    fn find(&self, reason: fn(&Assessment) -> Option<&String>) -> Option<String> {
        let by_server = self.by_server();
        let (server, reason) =
            by_server.iter().find_map(|(server, assessment)| Some((server, reason(assessment)?)))?;
        Some(format!("unsafe settings of {server}: {reason}"))
    }

    /// Forgets servers that are no longer in use.
    pub fn retain(&self, in_use: impl Fn(&str) -> bool) {
        self.by_server().retain(|server, _| in_use(server));
    }

    fn by_server(&self) -> MutexGuard<'_, HashMap<String, Assessment>> {
        self.by_server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The value of a field in the reply to `INFO`.
pub fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim_end)
}

fn log(server: &str, assessment: &Assessment, changed: bool) {
    match assessment {
        Assessment::Unsafe(reason) => tracing::error!(server, reason, "the store's settings are unsafe"),
        Assessment::AtRisk(reason) | Assessment::Warning(reason) => {
            tracing::warn!(server, reason, "check the store's settings");
        }
        Assessment::Safe if changed => tracing::info!(server, "the store's settings are safe now"),
        Assessment::Safe => {}
    }
}

impl Assessment {
    pub fn of_info(info: &str) -> Self {
        let field = |name| info_field(info, name);
        if field("role") == Some("slave") && field("slave_read_only") != Some("0") {
            return Self::Unsafe(
                "the server is a read-only replica; set --redis-url to the master".to_owned(),
            );
        }
        let (limit, policy) =
            (field("maxmemory").and_then(|n| n.parse::<u64>().ok()), field("maxmemory_policy"));
        match (field("role"), limit, policy) {
            (Some(_), Some(0), _) | (Some(_), Some(_), Some("noeviction")) => Self::Safe,
            (Some(_), Some(_), Some(policy)) if policy.starts_with("allkeys-") => Self::Unsafe(format!(
                "maxmemory-policy is {policy}, so a server with full memory deletes API keys; set it to noeviction"
            )),
            (Some(_), Some(_), Some(policy)) => Self::Warning(format!(
                "maxmemory-policy is {policy}, so a server with full memory ends sessions and resets the demo's \
                 counter; set it to noeviction"
            )),
            _ => Self::unreadable("INFO does not show them"),
        }
    }

    /// Adds the check for persistence, which is more important than a warning. `save` is the setting for snapshots, which
    /// `INFO` does not show; `None` if it was not read.
    pub fn with_persistence(self, info: &str, save: Option<&str>) -> Self {
        let has_none = info_field(info, "aof_enabled") == Some("0") && save == Some("");
        if !has_none || matches!(self, Self::Unsafe(_)) {
            return self;
        }
        Self::AtRisk(
            "the server has no persistence, so a restart loses all accounts and keys; run CONFIG SET appendonly yes before it".to_owned(),
        )
    }

    pub fn unreadable(reason: impl std::fmt::Display) -> Self {
        Self::Warning(format!(
            "can't read the settings ({reason}); make sure that the server is a master and that its maxmemory-policy \
             is noeviction"
        ))
    }
}

/// The servers that can't be reached, each with its errors. The connections of a store share it: there are several to each
/// server, and each error of an outage is worth one warning.
#[derive(Debug, Default)]
pub struct OutageLog(Mutex<HashMap<String, HashSet<String>>>);

/// Maximum number of errors of one outage.
const MAX_ERRORS: usize = 8;

impl OutageLog {
    /// Records that an attempt has failed. Returns whether its error is new since a connection to the server was made.
    pub fn is_new(&self, server: &str, error: String) -> bool {
        let mut outages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let errors = outages.entry(server.to_owned()).or_default();
        errors.len() < MAX_ERRORS && errors.insert(error)
    }

    /// Records that a connection was made.
    pub fn end(&self, server: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_an_outage_is_new_once() {
        let log = OutageLog::default();
        let is_new = |server, error: &str| log.is_new(server, error.to_owned());
        assert!(is_new("a", "timed out") && is_new("b", "timed out") && !is_new("a", "timed out"));
        assert!(is_new("a", "certificate") && !is_new("a", "timed out"));
        log.end("a");
        assert!(is_new("a", "timed out") && !is_new("b", "timed out"));
        let new = (0..20).filter(|n| is_new("c", &n.to_string())).count();
        assert_eq!(new, MAX_ERRORS);
    }

    fn info(role: &str, maxmemory: &str, policy: &str) -> String {
        format!(
            "# Memory\r\nmaxmemory:{maxmemory}\r\nmaxmemory_policy:{policy}\r\nrole:{role}\r\nslave_read_only:1\r\n"
        )
    }

    #[test]
    fn settings_are_assessed_by_eviction_and_role() {
        let kind = |info: &str| match Assessment::of_info(info) {
            Assessment::Safe => "safe",
            Assessment::Warning(_) => "warning",
            Assessment::AtRisk(_) => "at risk",
            Assessment::Unsafe(_) => "unsafe",
        };
        for (info, expected) in [
            (info("master", "0", "noeviction"), "safe"),
            (info("master", "0", "allkeys-lru"), "safe"),
            (info("master", "100", "noeviction"), "safe"),
            (info("master", "100", "allkeys-lru"), "unsafe"),
            (info("master", "100", "allkeys-random"), "unsafe"),
            (info("master", "100", "volatile-ttl"), "warning"),
            (info("slave", "0", "noeviction"), "unsafe"),
            (info("slave", "0", "noeviction").replace("read_only:1", "read_only:0"), "safe"),
            ("# Server\r\nredis_version:7.0.0\r\n".to_owned(), "warning"),
        ] {
            assert_eq!(kind(&info), expected, "{info}");
        }
    }

    #[test]
    fn server_without_persistence_is_reported_but_not_rejected() {
        let with_aof = |enabled| info("master", "0", "noeviction") + &format!("aof_enabled:{enabled}\r\n");
        let (without, with) = (with_aof(0), with_aof(1));
        let assess = |info: &str, save| Assessment::of_info(info).with_persistence(info, save);
        for (info, save) in [(&with, Some("")), (&without, Some("3600 1")), (&without, None)] {
            assert_eq!(assess(info, save), Assessment::Safe, "{save:?} {info}");
        }
        let evicting = without.replace("maxmemory:0", "maxmemory:1").replace("noeviction", "allkeys-lru");
        assert!(matches!(assess(&evicting, Some("")), Assessment::Unsafe(_)));
        let check = SettingsCheck::default();
        assert_eq!(check.record("a:1", assess(&without, Some(""))), Ok(()));
        assert!(check.unsafe_settings().unwrap().contains("appendonly") && check.rejection().is_none());
    }

    #[test]
    fn unsafe_settings_reject_connections_only_before_the_first_success() {
        let check = SettingsCheck::default();
        let bad = || Assessment::of_info(&info("master", "100", "allkeys-lru"));
        assert!(check.record("a:1", bad()).unwrap_err().contains("allkeys-lru"));
        assert!(check.unsafe_settings().unwrap().contains("a:1"));
        assert_eq!(check.rejection(), check.unsafe_settings());
        assert_eq!(check.record("a:1", Assessment::Safe), Ok(()));
        assert_eq!(check.record("b:1", Assessment::unreadable("NOPERM")), Ok(()));
        assert_eq!(check.unsafe_settings(), None);
        check.pass();
        assert_eq!(check.record("a:1", bad()), Ok(()));
        assert!(check.unsafe_settings().is_some() && check.rejection().is_none());
        check.retain(|server| server == "b:1");
        assert_eq!(check.unsafe_settings(), None);
    }
}
