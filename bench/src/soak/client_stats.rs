//! The kinds of traffic, and the statistics of the clients of one kind: expected and wrong responses, errors, latencies.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// A kind of traffic, with the response that it must get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficKind {
    /// Active keys: 200 with the client address, which is another one in most requests.
    Valid,
    /// The same over HTTPS. Every second client opens a new connection for each request.
    Https,
    /// Keys that are unknown, malformed or missing: 401.
    Unauthorized,
    /// Paused keys: 429.
    Paused,
    /// The demo endpoint, without a key: 200.
    Demo,
    /// CORS preflights: 204.
    Preflight,
    /// Invalid scopes, paths and methods: 400, 404 and 405. Bytes that are not HTTP: 400 or a closed connection.
    Rejected,
    /// Headers that arrive slowly: 401, because there is no key. Headers that never end: a closed connection.
    Slow,
    /// Many connections without a request: no response is expected.
    Flood,
}

impl TrafficKind {
    pub const ALL: [Self; 9] = [
        Self::Valid,
        Self::Https,
        Self::Unauthorized,
        Self::Paused,
        Self::Demo,
        Self::Preflight,
        Self::Rejected,
        Self::Slow,
        Self::Flood,
    ];

    /// Whether each client of this kind has API keys of its own, whose counters are compared at the end.
    pub fn has_keys(self) -> bool {
        matches!(self, Self::Valid | Self::Https)
    }

    /// Number of concurrent clients. For [`Self::Valid`], `--clients` is used instead.
    pub fn clients(self) -> usize {
        match self {
            Self::Slow => 64,
            Self::Flood => 1,
            _ => 4,
        }
    }

    /// Delay of a client between two requests.
    pub fn delay(self) -> Duration {
        match self {
            Self::Valid | Self::Https => Duration::ZERO,
            Self::Slow | Self::Flood => Duration::from_millis(500),
            _ => Duration::from_millis(5),
        }
    }
}

/// The result of one request, as the client observed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// The response that this kind of traffic must get.
    Expected,
    /// A 500 or a connection failure: the client may retry.
    Error(String),
    /// Any other response.
    Wrong(String),
}

#[derive(Debug)]
pub struct ClientStats {
    pub kind: TrafficKind,
    pub expected: u64,
    /// Count by name of the error.
    pub errors: BTreeMap<String, u64>,
    /// Count by description of the wrong response.
    pub wrong: BTreeMap<String, u64>,
    pub latency: LatencyHistogram,
    /// Numbers of expected and of other results (wrong responses and errors), by the key's index among the valid keys.
    pub by_key: HashMap<usize, (u64, u64)>,
}

impl ClientStats {
    pub fn new(kind: TrafficKind) -> Self {
        let (errors, wrong) = (BTreeMap::new(), BTreeMap::new());
        let (latency, by_key) = (LatencyHistogram::default(), HashMap::new());
        Self { kind, expected: 0, errors, wrong, latency, by_key }
    }

    /// Records one request. `key` is the index of its key, if it had a valid one.
    pub fn record(&mut self, observation: &Observation, latency: Duration, key: Option<usize>) {
        match observation {
            Observation::Expected => self.expected += 1,
            Observation::Error(name) => *self.errors.entry(name.clone()).or_default() += 1,
            Observation::Wrong(response) => *self.wrong.entry(response.clone()).or_default() += 1,
        }
        self.latency.record(latency);
        if let Some(key) = key {
            let (expected, other) = self.by_key.entry(key).or_default();
            *(if *observation == Observation::Expected { expected } else { other }) += 1;
        }
    }

    /// Adds the statistics of another client of the same kind.
    pub fn add(&mut self, client: Self) {
        self.expected += client.expected;
        for (name, count) in client.errors {
            *self.errors.entry(name).or_default() += count;
        }
        for (response, count) in client.wrong {
            *self.wrong.entry(response).or_default() += count;
        }
        self.latency.add(&client.latency);
        for (key, (expected, other)) in client.by_key {
            let counts = self.by_key.entry(key).or_default();
            *counts = (counts.0 + expected, counts.1 + other);
        }
    }

    pub fn requests(&self) -> u64 {
        self.expected + self.error_count() + self.wrong_count()
    }

    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    pub fn wrong_count(&self) -> u64 {
        self.wrong.values().sum()
    }
}

/// A histogram with 16 buckets per power of two of microseconds: constant memory, and
/// percentiles that are at most 1/16 too high.
#[derive(Debug)]
pub struct LatencyHistogram([u64; BUCKETS]);

const BUCKETS: usize = 640;
const BUCKETS_PER_POWER: u32 = 16;

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl LatencyHistogram {
    fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1);
        let power = micros.ilog2();
        let part = (u128::from(micros - (1 << power)) * u128::from(BUCKETS_PER_POWER)) >> power;
        let bucket = power as usize * BUCKETS_PER_POWER as usize + part as usize;
        self.0[bucket.min(BUCKETS - 1)] += 1;
    }

    fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }

    /// The latency in milliseconds that this share of the requests did not exceed. 0 if there are no requests.
    pub fn percentile(&self, share: f64) -> f64 {
        let rank = (self.0.iter().sum::<u64>() as f64 * share).ceil() as u64;
        let mut cumulative = 0;
        let bucket = self.0.iter().position(|count| {
            cumulative += count;
            cumulative >= rank && rank > 0
        });
        bucket.map_or(0.0, |bucket| {
            let (power, part) = (bucket as u32 / BUCKETS_PER_POWER, bucket as u32 % BUCKETS_PER_POWER);
            2f64.powi(power as i32) * (1.0 + f64::from(part + 1) / f64::from(BUCKETS_PER_POWER)) / 1e3
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_at_most_a_sixteenth_too_high() {
        let mut latency = LatencyHistogram::default();
        assert_eq!(latency.percentile(0.99), 0.0);
        for ms in 1..=1000 {
            latency.record(Duration::from_millis(ms));
        }
        for (share, ms) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let percentile = latency.percentile(share);
            assert!((ms..ms * 1.07).contains(&percentile), "{share}: {percentile}");
        }
        latency.record(Duration::MAX);
    }

    #[test]
    fn add_sums_all_counts() {
        let (mut total, mut client) =
            (ClientStats::new(TrafficKind::Valid), ClientStats::new(TrafficKind::Valid));
        client.record(&Observation::Expected, Duration::ZERO, Some(7));
        client.record(&Observation::Error("500".to_owned()), Duration::ZERO, Some(7));
        total.record(&Observation::Wrong("418".to_owned()), Duration::ZERO, Some(7));
        total.add(client);
        assert_eq!((total.expected, total.error_count(), total.wrong_count()), (1, 1, 1));
        assert_eq!((total.requests(), total.by_key[&7]), (3, (1, 2)));
    }
}
