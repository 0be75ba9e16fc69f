//! Charging a batch: known refusals first, then one question to the store, then a verdict for each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use quota_client::wire::Verdict;

use crate::denials::Denials;
use crate::domain::id::KeyId;
use crate::domain::limits::Limits;
use crate::domain::verdict::{Entry, Judged, Subject};
use crate::metrics::Metrics;
use crate::store::Store;

/// Judges charges.
pub struct Charging {
    store: Arc<dyn Store>,
    limits: Limits,
    denials: Denials,
    metrics: Metrics,
}

/// Where a charge's verdict comes from.
enum Source {
    Known(Judged),
    /// The n-th charge of an entry.
    Entry(usize, u32),
}

impl Charging {
    /// Charges in this store under these limits.
    pub fn new(store: Arc<dyn Store>, limits: Limits, metrics: Metrics) -> Self {
        Self { store, limits, denials: Denials::new(), metrics }
    }

    /// One verdict for each subject, in order, as if they had come one by one.
    pub async fn judge(&self, subjects: &[Subject]) -> Vec<Verdict> {
        let (sources, entries) = self.sort(subjects);
        let judged = self.ask(&entries).await;
        let verdicts: Vec<Verdict> = sources
            .iter()
            .map(|source| match source {
                Source::Known(judged) => judged.verdict(0, &self.limits),
                Source::Entry(entry, nth) => judged[*entry].verdict(*nth, &self.limits),
            })
            .collect();
        self.metrics.judged(&verdicts, sources.len() - total(&entries));
        verdicts
    }

    /// Charges of one subject become one entry with a count.
    fn sort(&self, subjects: &[Subject]) -> (Vec<Source>, Vec<Entry>) {
        let now = Instant::now();
        let mut entries: Vec<Entry> = Vec::with_capacity(subjects.len());
        let mut places: HashMap<Subject, usize> = HashMap::with_capacity(subjects.len());
        let sources = subjects.iter().map(|subject| {
            if let Some(place) = places.get(subject) {
                entries[*place].count += 1;
                return Source::Entry(*place, entries[*place].count - 1);
            }
            if let Some(judged) = self.denials.find(subject, now) {
                return Source::Known(judged);
            }
            places.insert(*subject, entries.len());
            entries.push(Entry { subject: *subject, count: 1 });
            Source::Entry(entries.len() - 1, 0)
        });
        (sources.collect(), entries)
    }

    async fn ask(&self, entries: &[Entry]) -> Vec<Judged> {
        if entries.is_empty() {
            return Vec::new();
        }
        let set_out = self.denials.set_out();
        let started = Instant::now();
        let judged = self.store.charge(entries).await;
        let now = Instant::now();
        self.metrics.asked(now - started);
        for (entry, judged) in entries.iter().zip(&judged) {
            self.denials.keep(entry.subject, judged, set_out, now);
        }
        judged
    }

    /// Forgets what is known of a key that was changed.
    pub fn changed(&self, key: KeyId) {
        self.denials.forget(&Subject::Key(key));
    }
}

fn total(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.count as usize).sum()
}
