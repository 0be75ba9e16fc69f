//! Every error of the API: its status, its code and its words, here and nowhere else.

use bytes::Bytes;
use http::StatusCode;
use quota_client::ChargeError;
use service_kit::ErrorBody;

use crate::links::Links;
use crate::lookup::{Limit, Refusal};
use crate::metrics::{Ending, Operation};

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    /// Neither header nor query has a key.
    MissingKey,
    /// `scope` is none of the three.
    InvalidScope,
    /// By its form this can't be a key; nobody was asked.
    MalformedKey,
    /// quota-svc said no, or nothing.
    Refused(Refusal),
}

impl Denial {
    /// quota-svc said something that makes no sense.
    pub(super) const NO_VERDICT: Self = Self::Refused(Refusal::NoVerdict(ChargeError::Unavailable));

    /// How it is counted.
    pub(super) fn ending(&self) -> Ending {
        match *self {
            Self::MissingKey => Ending::MissingKey,
            Self::InvalidScope => Ending::InvalidScope,
            Self::MalformedKey => Ending::MalformedKey,
            Self::Refused(Refusal::UnknownKey) => Ending::UnknownKey,
            Self::Refused(Refusal::Inactive) => Ending::Inactive,
            Self::Refused(Refusal::Burst { now: false, .. }) => Ending::Paused,
            Self::Refused(Refusal::Burst { now: true, .. }) => Ending::BurstExceeded,
            Self::Refused(Refusal::Daily { .. }) => Ending::DailyExceeded,
            Self::Refused(Refusal::NoVerdict(error)) => error.into(),
        }
    }

    /// The limit that refused, with the seconds to wait.
    pub(super) fn limit(&self) -> Option<(Limit, u32)> {
        match *self {
            Self::Refused(
                Refusal::Burst { limit, retry_after, .. } | Refusal::Daily { limit, retry_after },
            ) => Some((limit, retry_after)),
            _ => None,
        }
    }
}

/// The bodies of the errors; those that never change are written once.
#[derive(Clone, Debug)]
pub(super) struct Errors {
    links: Links,
    missing_key: Bytes,
    invalid_key: Bytes,
    inactive_key: Bytes,
    invalid_scope: Bytes,
    internal: Bytes,
}

impl Errors {
    pub(super) fn new(links: &Links) -> Self {
        let body = |code: &str, message: String| written(&ErrorBody::new(code, message, &links.docs));
        let Links { dashboard, .. } = links;
        Self {
            missing_key: body("missing_api_key", MISSING_KEY.to_owned()),
            invalid_key: body(
                "invalid_api_key",
                format!(
                    "This API key does not exist. Check that it is complete, or create one at {dashboard}."
                ),
            ),
            inactive_key: body(
                "inactive_api_key",
                format!("This API key has been deactivated. Its owner can reactivate it at {dashboard}."),
            ),
            invalid_scope: body("invalid_scope", INVALID_SCOPE.to_owned()),
            internal: body("internal_error", INTERNAL.to_owned()),
            links: links.clone(),
        }
    }

    /// The status and the body of a denial.
    pub(super) fn answer(&self, operation: Operation, denial: &Denial) -> (StatusCode, Bytes) {
        match denial {
            // No key in header or query; the message explains both ways to pass one.
            Denial::MissingKey => (StatusCode::UNAUTHORIZED, self.missing_key.clone()),
            // A scope outside ip, geo, full; nothing is charged.
            Denial::InvalidScope => (StatusCode::BAD_REQUEST, self.invalid_scope.clone()),
            // The key does not exist.
            Denial::MalformedKey | Denial::Refused(Refusal::UnknownKey) => {
                (StatusCode::UNAUTHORIZED, self.invalid_key.clone())
            }
            // The key has been deactivated.
            Denial::Refused(Refusal::Inactive) => (StatusCode::FORBIDDEN, self.inactive_key.clone()),
            // Too many in a minute; the key is paused.
            Denial::Refused(Refusal::Burst { limit, .. }) => {
                (StatusCode::TOO_MANY_REQUESTS, self.burst(limit.limit))
            }
            // The day's quota, of the key or of the demo, is used up.
            Denial::Refused(Refusal::Daily { limit, .. }) => {
                (StatusCode::TOO_MANY_REQUESTS, self.daily(operation, limit.limit))
            }
            // No verdict; the client may retry.
            Denial::Refused(Refusal::NoVerdict(_)) => {
                (StatusCode::INTERNAL_SERVER_ERROR, self.internal.clone())
            }
        }
    }

    fn burst(&self, limit: u32) -> Bytes {
        let dashboard = &self.links.dashboard;
        let message = format!(
            "The burst limit of {limit} requests per minute was exceeded and the key is paused. Its owner can resume it at {dashboard}."
        );
        written(&self.limited(message))
    }

    fn daily(&self, operation: Operation, limit: u32) -> Bytes {
        let body = match operation {
            Operation::Lookup => ErrorBody {
                enterprise: Some(self.links.enterprise.clone()),
                ..self.limited(format!(
                    "The daily quota of {limit} requests of this key is used up. It starts anew at midnight UTC."
                ))
            },
            Operation::Demo => ErrorBody {
                signup: Some(self.links.signup.clone()),
                ..self.limited(format!(
                    "The daily quota of {limit} requests that all users of the demo share is used up. It starts anew at midnight UTC; sign up for a key of your own."
                ))
            },
        };
        written(&body)
    }

    fn limited(&self, message: String) -> ErrorBody {
        ErrorBody::new("rate_limit_exceeded", message, &self.links.docs)
    }
}

const MISSING_KEY: &str = "This request carries no API key. Send it in the header `Authorization: Bearer <API_KEY>` or, where no header can be sent, in the query as `key=<API_KEY>`.";

const INVALID_SCOPE: &str =
    "The parameter `scope` must be `ip`, `geo` or `full`. Leave it out to get all that the key shows.";

const INTERNAL: &str = "The request could not be judged just now. Please try again in a moment.";

fn written(body: &ErrorBody) -> Bytes {
    serde_json::to_vec(body).expect("an ErrorBody is strings only").into()
}
