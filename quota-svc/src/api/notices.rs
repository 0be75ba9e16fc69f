//! Notices to owners, and where they want them. dashboard-api delivers them.

use std::sync::Arc;

use poem_openapi::OpenApi;
use poem_openapi::param::{Path, Query};
use quota_api::{ClaimedNotices, ContactStatus, NoticeResult, SetContact};
use service_kit::SerdeJson;

use super::Context;
use super::accounts::{Done, account_id};
use super::charges::Tag;
use super::error::{RequestError, Result};
use crate::domain::account::contact_fits;
use crate::domain::notice::Queue;

const MAX_CLAIMS: u32 = 100;

pub struct NoticesApi(pub Arc<Context>);

#[OpenApi(tag = "Tag::Notices")]
impl NoticesApi {
    /// Claim notices for delivery
    ///
    /// The oldest one of each account and channel whose turn it is. A claim ends after 60 seconds, unless its result is reported first.
    #[oai(path = "/notices/claims", method = "post", operation_id = "claimNotices")]
    async fn claim(
        &self,
        /// Maximum number of notices. Default: 16, maximum: 100.
        limit: Query<Option<u32>>,
    ) -> Result<SerdeJson<ClaimedNotices>> {
        let limit = limit.0.unwrap_or(16).clamp(1, MAX_CLAIMS) as usize;
        let claims = self.0.accounts.claim_notices(limit).await?;
        self.0.metrics.record_dropped_notices(claims.dropped);
        Ok(SerdeJson(ClaimedNotices { notices: claims.notices }))
    }

    /// Report the result of a delivery
    ///
    /// Removes the notice, or sets the time of the next attempt. Without effect if the claim has ended.
    #[oai(path = "/notices/results", method = "post", operation_id = "reportNotice")]
    async fn report(&self, result: SerdeJson<NoticeResult>) -> Result<Done> {
        let queue = Queue { account: account_id(&result.0.account)?, channel: result.0.channel };
        self.0.accounts.finish_notice(queue, result.0).await?;
        Ok(Done::Done)
    }

    /// Show an account's contact
    ///
    /// With the results of the last deliveries.
    #[oai(path = "/accounts/:id/contact", method = "get", operation_id = "getContact")]
    async fn contact(&self, id: Path<String>) -> Result<SerdeJson<ContactStatus>> {
        Ok(SerdeJson(self.0.accounts.contact(account_id(&id)?).await?))
    }

    /// Replace an account's contact
    ///
    /// At most 4,096 bytes of JSON. Fails if the account has another contact than the expected one.
    #[oai(path = "/accounts/:id/contact", method = "put", operation_id = "setContact")]
    async fn set_contact(&self, id: Path<String>, change: SerdeJson<SetContact>) -> Result<Done> {
        let SetContact { expected, contact } = &change.0;
        if !contact_fits(contact) {
            return Err(RequestError::Contact.into());
        }
        self.0.accounts.set_contact(account_id(&id)?, expected, contact).await?;
        Ok(Done::Done)
    }
}
