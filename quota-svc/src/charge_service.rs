//! Charges a batch: cached denials first, one store call for the rest, then one verdict per charge.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Instant;

use quota_api::{Limits, Verdict};

use crate::denial_cache::DenialCache;
use crate::domain::id::KeyId;
use crate::domain::verdict::{ChargeGroup, GroupOutcome, Subject};
use crate::metrics::Metrics;
use crate::store::Store;

pub struct ChargeService {
    store: Arc<dyn Store>,
    limits: Limits,
    denial_cache: DenialCache,
    metrics: Metrics,
}

/// Where a charge's verdict comes from.
enum VerdictSource {
    Cached(GroupOutcome),
    /// The index of the charge's group in the store call, and the index of the charge in that group.
    Group(usize, u32),
}

impl ChargeService {
    pub fn new(store: Arc<dyn Store>, limits: Limits, metrics: Metrics) -> Self {
        Self { store, limits, denial_cache: DenialCache::default(), metrics }
    }

    /// Returns one verdict per subject, in order, as if the charges had arrived one by one.
    pub async fn charge(&self, subjects: &[Subject]) -> Vec<Verdict> {
        let (sources, groups) = self.group(subjects);
        let outcomes = self.charge_store(&groups).await;
        let verdicts: Vec<Verdict> = sources
            .iter()
            .map(|source| match source {
                VerdictSource::Cached(outcome) => outcome.verdict(0, &self.limits),
                VerdictSource::Group(group, index) => outcomes[*group].verdict(*index, &self.limits),
            })
            .collect();
        self.metrics.record_batch(&verdicts, sources.len() - total_charges(&groups));
        verdicts
    }

    /// Looks up each subject in the denial cache. Puts the charges that are not in the cache into one group per subject.
    fn group(&self, subjects: &[Subject]) -> (Vec<VerdictSource>, Vec<ChargeGroup>) {
        let now = Instant::now();
        let mut groups: Vec<ChargeGroup> = Vec::with_capacity(subjects.len());
        let mut group_of: HashMap<Subject, usize> = HashMap::with_capacity(subjects.len());
        let sources = subjects.iter().map(|subject| match group_of.entry(*subject) {
            Entry::Occupied(group) => {
                let group = *group.get();
                groups[group].count += 1;
                VerdictSource::Group(group, groups[group].count - 1)
            }
            Entry::Vacant(new) => match self.denial_cache.get(subject, now) {
                Some(outcome) => VerdictSource::Cached(outcome),
                None => {
                    groups.push(ChargeGroup { subject: *subject, count: 1 });
                    VerdictSource::Group(*new.insert(groups.len() - 1), 0)
                }
            },
        });
        (sources.collect(), groups)
    }

    async fn charge_store(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        if groups.is_empty() {
            return Vec::new();
        }
        let generation = self.denial_cache.generation();
        let started = Instant::now();
        let outcomes = self.store.charge(groups).await;
        let now = Instant::now();
        self.metrics.record_store_call(now - started);
        for (group, outcome) in groups.iter().zip(&outcomes) {
            self.denial_cache.insert(group.subject, outcome, generation, now);
        }
        outcomes
    }

    /// Drops the cached denial of a changed key.
    pub fn invalidate(&self, key: KeyId) {
        self.denial_cache.invalidate(&Subject::Key(key));
    }
}

fn total_charges(groups: &[ChargeGroup]) -> usize {
    groups.iter().map(|group| group.count as usize).sum()
}
