//! The errors of the API, with their statuses, codes and messages.

use bytes::Bytes;
use http::StatusCode;
use quota_client::ChargeError;
use quota_client::wire::{Limits, rfc3339};
use service_kit::ErrorBody;

use super::rate_limit::Reason;
use crate::lookup::{Denial, KeyReason, RateLimit};
use crate::metrics::{Operation, RequestOutcome};
use crate::public_urls::PublicUrls;

/// Why a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiError {
    /// No key in the header or in the query string.
    MissingKey,
    /// `scope` is not `ip`, `geo` or `full`.
    InvalidScope,
    /// The key has the wrong format or checksum; it is rejected without a call to quota-svc.
    MalformedKey,
    /// Denied by quota-svc, or no verdict from it.
    Denied(Denial),
}

impl ApiError {
    /// For a verdict that allows a key's request but lacks the key's scope: it is treated like no verdict.
    pub(super) const NO_VERDICT: Self = Self::Denied(Denial::NoVerdict(ChargeError::Unavailable));

    /// Each kind of error, with a name and an operation that responds with it.
    pub(super) fn examples(limits: Limits) -> Vec<(&'static str, Operation, Self)> {
        let rate_limit = |limit| RateLimit { limit, remaining: 0, reset: 0 };
        let daily = |limit| Self::Denied(Denial::Daily { rate_limit: rate_limit(limit), retry_after: 0 });
        let burst =
            Denial::Burst { paused_now: false, rate_limit: rate_limit(limits.burst.into()), retry_after: 0 };
        let inactive = ["inactive_api_key", "expired_api_key", "wrong_origin", "suspended"]
            .into_iter()
            .zip(KeyReason::ALL);
        let inactive =
            inactive.map(|(name, reason)| (name, Operation::Lookup, Self::Denied(Denial::Inactive(reason))));
        let others = [
            ("invalid_scope", Operation::Lookup, Self::InvalidScope),
            ("missing_api_key", Operation::Lookup, Self::MissingKey),
            ("invalid_api_key", Operation::Lookup, Self::MalformedKey),
            ("daily_quota_used_up", Operation::Lookup, daily(limits.daily)),
            ("key_paused", Operation::Lookup, Self::Denied(burst)),
            ("demo_quota_used_up", Operation::Demo, daily(limits.demo)),
            ("internal_error", Operation::Lookup, Self::NO_VERDICT),
            ("internal_error", Operation::Demo, Self::NO_VERDICT),
        ];
        others.into_iter().chain(inactive).collect()
    }

    /// The outcome for metrics and traces.
    pub(super) fn outcome(&self) -> RequestOutcome {
        match *self {
            Self::MissingKey => RequestOutcome::MissingKey,
            Self::InvalidScope => RequestOutcome::InvalidScope,
            Self::MalformedKey => RequestOutcome::MalformedKey,
            Self::Denied(Denial::UnknownKey) => RequestOutcome::UnknownKey,
            Self::Denied(Denial::Inactive(_)) => RequestOutcome::Inactive,
            Self::Denied(Denial::Burst { paused_now: false, .. }) => RequestOutcome::Paused,
            Self::Denied(Denial::Burst { paused_now: true, .. }) => RequestOutcome::BurstExceeded,
            Self::Denied(Denial::Daily { .. }) => RequestOutcome::DailyExceeded,
            Self::Denied(Denial::NoVerdict(error)) => error.into(),
        }
    }

    /// Which limit was exceeded, its values, and the value of `Retry-After`.
    pub(super) fn rate_limit(&self, operation: Operation) -> Option<(Reason, RateLimit, u32)> {
        Some(match *self {
            Self::Denied(Denial::Burst { paused_now, rate_limit, retry_after }) => {
                (if paused_now { Reason::Burst } else { Reason::Paused }, rate_limit, retry_after)
            }
            Self::Denied(Denial::Daily { rate_limit, retry_after }) => {
                (Reason::daily(operation), rate_limit, retry_after)
            }
            _ => return None,
        })
    }
}

/// The statuses and bodies of errors. Those without numbers are serialized once.
#[derive(Clone, Debug)]
pub(super) struct ErrorBodies {
    urls: PublicUrls,
    prepared: Vec<(ApiError, (StatusCode, Bytes))>,
}

impl ErrorBodies {
    pub(super) fn new(urls: &PublicUrls) -> Self {
        let without_numbers = [
            ApiError::MissingKey,
            ApiError::InvalidScope,
            ApiError::MalformedKey,
            ApiError::Denied(Denial::UnknownKey),
            ApiError::Denied(Denial::Inactive(KeyReason::Deactivated)),
            ApiError::Denied(Denial::Inactive(KeyReason::Origin)),
            ApiError::NO_VERDICT,
        ];
        let mut bodies = Self { urls: urls.clone(), prepared: Vec::new() };
        bodies.prepared =
            without_numbers.map(|error| (error, bodies.build(Operation::Lookup, &error))).into();
        bodies
    }

    pub(super) fn status_and_body(&self, operation: Operation, error: &ApiError) -> (StatusCode, Bytes) {
        let prepared = self.prepared.iter().find(|(prepared, _)| prepared == error);
        prepared.map_or_else(|| self.build(operation, error), |(_, response)| response.clone())
    }

    fn build(&self, operation: Operation, error: &ApiError) -> (StatusCode, Bytes) {
        let PublicUrls { dashboard, enterprise, signup, docs, .. } = &self.urls;
        let (status, code, message) = match error {
            ApiError::MissingKey => (StatusCode::UNAUTHORIZED, "missing_api_key", MISSING_KEY.to_owned()),
            ApiError::InvalidScope => (StatusCode::BAD_REQUEST, "invalid_scope", INVALID_SCOPE.to_owned()),
            ApiError::MalformedKey | ApiError::Denied(Denial::UnknownKey) => {
                let message = format!(
                    "This API key does not exist. Check that you copied all of it, or create a key at {dashboard}."
                );
                (StatusCode::UNAUTHORIZED, "invalid_api_key", message)
            }
            ApiError::Denied(Denial::Inactive(reason)) => {
                let message = match reason {
                    KeyReason::Deactivated => {
                        format!("This API key is deactivated. Its owner can reactivate it at {dashboard}.")
                    }
                    KeyReason::Expired { at } => format!(
                        "This API key expired at {}. Its owner can replace it at {dashboard}.",
                        rfc3339(*at)
                    ),
                    KeyReason::Suspended => format!(
                        "The account of this API key is suspended. Its owner sees the reason at {dashboard}."
                    ),
                    KeyReason::Origin => format!(
                        "This API key is for certain web pages only, and this request does not come from one of them. Its owner can change the allowed origins at {dashboard}."
                    ),
                };
                (StatusCode::FORBIDDEN, "inactive_api_key", message)
            }
            ApiError::Denied(Denial::Burst { rate_limit: RateLimit { limit, .. }, .. }) => {
                let message = format!(
                    "This API key is paused because it exceeded the burst limit of {limit} requests per minute. It stays paused until its owner resumes it at {dashboard}. To ask for its state without being charged, use GET {dashboard}/api/v1/quota with the same key."
                );
                (StatusCode::TOO_MANY_REQUESTS, RATE_LIMIT, message)
            }
            ApiError::Denied(Denial::Daily { rate_limit: RateLimit { limit, .. }, .. }) => {
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
            ApiError::Denied(Denial::NoVerdict(_)) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "internal_error", INTERNAL.to_owned())
            }
        };
        let mut body = ErrorBody::new(code, message, docs);
        match (error, operation) {
            (ApiError::Denied(Denial::Daily { .. }), Operation::Lookup) => {
                body.enterprise = Some(enterprise.clone())
            }
            (ApiError::Denied(Denial::Daily { .. }), Operation::Demo) => body.signup = Some(signup.clone()),
            _ => {}
        }
        let mut json = serde_json::to_vec(&body).expect("serializing an ErrorBody can't fail");
        json.push(b'\n');
        (status, json.into())
    }
}

const RATE_LIMIT: &str = "rate_limit_exceeded";

const MISSING_KEY: &str = "No API key in this request. Send it in the header `Authorization: Bearer <API_KEY>` or, if you can't set headers, in the query string as `key=<API_KEY>`.";

const INVALID_SCOPE: &str =
    "`scope` must be `ip`, `geo` or `full`. Leave it out to get every field your key allows.";

const INTERNAL: &str =
    "The request could not be processed because of a problem on the server. Retry in a few seconds.";
