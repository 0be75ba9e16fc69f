//! The limits that an operator sets.

/// Limits that apply to all keys and to the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests per day for a key without its own limit.
    pub daily: u32,
    /// Requests within 60 seconds, per key.
    pub burst: u16,
    /// Requests per day without a key, shared by all callers.
    pub demo: u32,
}

impl Default for Limits {
    /// The defaults of `--daily-limit`, `--burst-limit` and `--demo-limit`.
    fn default() -> Self {
        Self { daily: 10_000, burst: 300, demo: 1_000 }
    }
}
