//! What clients of one kind saw: right and wrong answers, errors, and how long it took.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::clients::Kind;

/// What came of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// The answer that was due.
    Right,
    /// A clear refusal or a broken connection: the client may try again.
    Error(String),
    /// An answer that must never be given.
    Wrong(String),
}

/// Requests of one kind.
#[derive(Debug)]
pub struct Tally {
    /// Whose.
    pub kind: Kind,
    /// Right answers.
    pub right: u64,
    /// Errors by their name.
    pub errors: BTreeMap<String, u64>,
    /// Wrong answers by what they were.
    pub wrong: BTreeMap<String, u64>,
    /// How long all of them took.
    pub latency: Latency,
    /// By the key's place in the list: right answers and all others.
    pub of_keys: HashMap<usize, (u64, u64)>,
}

impl Tally {
    /// Nothing yet.
    pub fn new(kind: Kind) -> Self {
        let (errors, wrong) = (BTreeMap::new(), BTreeMap::new());
        Self { kind, right: 0, errors, wrong, latency: Latency::default(), of_keys: HashMap::new() }
    }

    /// Notes one request, with its key where it had a good one.
    pub fn note(&mut self, seen: &Seen, took: Duration, key: Option<usize>) {
        let right = *seen == Seen::Right;
        match seen {
            Seen::Right => self.right += 1,
            Seen::Error(name) => *self.errors.entry(name.clone()).or_default() += 1,
            Seen::Wrong(what) => *self.wrong.entry(what.clone()).or_default() += 1,
        }
        self.latency.note(took);
        if let Some(key) = key {
            let count = self.of_keys.entry(key).or_default();
            *(if right { &mut count.0 } else { &mut count.1 }) += 1;
        }
    }

    /// Takes over what another client of this kind saw.
    pub fn add(&mut self, other: Self) {
        self.right += other.right;
        for (name, count) in other.errors {
            *self.errors.entry(name).or_default() += count;
        }
        for (what, count) in other.wrong {
            *self.wrong.entry(what).or_default() += count;
        }
        self.latency.add(&other.latency);
        for (key, (right, failed)) in other.of_keys {
            let count = self.of_keys.entry(key).or_default();
            *count = (count.0 + right, count.1 + failed);
        }
    }

    /// Errors of all names.
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Wrong answers of all kinds.
    pub fn wrongs(&self) -> u64 {
        self.wrong.values().sum()
    }
}

/// Latencies in buckets a sixteenth apart: minutes of them take no memory.
#[derive(Debug)]
pub struct Latency([u64; BUCKETS]);

const BUCKETS: usize = 640;
const PARTS: u32 = 16;

impl Default for Latency {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Latency {
    fn note(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let power = micros.ilog2();
        let part = (u128::from(micros - (1 << power)) * u128::from(PARTS)) >> power;
        let bucket = power as usize * PARTS as usize + part as usize;
        self.0[bucket.min(BUCKETS - 1)] += 1;
    }

    fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }

    /// Milliseconds that this share of all did not exceed, to a sixteenth. 0 of none.
    pub fn percentile(&self, share: f64) -> f64 {
        let rank = (self.0.iter().sum::<u64>() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let bucket = self.0.iter().position(|count| {
            seen += count;
            seen >= rank && rank > 0
        });
        bucket.map_or(0.0, |bucket| {
            let (power, part) = (bucket as u32 / PARTS, bucket as u32 % PARTS);
            2f64.powi(power as i32) * (1.0 + f64::from(part + 1) / f64::from(PARTS)) / 1e3
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_sixteenth() {
        let mut latency = Latency::default();
        assert_eq!(latency.percentile(0.99), 0.0);
        for ms in 1..=1000 {
            latency.note(Duration::from_millis(ms));
        }
        for (share, ms) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let seen = latency.percentile(share);
            assert!((ms..ms * 1.07).contains(&seen), "{share}: {seen}");
        }
        latency.note(Duration::MAX);
    }

    #[test]
    fn tallies_add_up() {
        let (mut all, mut one) = (Tally::new(Kind::Good), Tally::new(Kind::Good));
        one.note(&Seen::Right, Duration::ZERO, Some(7));
        one.note(&Seen::Error("500".to_owned()), Duration::ZERO, Some(7));
        all.note(&Seen::Wrong("418".to_owned()), Duration::ZERO, Some(7));
        all.add(one);
        assert_eq!((all.right, all.failed(), all.wrongs(), all.of_keys[&7]), (1, 1, 1, (1, 2)));
    }
}
