//! Announces pauses and exceeded daily limits to owners, beside the charges that cause them.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use quick_cache::sync::Cache;
use quota_api::NoticeKind;
use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::accounts::Accounts;
use crate::domain::id::KeyId;
use crate::domain::notice::Announcement;
use crate::domain::time::day_of;
use crate::metrics::Metrics;

/// Announcements that wait for the store. Further ones are dropped: a pause is announced by the key's next charge.
const QUEUE: usize = 1_024;
/// Announcements in progress.
const CONCURRENCY: usize = 16;
/// Keys whose daily limit this process has announced today. For others, the store says whether it was announced.
const LIMITED_KEYS: usize = 10_000;

pub struct Announcer {
    queue: Sender<Announcement>,
    /// The day on which a key's daily limit was announced.
    limit_days: Cache<KeyId, u32>,
}

impl Announcer {
    /// Returns the announcer and its task.
    pub fn new(accounts: Arc<Accounts>, metrics: Metrics) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (queue, announcements) = mpsc::channel(QUEUE);
        (Self { queue, limit_days: Cache::new(LIMITED_KEYS) }, run(accounts, announcements, metrics))
    }

    pub fn announce(&self, announcement: Announcement) {
        if announcement.kind == NoticeKind::KeyDailyLimit {
            let today = day_of(announcement.at);
            if self.limit_days.get(&announcement.key) == Some(today) {
                return;
            }
            self.limit_days.insert(announcement.key, today);
        }
        let _ = self.queue.try_send(announcement);
    }
}

async fn run(accounts: Arc<Accounts>, announcements: Receiver<Announcement>, metrics: Metrics) {
    let next = async |mut announcements: Receiver<Announcement>| {
        announcements.recv().await.map(|announcement| (announcement, announcements))
    };
    let announce = async |announcement: Announcement| match accounts.announce(&announcement).await {
        Ok(dropped) => metrics.record_dropped_notices(dropped),
        // A pause stays unannounced until the next charge of its key.
        Err(error) => tracing::warn!(%error, key = %announcement.key, "can't announce an event of a key yet"),
    };
    stream::unfold(announcements, next).for_each_concurrent(CONCURRENCY, announce).await;
}
