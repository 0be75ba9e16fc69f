//! Charges.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use quota_api::{Charge, MAX_BATCH, Verdict, decode_charges, encode_verdicts};
use quota_client::{ChargeService, ClientError};

use super::error::{ApiError, Result};
use super::{Context, check_count};
use crate::domain::id::KeyId;
use crate::domain::verdict::{ChargeGroup, GroupOutcome, Subject};

/// Subject and origin of a charge. The demo accepts every origin, so it has none.
fn subject_of(charge: &Charge) -> (Subject, Option<u128>) {
    match *charge {
        Charge::Key { digest, origin } => (Subject::Key(KeyId::of(&digest)), origin),
        Charge::Demo => (Subject::Demo, None),
    }
}

/// For the lookup API in the same process.
impl ChargeService for Context {
    fn charge(
        &self,
        charges: Vec<Charge>,
        _trace: Option<HeaderMap>,
    ) -> BoxFuture<'_, Result<Vec<Verdict>, ClientError>> {
        async move { Ok(self.charge_batch(&charges).await) }.boxed()
    }
}

/// Where a charge's verdict comes from.
enum VerdictSource {
    Cached(GroupOutcome),
    /// The index of the charge's group in the store call, and the index of the charge in that group.
    Group(usize, u32),
}

impl Context {
    /// Charges a batch of requests in order, each atomically. One that fails has the verdict `unavailable` and does not affect
    /// the others. `quota_api::batch` describes both bodies.
    pub async fn charge_body(&self, body: &[u8]) -> Result<Vec<u8>> {
        let message = "the body must consist of valid charges of 49 bytes each";
        let charges = decode_charges(body).ok_or_else(|| ApiError::invalid("invalid_charges", message))?;
        check_count(charges.len(), MAX_BATCH, "charges")?;
        Ok(encode_verdicts(&self.charge_batch(&charges).await))
    }

    /// Charges a batch: cached denials first, one store call for the rest. Returns one verdict per charge, in order, as
    /// if the charges had arrived one by one.
    async fn charge_batch(&self, charges: &[Charge]) -> Vec<Verdict> {
        let (sources, groups) = self.group(charges);
        let outcomes = self.charge_store(&groups).await;
        let verdicts: Vec<Verdict> = sources
            .iter()
            .map(|source| match source {
                VerdictSource::Cached(outcome) => outcome.verdict(0, &self.limits),
                VerdictSource::Group(group, index) => outcomes[*group].verdict(*index, &self.limits),
            })
            .collect();
        let charged: usize = groups.iter().map(|group| group.count as usize).sum();
        self.metrics.record_batch(&verdicts, sources.len() - charged);
        verdicts
    }

    /// Looks up each charge in the denial cache. Puts those that are not in the cache into one group per subject and origin.
    fn group(&self, charges: &[Charge]) -> (Vec<VerdictSource>, Vec<ChargeGroup>) {
        let now = Instant::now();
        let mut groups: Vec<ChargeGroup> = Vec::with_capacity(charges.len());
        let mut group_of: HashMap<(Subject, Option<u128>), usize> = HashMap::with_capacity(charges.len());
        let charges = charges.iter().map(subject_of);
        let sources = charges.map(|(subject, origin)| match group_of.entry((subject, origin)) {
            Entry::Occupied(group) => {
                let group = *group.get();
                groups[group].count += 1;
                VerdictSource::Group(group, groups[group].count - 1)
            }
            Entry::Vacant(new) => match self.accounts.denials.get(&subject, origin, now) {
                Some(outcome) => VerdictSource::Cached(outcome),
                None => {
                    groups.push(ChargeGroup { subject, origin, count: 1 });
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
        let generation = self.accounts.denials.generation();
        let started = Instant::now();
        let outcomes = self.accounts.charge(groups).await;
        let now = Instant::now();
        self.metrics.record_store_call(now - started);
        for (group, outcome) in groups.iter().zip(&outcomes) {
            self.accounts.denials.insert(group, outcome, generation, now);
        }
        outcomes
    }
}
