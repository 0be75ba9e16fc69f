//! A look-up without its HTTP: who calls, whether they may, and what they get to see.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use api_key::ApiKey;
use edge::{Caller, Edge};
use http::{HeaderMap, Version};
use quota_client::wire::{Outcome, Scope, Verdict};
use quota_client::{ChargeError, Charger};
use service_kit::telemetry::SPAN_TARGET;
use tracing::Instrument;

use crate::body::Body;
use crate::fields::View;
use crate::geo::{Geo, PlaceJson};

/// What a request is answered from.
pub struct Lookup {
    /// Who is calling.
    pub edge: Edge,
    /// Where that is.
    pub geo: Geo,
    /// Whether they may.
    pub charger: Charger,
}

/// The numbers of a limit, as the headers tell them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Requests in all.
    pub limit: u32,
    /// Requests left.
    pub remaining: u32,
    /// When it starts anew (Unix seconds).
    pub reset: u64,
}

/// A charge that went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// The key's scope; the demo has none.
    pub scope: Option<Scope>,
    /// The day's numbers.
    pub limit: Limit,
}

/// Why a charge did not go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such key.
    UnknownKey,
    /// Deactivated by its owner.
    Inactive,
    /// Paused before, or by this request.
    Burst {
        /// Whether this request is the one that paused it.
        now: bool,
        /// The burst limit's numbers.
        limit: Limit,
        /// Seconds to wait.
        retry_after: u32,
    },
    /// Nothing left of the day's quota.
    Daily {
        /// The day's numbers.
        limit: Limit,
        /// Seconds to wait.
        retry_after: u32,
    },
    /// Nobody could judge.
    NoVerdict(ChargeError),
}

impl Lookup {
    /// Tells who is calling.
    pub fn identify<'h>(&self, peer: IpAddr, headers: &'h HeaderMap, version: Version) -> Caller<'h> {
        self.edge.identify(peer, headers, version)
    }

    /// Charges a key for one request.
    pub async fn charge(&self, key: &ApiKey) -> Result<Permit, Refusal> {
        let digest = key.digest();
        judge(self.charger.charge(&digest.0).instrument(quota_span()).await)
    }

    /// Charges the quota that all anonymous callers share.
    pub async fn charge_demo(&self) -> Result<Permit, Refusal> {
        judge(self.charger.charge_demo().instrument(quota_span()).await)
    }

    /// What the caller gets to see, as JSON.
    pub fn show(&self, view: View, caller: &Caller<'_>) -> Vec<u8> {
        if !view.has_place() {
            return Body { view, caller, place: &PlaceJson::default() }.to_json();
        }
        self.geo.lookup_json(caller.ip, now(), |place| Body { view, caller, place }.to_json())
    }
}

/// Exists only where traces are exported; its context travels with the call.
fn quota_span() -> tracing::Span {
    tracing::trace_span!(target: SPAN_TARGET, "quota.charge", otel.kind = "client")
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn judge(verdict: Result<Verdict, ChargeError>) -> Result<Permit, Refusal> {
    let verdict = verdict.map_err(Refusal::NoVerdict)?;
    // A verdict without its numbers can't be answered truthfully.
    let nothing = Refusal::NoVerdict(ChargeError::Unavailable);
    let limit = || numbers(&verdict).ok_or(nothing);
    let retry_after = || verdict.retry_after.ok_or(nothing);
    Err(match verdict.outcome {
        Outcome::Allowed => return Ok(Permit { scope: verdict.scope, limit: limit()? }),
        Outcome::UnknownKey => Refusal::UnknownKey,
        Outcome::Inactive => Refusal::Inactive,
        Outcome::Paused => Refusal::Burst { now: false, limit: limit()?, retry_after: retry_after()? },
        Outcome::BurstExceeded => Refusal::Burst { now: true, limit: limit()?, retry_after: retry_after()? },
        Outcome::DailyExceeded => Refusal::Daily { limit: limit()?, retry_after: retry_after()? },
        Outcome::Unavailable => nothing,
    })
}

fn numbers(verdict: &Verdict) -> Option<Limit> {
    Some(Limit { limit: verdict.limit?, remaining: verdict.remaining?, reset: verdict.reset? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(outcome: Outcome) -> Verdict {
        Verdict {
            outcome,
            scope: Some(Scope::Geo),
            limit: Some(300),
            remaining: Some(0),
            reset: Some(1_000),
            retry_after: Some(60),
        }
    }

    #[test]
    fn each_outcome_has_its_refusal() {
        let limit = Limit { limit: 300, remaining: 0, reset: 1_000 };
        let judged = |outcome| judge(Ok(verdict(outcome)));
        assert_eq!(judged(Outcome::Allowed), Ok(Permit { scope: Some(Scope::Geo), limit }));
        assert_eq!(judged(Outcome::UnknownKey), Err(Refusal::UnknownKey));
        assert_eq!(judged(Outcome::Inactive), Err(Refusal::Inactive));
        for (outcome, now) in [(Outcome::Paused, false), (Outcome::BurstExceeded, true)] {
            assert_eq!(judged(outcome), Err(Refusal::Burst { now, limit, retry_after: 60 }));
        }
        assert_eq!(judged(Outcome::DailyExceeded), Err(Refusal::Daily { limit, retry_after: 60 }));
        assert_eq!(judged(Outcome::Unavailable), Err(Refusal::NoVerdict(ChargeError::Unavailable)));
    }

    #[test]
    fn a_verdict_without_its_numbers_is_none() {
        let bare = Verdict { limit: None, ..verdict(Outcome::Allowed) };
        assert_eq!(judge(Ok(bare)), Err(Refusal::NoVerdict(ChargeError::Unavailable)));
        let bare = Verdict { retry_after: None, ..verdict(Outcome::Paused) };
        assert_eq!(judge(Ok(bare)), Err(Refusal::NoVerdict(ChargeError::Unavailable)));
    }
}
