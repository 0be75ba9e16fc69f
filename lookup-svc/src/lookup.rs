//! The lookup, independent of HTTP: client address, quota check, response body.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use api_key::ApiKey;
use edge::{ClientInfo, Edge};
use geo::{Geo, LocationJson};
use quota_client::wire::{Charge, Outcome, Scope, Verdict};
use quota_client::{ChargeError, Charger};
use service_kit::telemetry::SPAN_TARGET;
use tracing::Instrument;

use crate::fields::FieldSet;

/// What a lookup needs.
pub struct Backends {
    /// Client address and connection facts.
    pub edge: Arc<Edge>,
    /// Location and network.
    pub geo: Geo,
    /// Quota check.
    pub charger: Charger,
}

/// The values of the `X-RateLimit-*` headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    pub limit: u32,
    pub remaining: u32,
    /// Unix time in seconds.
    pub reset: u64,
}

/// A successful charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The key's scope; `None` for the demo.
    pub scope: Option<Scope>,
    /// The daily quota.
    pub rate_limit: RateLimit,
}

/// Why a charge was not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    UnknownKey,
    /// The key can't be used, whatever its limits are.
    Inactive(KeyReason),
    /// The key is paused because of a burst.
    Burst {
        /// Whether this request caused the pause.
        paused_now: bool,
        /// The burst limit.
        rate_limit: RateLimit,
        /// In seconds.
        retry_after: u32,
    },
    /// The daily quota is used up.
    Daily {
        /// The daily quota.
        rate_limit: RateLimit,
        /// In seconds.
        retry_after: u32,
    },
    /// quota-svc returned no usable verdict.
    NoVerdict(ChargeError),
}

/// Why a request gets 403: the value of `X-Key-Reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyReason {
    Deactivated,
    Expired {
        /// Unix time in seconds.
        at: u32,
    },
    /// The request comes from a web page that may not use the key, or from no web page.
    Origin,
    /// The key's account is suspended.
    Suspended,
}

impl KeyReason {
    /// Each reason, with an example of a time.
    pub const ALL: [Self; 4] =
        [Self::Deactivated, Self::Expired { at: 1_798_761_600 }, Self::Origin, Self::Suspended];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deactivated => "deactivated",
            Self::Expired { .. } => "expired",
            Self::Origin => "origin",
            Self::Suspended => "suspended",
        }
    }
}

impl Backends {
    /// Charges a key for one request, given with the hash of its origin.
    pub async fn charge(&self, key: &ApiKey, origin: Option<u128>) -> Result<Allowed, Denial> {
        let charge = Charge::Key { digest: key.digest(), origin };
        check_verdict(self.charger.charge(charge).instrument(quota_span()).await)
    }

    /// Charges one request to the demo quota.
    pub async fn charge_demo(&self) -> Result<Allowed, Denial> {
        check_verdict(self.charger.charge(Charge::Demo).instrument(quota_span()).await)
    }

    /// Renders the response body as JSON.
    pub fn render(&self, field_set: FieldSet, client: &ClientInfo<'_>) -> Vec<u8> {
        if !field_set.has_geo_fields() {
            return field_set.to_json(client, &LocationJson::default());
        }
        self.geo.lookup_json(client.ip, unix_now(), |location| field_set.to_json(client, location))
    }
}

/// The span around a charge, enabled only if traces are exported. The call to quota-svc carries its trace context.
fn quota_span() -> tracing::Span {
    tracing::trace_span!(target: SPAN_TARGET, "quota.charge", otel.kind = "client")
}

/// The current time in Unix seconds.
pub fn unix_now() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX)
}

fn check_verdict(verdict: Result<Verdict, ChargeError>) -> Result<Allowed, Denial> {
    let verdict = verdict.map_err(Denial::NoVerdict)?;
    // Most outcomes need a rate limit or `retry_after` for the response headers. A verdict that lacks what its outcome
    // needs is treated as unavailable.
    let unavailable = Denial::NoVerdict(ChargeError::Unavailable);
    let rate_limit = || rate_limit(&verdict).ok_or(unavailable);
    let retry_after = || verdict.retry_after.ok_or(unavailable);
    Err(match verdict.outcome {
        Outcome::Allowed => return Ok(Allowed { scope: verdict.scope, rate_limit: rate_limit()? }),
        Outcome::UnknownKey => Denial::UnknownKey,
        Outcome::Inactive => Denial::Inactive(KeyReason::Deactivated),
        Outcome::Expired => {
            Denial::Inactive(KeyReason::Expired { at: verdict.expired_at.ok_or(unavailable)? })
        }
        Outcome::WrongOrigin => Denial::Inactive(KeyReason::Origin),
        Outcome::Suspended => Denial::Inactive(KeyReason::Suspended),
        Outcome::Paused | Outcome::BurstExceeded => {
            let paused_now = verdict.outcome == Outcome::BurstExceeded;
            Denial::Burst { paused_now, rate_limit: rate_limit()?, retry_after: retry_after()? }
        }
        Outcome::DailyExceeded => Denial::Daily { rate_limit: rate_limit()?, retry_after: retry_after()? },
        Outcome::Unavailable => unavailable,
    })
}

fn rate_limit(verdict: &Verdict) -> Option<RateLimit> {
    Some(RateLimit { limit: verdict.limit?, remaining: verdict.remaining?, reset: verdict.reset? })
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
            expired_at: Some(7),
        }
    }

    #[test]
    fn each_outcome_maps_to_its_result() {
        let rate_limit = RateLimit { limit: 300, remaining: 0, reset: 1_000 };
        let check = |outcome| check_verdict(Ok(verdict(outcome)));
        assert_eq!(check(Outcome::Allowed), Ok(Allowed { scope: Some(Scope::Geo), rate_limit }));
        assert_eq!(check(Outcome::UnknownKey), Err(Denial::UnknownKey));
        for (outcome, reason) in [
            (Outcome::Inactive, KeyReason::Deactivated),
            (Outcome::Expired, KeyReason::Expired { at: 7 }),
            (Outcome::WrongOrigin, KeyReason::Origin),
            (Outcome::Suspended, KeyReason::Suspended),
        ] {
            assert_eq!(check(outcome), Err(Denial::Inactive(reason)));
        }
        for (outcome, paused_now) in [(Outcome::Paused, false), (Outcome::BurstExceeded, true)] {
            assert_eq!(check(outcome), Err(Denial::Burst { paused_now, rate_limit, retry_after: 60 }));
        }
        assert_eq!(check(Outcome::DailyExceeded), Err(Denial::Daily { rate_limit, retry_after: 60 }));
        assert_eq!(check(Outcome::Unavailable), Err(Denial::NoVerdict(ChargeError::Unavailable)));
    }

    #[test]
    fn incomplete_verdict_is_unavailable() {
        let incomplete = Verdict { limit: None, ..verdict(Outcome::Allowed) };
        assert_eq!(check_verdict(Ok(incomplete)), Err(Denial::NoVerdict(ChargeError::Unavailable)));
        let incomplete = Verdict { retry_after: None, ..verdict(Outcome::Paused) };
        assert_eq!(check_verdict(Ok(incomplete)), Err(Denial::NoVerdict(ChargeError::Unavailable)));
    }
}
