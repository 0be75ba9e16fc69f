//! Decides which failed attempts to connect are warnings.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// The servers that can't be reached. The connections of a store share it: there are several to each server, and an outage
/// is worth one warning.
#[derive(Debug, Default)]
pub struct OutageLog(Mutex<HashSet<String>>);

impl OutageLog {
    /// Records that an attempt has failed. Returns whether it is the first one since a connection to the server was made.
    pub fn begin(&self, server: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(server.to_owned())
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
    fn outage_of_each_server_begins_once() {
        let log = OutageLog::default();
        assert!(log.begin("a") && log.begin("b") && !log.begin("a"));
        log.end("a");
        assert!(log.begin("a") && !log.begin("b"));
    }
}
