//! The errors of the API, with their statuses, codes and messages.

use base::names;
use http::StatusCode;
use quota_client::ChargeError;
use quota_client::wire::{Exceeded, Limits, Outcome, Verdict, rfc3339};
use service_kit::ErrorBody;

use crate::metrics::{Operation, RequestOutcome};
use crate::public_urls::PublicUrls;

/// Why a request gets 429: the value of `X-RateLimit-Reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// This request exceeded the burst limit and paused the key.
    Burst,
    /// The key was paused before this request.
    Paused,
    /// The key's daily quota is used up.
    Daily,
    /// The demo's daily quota is used up.
    Demo,
}

names!(Reason: Burst => "burst", Paused => "paused", Daily => "daily", Demo => "demo");

impl Reason {
    /// The reason if the daily quota is used up.
    pub(super) const fn daily(operation: Operation) -> Self {
        match operation {
            Operation::Lookup => Self::Daily,
            Operation::Demo => Self::Demo,
        }
    }

    /// The limit as the draft describes it: its name, and the length of its window in seconds.
    pub(super) const fn policy(self) -> (&'static str, u64) {
        match self {
            Self::Burst | Self::Paused => ("burst", 60),
            Self::Daily | Self::Demo => (self.as_str(), 86_400),
        }
    }
}

/// Why a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiError {
    /// No key in the header or in the query string.
    MissingKey,
    /// `scope` is not `ip`, `geo` or `full`.
    InvalidScope,
    /// The key has the wrong format or checksum; it is rejected without a call to quota-svc.
    MalformedKey,
    /// quota-svc's verdict, which does not allow the request.
    Denied(Verdict),
    /// quota-svc returned no usable verdict.
    NoVerdict(ChargeError),
}

impl ApiError {
    /// For a verdict that allows a key's request but lacks the key's scope: it is treated like no verdict.
    pub(super) const NO_VERDICT: Self = Self::NoVerdict(ChargeError::Unavailable);

    /// Each kind of error, with a name and an operation that responds with it.
    pub(super) fn examples(limits: Limits) -> Vec<(&'static str, Operation, Self)> {
        let exceeded = |limit| Exceeded { limit, reset: 0, retry_after: 0 };
        let daily = |limit| Self::Denied(Verdict::DailyExceeded(exceeded(limit)));
        let paused = Self::Denied(Verdict::Paused(exceeded(limits.burst.into())));
        vec![
            ("invalid_scope", Operation::Lookup, Self::InvalidScope),
            ("missing_api_key", Operation::Lookup, Self::MissingKey),
            ("invalid_api_key", Operation::Lookup, Self::MalformedKey),
            ("daily_quota_used_up", Operation::Lookup, daily(limits.daily)),
            ("key_paused", Operation::Lookup, paused),
            ("demo_quota_used_up", Operation::Demo, daily(limits.demo)),
            ("internal_error", Operation::Lookup, Self::NO_VERDICT),
            ("internal_error", Operation::Demo, Self::NO_VERDICT),
            ("inactive_api_key", Operation::Lookup, Self::Denied(Verdict::Inactive)),
            ("expired_api_key", Operation::Lookup, Self::Denied(Verdict::Expired { at: 1_798_761_600 })),
            ("wrong_origin", Operation::Lookup, Self::Denied(Verdict::WrongOrigin)),
            ("suspended", Operation::Lookup, Self::Denied(Verdict::Suspended)),
        ]
    }

    /// The outcome for metrics and traces.
    pub(super) fn outcome(&self) -> RequestOutcome {
        match self {
            Self::MissingKey => RequestOutcome::MissingKey,
            Self::InvalidScope => RequestOutcome::InvalidScope,
            Self::MalformedKey => RequestOutcome::MalformedKey,
            Self::NoVerdict(error) => (*error).into(),
            Self::Denied(verdict) => match verdict.outcome() {
                Outcome::UnknownKey => RequestOutcome::UnknownKey,
                Outcome::Inactive | Outcome::Expired | Outcome::WrongOrigin | Outcome::Suspended => {
                    RequestOutcome::Inactive
                }
                Outcome::Paused => RequestOutcome::Paused,
                Outcome::BurstExceeded => RequestOutcome::BurstExceeded,
                Outcome::DailyExceeded => RequestOutcome::DailyExceeded,
                Outcome::Allowed | Outcome::Unavailable => RequestOutcome::Unavailable,
            },
        }
    }

    /// The exceeded limit, and the value of `X-RateLimit-Reason`.
    pub(super) fn exceeded(&self, operation: Operation) -> Option<(Reason, Exceeded)> {
        match *self {
            Self::Denied(Verdict::Paused(limit)) => Some((Reason::Paused, limit)),
            Self::Denied(Verdict::BurstExceeded(limit)) => Some((Reason::Burst, limit)),
            Self::Denied(Verdict::DailyExceeded(limit)) => Some((Reason::daily(operation), limit)),
            _ => None,
        }
    }

    /// Why the key can't be used, whatever its limits are: the value of `X-Key-Reason`.
    pub(super) const fn key_reason(&self) -> Option<&'static str> {
        match self {
            Self::Denied(Verdict::Inactive) => Some("deactivated"),
            Self::Denied(Verdict::Expired { .. }) => Some("expired"),
            Self::Denied(Verdict::WrongOrigin) => Some("origin"),
            Self::Denied(Verdict::Suspended) => Some("suspended"),
            _ => None,
        }
    }

    /// The status and body of the response.
    pub(super) fn status_and_body(&self, operation: Operation, urls: &PublicUrls) -> (StatusCode, Vec<u8>) {
        let PublicUrls { dashboard, enterprise, signup, docs, .. } = urls;
        let inactive = |message| (StatusCode::FORBIDDEN, "inactive_api_key", message);
        let (status, code, message) = match self {
            Self::MissingKey => (StatusCode::UNAUTHORIZED, "missing_api_key", MISSING_KEY.to_owned()),
            Self::InvalidScope => (StatusCode::BAD_REQUEST, "invalid_scope", INVALID_SCOPE.to_owned()),
            Self::MalformedKey | Self::Denied(Verdict::UnknownKey) => {
                let message = format!(
                    "This API key does not exist. Check that you copied all of it, or create a key at {dashboard}."
                );
                (StatusCode::UNAUTHORIZED, "invalid_api_key", message)
            }
            Self::Denied(Verdict::Inactive) => {
                inactive(format!("This API key is deactivated. Its owner can reactivate it at {dashboard}."))
            }
            Self::Denied(Verdict::Expired { at }) => inactive(format!(
                "This API key expired at {}. Its owner can replace it at {dashboard}.",
                rfc3339(*at)
            )),
            Self::Denied(Verdict::Suspended) => inactive(format!(
                "The account of this API key is suspended. Its owner sees the reason at {dashboard}."
            )),
            Self::Denied(Verdict::WrongOrigin) => inactive(format!(
                "This API key is for certain web pages only, and this request does not come from one of them. Its owner can change the allowed origins at {dashboard}."
            )),
            Self::Denied(
                Verdict::Paused(Exceeded { limit, .. }) | Verdict::BurstExceeded(Exceeded { limit, .. }),
            ) => {
                let message = format!(
                    "This API key is paused because it exceeded the burst limit of {limit} requests per minute. It stays paused until its owner resumes it at {dashboard}. To ask for its state without being charged, use GET {dashboard}/api/v1/quota with the same key."
                );
                (StatusCode::TOO_MANY_REQUESTS, RATE_LIMIT, message)
            }
            Self::Denied(Verdict::DailyExceeded(Exceeded { limit, .. })) => {
                let message = match operation {
                    Operation::Lookup => format!(
                        "This API key has used its daily quota of {limit} requests. The quota resets at midnight UTC. For a higher limit, see {enterprise}."
                    ),
                    Operation::Demo => format!(
                        "The demo's daily quota of {limit} requests, shared by all callers, is used up. It resets at midnight UTC. For your own quota, sign up at {signup}."
                    ),
                };
                (StatusCode::TOO_MANY_REQUESTS, RATE_LIMIT, message)
            }
            Self::Denied(Verdict::Allowed { .. } | Verdict::Unavailable) | Self::NoVerdict(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "internal_error", INTERNAL.to_owned())
            }
        };
        let mut body = ErrorBody::new(code, message, docs);
        if let Self::Denied(Verdict::DailyExceeded(_)) = self {
            match operation {
                Operation::Lookup => body.enterprise = Some(enterprise.clone()),
                Operation::Demo => body.signup = Some(signup.clone()),
            }
        }
        let mut json = serde_json::to_vec(&body).expect("serializing an ErrorBody can't fail");
        json.push(b'\n');
        (status, json)
    }
}

const RATE_LIMIT: &str = "rate_limit_exceeded";

const MISSING_KEY: &str = "No API key in this request. Send it in the header `Authorization: Bearer <API_KEY>` or, if you can't set headers, in the query string as `key=<API_KEY>`.";

const INVALID_SCOPE: &str =
    "`scope` must be `ip`, `geo` or `full`. Leave it out to get every field your key allows.";

const INTERNAL: &str =
    "The request could not be processed because of a problem on the server. Retry in a few seconds.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_denial_maps_to_its_outcome_and_reasons() {
        let exceeded = Exceeded { limit: 300, reset: 1_000, retry_after: 60 };
        for (verdict, outcome, key_reason, limit_reason) in [
            (Verdict::UnknownKey, RequestOutcome::UnknownKey, None, None),
            (Verdict::Inactive, RequestOutcome::Inactive, Some("deactivated"), None),
            (Verdict::Expired { at: 7 }, RequestOutcome::Inactive, Some("expired"), None),
            (Verdict::WrongOrigin, RequestOutcome::Inactive, Some("origin"), None),
            (Verdict::Suspended, RequestOutcome::Inactive, Some("suspended"), None),
            (Verdict::Paused(exceeded), RequestOutcome::Paused, None, Some(Reason::Paused)),
            (Verdict::BurstExceeded(exceeded), RequestOutcome::BurstExceeded, None, Some(Reason::Burst)),
            (Verdict::DailyExceeded(exceeded), RequestOutcome::DailyExceeded, None, Some(Reason::Demo)),
            (Verdict::Unavailable, RequestOutcome::Unavailable, None, None),
        ] {
            let error = ApiError::Denied(verdict);
            assert_eq!((error.outcome(), error.key_reason()), (outcome, key_reason), "{verdict:?}");
            let limit = error.exceeded(Operation::Demo);
            assert_eq!(limit, limit_reason.map(|reason| (reason, exceeded)), "{verdict:?}");
        }
    }
}
