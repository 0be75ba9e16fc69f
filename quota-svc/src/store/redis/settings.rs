//! What is known of a store's servers: whether their settings endanger the data (eviction of records, a read-only replica, or
//! no persistence), which is checked at every connect, and why they can't be reached.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::RedisResult;
use redis::aio::MultiplexedConnection;

use crate::store::lock;

/// Maximum number of errors of one outage.
const MAX_ERRORS: usize = 8;

/// How much a server's settings endanger the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum Risk {
    None,
    /// The data is not in danger, or that is unknown.
    Warning,
    /// A restart would lose data. Logged and in the metric, but never a reason to reject the connection.
    AtRestart,
    /// Data can be lost, or writes fail, at any time. Connections are rejected until the first success.
    Always,
}

/// What a server's settings mean for the data, and why.
pub type Assessment = (Risk, String);

/// What is known of all servers of a store. All connections share it: there are several to each server.
///
/// Until the store was available once, a connection to a server with unsafe settings is rejected, so that the process
/// does not become ready. Later it is accepted, with an error in the log and in a metric: a failover to such a server
/// must not stop the service.
#[derive(Default)]
pub struct ServerLog {
    was_available: AtomicBool,
    assessments: Mutex<HashMap<String, Assessment>>,
    /// The errors of servers that can't be reached.
    outages: Mutex<HashMap<String, HashSet<String>>>,
}

impl ServerLog {
    /// Records and logs an assessment. Returns the reason if the connection must be rejected.
    pub fn record(&self, server: &str, assessment: Assessment) -> Result<(), String> {
        let previous = lock(&self.assessments).insert(server.to_owned(), assessment.clone());
        let is_new = previous.as_ref() != Some(&assessment);
        let (risk, reason) = assessment;
        match risk {
            _ if !is_new => {}
            Risk::Always => tracing::error!(server, reason, "the store's settings are unsafe"),
            Risk::AtRestart | Risk::Warning => tracing::warn!(server, reason, "check the store's settings"),
            Risk::None if previous.is_some() => tracing::info!(server, "the store's settings are safe now"),
            Risk::None => {}
        }
        let is_rejected = risk == Risk::Always && !self.was_available.load(Ordering::Acquire);
        if is_rejected { Err(reason) } else { Ok(()) }
    }

    /// Called when the store is available: later findings no longer reject a connection.
    pub fn set_available(&self) {
        self.was_available.store(true, Ordering::Release);
    }

    pub fn unsafe_settings(&self) -> Option<String> {
        self.find(Risk::AtRestart)
    }

    /// Why connections are rejected.
    pub fn rejection(&self) -> Option<String> {
        if self.was_available.load(Ordering::Acquire) { None } else { self.find(Risk::Always) }
    }

    fn find(&self, min: Risk) -> Option<String> {
        let assessments = lock(&self.assessments);
        let (server, (_, reason)) = assessments.iter().find(|(_, (risk, _))| *risk >= min)?;
        Some(format!("unsafe settings of {server}: {reason}"))
    }

    /// Forgets the settings of servers that are no longer in use.
    pub fn retain(&self, in_use: impl Fn(&str) -> bool) {
        lock(&self.assessments).retain(|server, _| in_use(server));
    }

    /// Records that an attempt to connect has failed. Returns whether its error is new since the last connection to the server:
    /// each error of an outage is worth one warning.
    pub fn is_new_error(&self, server: &str, error: String) -> bool {
        let mut outages = lock(&self.outages);
        let errors = outages.entry(server.to_owned()).or_default();
        errors.len() < MAX_ERRORS && errors.insert(error)
    }

    /// Records that a connection was made.
    pub fn end_outage(&self, server: &str) {
        lock(&self.outages).remove(server);
    }
}

/// Reads and assesses the settings of a server.
pub async fn read(connection: &mut MultiplexedConnection) -> RedisResult<Assessment> {
    let info: String = match redis::cmd("INFO").query_async(connection).await {
        Ok(info) => info,
        // For example NOPERM: the ACL user may not read them.
        Err(error) if error.code().is_some() => return Ok(unreadable(error)),
        Err(error) => return Err(error),
    };
    // The setting for snapshots, which `INFO` does not show. It matters only without an append-only file.
    let mut save = None;
    if field(&info, "aof_enabled") == Some("0") {
        let mut command = redis::cmd("CONFIG");
        match command.arg("GET").arg("save").query_async::<HashMap<String, String>>(connection).await {
            Ok(mut settings) => save = settings.remove("save"),
            Err(error) if error.code().is_some() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(assess(&info, save.as_deref()))
}

/// The value of a field in the reply to `INFO`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim_end)
}

/// `save` is `None` if it was not read.
fn assess(info: &str, save: Option<&str>) -> Assessment {
    let field = |name| field(info, name);
    let limit = field("maxmemory").and_then(|limit| limit.parse::<u64>().ok());
    let (risk, reason) = match (field("role"), limit, field("maxmemory_policy")) {
        (Some("slave"), ..) if field("slave_read_only") != Some("0") => {
            (Risk::Always, "the server is a read-only replica; set --redis-url to the master".to_owned())
        }
        (Some(_), Some(0), _) | (Some(_), Some(_), Some("noeviction")) => (Risk::None, String::new()),
        (Some(_), Some(_), Some(policy)) => {
            let (risk, effect) = match policy.starts_with("allkeys-") {
                true => (Risk::Always, "deletes API keys"),
                false => (Risk::Warning, "ends sessions and resets the demo's counter"),
            };
            let problem = format!("maxmemory-policy is {policy}, so a server with full memory {effect}");
            (risk, problem + "; set it to noeviction")
        }
        _ => unreadable("INFO does not show them"),
    };
    if risk < Risk::AtRestart && field("aof_enabled") == Some("0") && save == Some("") {
        let problem = "the server has no persistence, so a restart loses all accounts and keys";
        return (Risk::AtRestart, format!("{problem}; run CONFIG SET appendonly yes before it"));
    }
    (risk, reason)
}

fn unreadable(reason: impl std::fmt::Display) -> Assessment {
    let advice = "make sure that the server is a master and that its maxmemory-policy is noeviction";
    (Risk::Warning, format!("can't read the settings ({reason}); {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_an_outage_is_new_once() {
        let log = ServerLog::default();
        let is_new = |server, error: &str| log.is_new_error(server, error.to_owned());
        assert!(is_new("a", "timed out") && is_new("b", "timed out") && !is_new("a", "timed out"));
        assert!(is_new("a", "certificate") && !is_new("a", "timed out"));
        log.end_outage("a");
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
        for (info, expected) in [
            (info("master", "0", "noeviction"), Risk::None),
            (info("master", "0", "allkeys-lru"), Risk::None),
            (info("master", "100", "noeviction"), Risk::None),
            (info("master", "100", "allkeys-lru"), Risk::Always),
            (info("master", "100", "allkeys-random"), Risk::Always),
            (info("master", "100", "volatile-ttl"), Risk::Warning),
            (info("slave", "0", "noeviction"), Risk::Always),
            (info("slave", "0", "noeviction").replace("read_only:1", "read_only:0"), Risk::None),
            ("# Server\r\nredis_version:7.0.0\r\n".to_owned(), Risk::Warning),
        ] {
            assert_eq!(assess(&info, None).0, expected, "{info}");
        }
    }

    #[test]
    fn server_without_persistence_is_reported_but_not_rejected() {
        let with_aof = |enabled| info("master", "0", "noeviction") + &format!("aof_enabled:{enabled}\r\n");
        let (without, with) = (with_aof(0), with_aof(1));
        for (info, save) in [(&with, Some("")), (&without, Some("3600 1")), (&without, None)] {
            assert_eq!(assess(info, save).0, Risk::None, "{save:?} {info}");
        }
        let evicting = without.replace("maxmemory:0", "maxmemory:1").replace("noeviction", "allkeys-lru");
        assert_eq!(assess(&evicting, Some("")).0, Risk::Always);
        let check = ServerLog::default();
        assert_eq!(check.record("a:1", assess(&without, Some(""))), Ok(()));
        assert!(check.unsafe_settings().unwrap().contains("appendonly") && check.rejection().is_none());
    }

    #[test]
    fn unsafe_settings_reject_connections_only_before_the_first_success() {
        let check = ServerLog::default();
        let bad = || assess(&info("master", "100", "allkeys-lru"), None);
        assert!(check.record("a:1", bad()).unwrap_err().contains("allkeys-lru"));
        assert!(check.unsafe_settings().unwrap().contains("a:1"));
        assert_eq!(check.rejection(), check.unsafe_settings());
        assert_eq!(check.record("a:1", (Risk::None, String::new())), Ok(()));
        assert_eq!(check.record("b:1", unreadable("NOPERM")), Ok(()));
        assert_eq!(check.unsafe_settings(), None);
        check.set_available();
        assert_eq!(check.record("a:1", bad()), Ok(()));
        assert!(check.unsafe_settings().is_some() && check.rejection().is_none());
        check.retain(|server| server == "b:1");
        assert_eq!(check.unsafe_settings(), None);
    }
}
