//! The service in numbers, for operators.

use std::sync::Arc;

use futures_util::future::try_join_all;
use poem_openapi::OpenApi;
use poem_openapi::param::Query;
use quota_api::{KeyState, Overview, UsageCount};
use service_kit::SerdeJson;

use super::Context;
use super::charges::Tag;
use super::error::ApiError;
use crate::domain::id::AccountId;
use crate::domain::time::day_of;
use crate::store::{KeyListing, StoreError};

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
        let store = &self.0.store;
        let (page, demo_used) = tokio::try_join!(store.accounts(None, 1), store.demo_used())?;
        Ok(SerdeJson(Overview {
            accounts: page.total,
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
        let store = &self.0.store;
        let (page, now) = tokio::try_join!(store.accounts(cursor.0.as_deref(), PAGE), store.now())?;
        let accounts = page.accounts.len() + page.unreadable.len();
        let suspended = page.accounts.iter().filter(|account| account.standing.suspension.is_some()).count();
        let mut count = UsageCount {
            accounts: accounts as u64,
            suspended: suspended as u64,
            next: page.next,
            ..UsageCount::default()
        };
        let listings = page.accounts.iter().map(async |account| {
            match store.keys(AccountId::of(&account.login)).await {
                // It was deleted after it was listed.
                Err(StoreError::AccountNotFound) => Ok(KeyListing::default()),
                result => result,
            }
        });
        for listing in try_join_all(listings).await? {
            count.unreadable += listing.unreadable.len() as u64;
            for key in listing.keys {
                match key.record.state {
                    KeyState::Active => count.active += 1,
                    KeyState::Paused => count.paused += 1,
                    KeyState::Inactive => count.inactive += 1,
                }
                count.requests_today += u64::from(key.record.used_on(day_of(now), day_of(now)));
            }
        }
        Ok(SerdeJson(count))
    }
}
