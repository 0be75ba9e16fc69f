//! The operations that lookup-svc calls: `POST /charges` and `GET /status`.

use std::sync::Arc;

use api_key::KeyDigest;
use poem_openapi::{OpenApi, Tags};
use quota_api::{Charge, ChargeRequest, ChargeResponse, MAX_BATCH, Status};
use service_kit::SerdeJson;

use super::Context;
use super::error::{ApiError, NO_SUBJECT, RequestError};
use crate::domain::id::KeyId;
use crate::domain::verdict::Subject;

#[derive(Tags)]
pub(super) enum Tag {
    /// Counts requests against their limits.
    Charges,
    /// Accounts, their credentials and sessions.
    Accounts,
    /// API keys. Operations on one key take an optional `account`: if set, a key of another account gets 404.
    Keys,
    /// Export and import, for backups, migration between stores and seeding.
    Transfer,
}

pub struct ChargesApi(pub Arc<Context>);

#[OpenApi(tag = "Tag::Charges")]
impl ChargesApi {
    /// Charge a batch of requests
    ///
    /// Processes the charges in order, each atomically. A charge that fails has the outcome `unavailable` and does not
    /// affect the others.
    #[oai(path = "/charges", method = "post", operation_id = "chargeBatch")]
    async fn charge(&self, batch: SerdeJson<ChargeRequest>) -> Result<SerdeJson<ChargeResponse>, ApiError> {
        let charges = batch.0.charges;
        if charges.is_empty() || charges.len() > MAX_BATCH {
            let actual = charges.len();
            return Err(RequestError::BatchSize { max: MAX_BATCH, items: "charges", actual }.into());
        }
        let subjects = charges.iter().enumerate().map(|(index, charge)| subject(index, charge));
        let subjects: Vec<Subject> = subjects.collect::<Result<_, _>>()?;
        Ok(SerdeJson(ChargeResponse { verdicts: self.0.charge_service.charge(&subjects).await }))
    }

    /// Show the state of the service
    ///
    /// Whether the store can be used, and the limits that apply to charges.
    #[oai(path = "/status", method = "get", operation_id = "getStatus")]
    async fn status(&self) -> Result<SerdeJson<Status>, ApiError> {
        let store_unavailable = self.0.store.unavailable_reason();
        Ok(SerdeJson(Status { store_unavailable, limits: self.0.limits }))
    }
}

fn subject(index: usize, charge: &Charge) -> Result<Subject, RequestError> {
    match (&charge.key_sha256, charge.demo) {
        (Some(digest), None) => match KeyDigest::from_hex(digest) {
            Ok(digest) => Ok(Subject::Key(KeyId::of(&digest))),
            Err(error) => Err(RequestError::Charge(index, error.to_string())),
        },
        (None, Some(true)) => Ok(Subject::Demo),
        _ => Err(RequestError::Charge(index, NO_SUBJECT.to_owned())),
    }
}
