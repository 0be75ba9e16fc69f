//! The three limits an operator sets.

/// Limits in force for all keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests a day for a key without a limit of its own.
    pub daily: u32,
    /// Requests within 60 seconds for every key.
    pub burst: u16,
    /// Requests a day for all anonymous callers together.
    pub demo: u32,
}

impl Default for Limits {
    /// The free tier of the specification.
    fn default() -> Self {
        Self { daily: 10_000, burst: 300, demo: 1_000 }
    }
}
