//! The service in numbers, for operators.

use std::sync::Arc;

use poem_openapi::OpenApi;
use poem_openapi::param::Query;
use quota_api::{KeyState, Overview, UsageCount};
use service_kit::SerdeJson;

use super::Context;
use super::charges::Tag;
use super::error::ApiError;
use crate::domain::time::day_of;
use crate::store::Store;

/// Accounts per page: few enough for a fast response, because all their keys are read.
const PAGE: usize = 100;

pub struct OverviewApi(pub Arc<Context>);

#[OpenApi(tag = "Tag::Accounts")]
impl OverviewApi {
    /// Show the service in numbers
    ///
    /// Takes about the same time in a store of any size.
    #[oai(path = "/overview", method = "get", operation_id = "getOverview")]
    async fn show(&self) -> Result<SerdeJson<Overview>, ApiError> {
        let store: &dyn Store = &**self.0.accounts;
        let (ids, demo_used) = tokio::try_join!(store.accounts(None, 1), store.demo_used())?;
        Ok(SerdeJson(Overview {
            accounts: ids.total,
            demo_used,
            demo_limit: self.0.limits.demo,
            store: store.kind().to_owned(),
            store_problem: store.unsafe_settings(),
        }))
    }

    /// Count the keys of a page of accounts
    ///
    /// The counts of all pages together are those of the service.
    #[oai(path = "/counts", method = "get", operation_id = "countKeys")]
    async fn count(
        &self,
        /// `next` of the previous page.
        cursor: Query<Option<String>>,
    ) -> Result<SerdeJson<UsageCount>, ApiError> {
        let page = self.0.accounts.page(cursor.0.as_deref(), PAGE).await?;
        let accounts = page.accounts.len() + page.unreadable.len();
        let mut count = UsageCount { accounts: accounts as u64, next: page.next, ..UsageCount::default() };
        let today = day_of(page.now);
        for value in page.accounts {
            count.suspended += u64::from(value.account.standing.suspension.is_some());
            for key in value.keys.into_values() {
                let Ok(key) = key else {
                    count.unreadable += 1;
                    continue;
                };
                match key.record.state {
                    KeyState::Active => count.active += 1,
                    KeyState::Paused => count.paused += 1,
                    KeyState::Inactive => count.inactive += 1,
                }
                count.requests_today += u64::from(key.record.used_on(today, today));
            }
        }
        Ok(SerdeJson(count))
    }
}
