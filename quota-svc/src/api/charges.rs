//! The operations that lookup-svc calls: `POST /charges` and `GET /status`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use poem_openapi::payload::Binary;
use poem_openapi::{ApiResponse, OpenApi, Tags};
use quota_api::{Charge, MAX_BATCH, Status, Verdict, decode_charges, encode_verdicts};
use quota_client::{ChargeService, ClientError};
use service_kit::SerdeJson;

use super::Context;
use super::error::{RequestError, Result};
use crate::domain::id::KeyId;
use crate::domain::notice::Announcement;
use crate::domain::verdict::{ChargeGroup, GroupOutcome, Subject};

#[derive(Tags)]
pub(super) enum Tag {
    /// Counts requests against their limits.
    Charges,
    /// Accounts, their credentials and sessions.
    Accounts,
    /// API keys. Operations on one key take an optional `account`: if set, a key of another account gets 404.
    Keys,
    /// Notices to owners about their keys.
    Notices,
    /// Export and import, for backups, migration between stores and seeding.
    Transfer,
}

pub struct ChargesApi(pub Arc<Context>);

#[derive(ApiResponse)]
enum Charged {
    /// The verdicts, in the order of the charges.
    #[oai(status = 200)]
    Verdicts(Binary<Vec<u8>>),
}

#[OpenApi(tag = "Tag::Charges")]
impl ChargesApi {
    /// Charge a batch of requests
    ///
    /// Processes the charges in order, each atomically. A charge that fails has the outcome `unavailable` and does not
    /// affect the others.
    ///
    /// The request has 1 to 256 records of 49 bytes, one for each charge: 1 byte for the kind (0: demo, 1: key, 2: key and
    /// origin), 32 bytes for the SHA-256 of the API key, and 16 bytes for the first half of the SHA-256 of the `Origin` header.
    /// Bytes that the kind does not use are 0.
    ///
    /// The response has a record of 25 bytes for each charge, in the same order: 1 byte for the verdict and three
    /// little-endian numbers of 8 bytes. Verdicts 0 to 3 are allowed (with scope ip, geo, full, and the demo), and have the
    /// daily limit, the requests left, and when the limit resets. 4 is unknown key, 5 inactive, 6 expired, with the time of the
    /// expiry, 7 wrong origin, 8 suspended. 9 paused, 10 burst exceeded and 11 daily exceeded have the limit, when it resets,
    /// and the seconds to wait. 12 is unavailable. Times are Unix times in seconds. All numbers but the times of resets are
    /// less than 2^32. Numbers that a verdict does not have are 0.
    #[oai(path = "/charges", method = "post", operation_id = "chargeBatch")]
    async fn charge(&self, body: Binary<Vec<u8>>) -> Result<Charged> {
        let charges = decode_charges(&body).ok_or(RequestError::Charges)?;
        if charges.is_empty() || charges.len() > MAX_BATCH {
            let actual = charges.len();
            return Err(RequestError::BatchSize { max: MAX_BATCH, items: "charges", actual }.into());
        }
        Ok(Charged::Verdicts(Binary(encode_verdicts(&self.0.charge_batch(&charges).await))))
    }

    /// Show the state of the service
    ///
    /// Whether the store can be used, and the limits that apply to charges.
    #[oai(path = "/status", method = "get", operation_id = "getStatus")]
    async fn status(&self) -> Result<SerdeJson<Status>> {
        let store_unavailable = self.0.accounts.unavailable_reason();
        Ok(SerdeJson(Status { store_unavailable, limits: self.0.limits }))
    }
}

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
            Entry::Vacant(new) => match self.denial_cache.get(&subject, origin, now) {
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
        let generation = self.denial_cache.generation();
        let started = Instant::now();
        let outcomes = self.accounts.charge(groups).await;
        let now = Instant::now();
        self.metrics.record_store_call(now - started);
        for (group, outcome) in groups.iter().zip(&outcomes) {
            self.denial_cache.insert(group, outcome, generation, now);
            if let Some(announcement) = Announcement::of(group, outcome, self.limits.burst) {
                self.announcer.announce(announcement);
            }
        }
        outcomes
    }
}
