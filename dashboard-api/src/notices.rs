//! Delivers notices to owners: claims them from quota-svc, sends them, and reports the results. Several processes share the
//! work: what one has claimed, the others do not get until its claim ends.

pub mod target;
pub mod webhook;

use std::sync::Arc;
use std::time::Duration;

use base::log_throttle::LogThrottle;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Meter};
use quota_client::wire::{Channel, ClaimedNotice, Delivery, NoticeResult, OwnedKey};
use quota_client::{ClientError, QuotaClient, found};
use target::TargetRules;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::mail::{self, Mailer};
use crate::session::now_ms;
use crate::throttle::Purpose;

/// Notices in delivery at the same time: at most one per account and channel.
const CONCURRENCY: usize = 64;
/// How often notices are claimed while there are none.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Seconds until the next attempt, by the number of failed ones. The last number repeats.
const BACKOFF: [u32; 6] = [5, 30, 120, 600, 1_800, 3_600];
/// After this many failed attempts, about a day after the first, a notice is dropped.
const MAX_ATTEMPTS: u32 = 28;

pub struct Deliveries {
    quota: QuotaClient,
    /// Where webhooks may be sent; `None` if none are sent.
    webhooks: Option<TargetRules>,
    /// `None` if no mail is sent.
    mail: Option<Arc<Mailer>>,
    /// URL of the dashboard.
    link: String,
    results: Counter<u64>,
    failures: LogThrottle,
}

impl Deliveries {
    pub fn new(
        quota: QuotaClient,
        webhooks: Option<TargetRules>,
        mail: Option<Arc<Mailer>>,
        link: String,
        meter: &Meter,
    ) -> Self {
        let results = meter
            .u64_counter("notice_deliveries")
            .with_description("Attempts to deliver a notice to an owner, by channel and result")
            .build();
        Self { quota, webhooks, mail, link, results, failures: LogThrottle::default() }
    }

    /// Runs until it is canceled.
    pub async fn run(self) {
        let (deliveries, mut in_progress) = (Arc::new(self), JoinSet::new());
        deliveries.quota.wait_for_store(|_| {}).await;
        loop {
            let free = u32::try_from(CONCURRENCY - in_progress.len()).unwrap_or(0);
            let wait = match deliveries.quota.claim_notices(free.max(1)).await {
                Ok(claimed) if claimed.is_empty() => POLL_INTERVAL,
                Ok(claimed) => {
                    for claimed in claimed {
                        let deliveries = deliveries.clone();
                        in_progress.spawn(async move { deliveries.deliver(claimed).await });
                    }
                    Duration::ZERO
                }
                Err(error) => {
                    deliveries.log(&error, "can't claim notices");
                    deliveries.quota.wait_for_store(|_| {}).await;
                    POLL_INTERVAL
                }
            };
            if in_progress.len() >= CONCURRENCY {
                in_progress.join_next().await;
            }
            sleep(wait).await;
            while in_progress.try_join_next().is_some() {}
        }
    }

    async fn deliver(&self, claimed: ClaimedNotice) {
        let (retry_seconds, delivery) = match self.attempt(&claimed).await {
            Ok(result) => result,
            // The claim ends by itself.
            Err(error) => return self.log(&error, "can't deliver a notice"),
        };
        let ClaimedNotice { account, channel, claim, .. } = claimed;
        let result = NoticeResult { account, channel, claim, retry_seconds, delivery };
        if let Err(error) = self.quota.report_notice(&result).await {
            self.log(&error, "can't report the delivery of a notice; it may be repeated");
        }
    }

    /// Sends a notice, unless its account or key is gone or wants none. Returns when to try again, and the attempt.
    async fn attempt(&self, claimed: &ClaimedNotice) -> Result<(Option<u32>, Option<Delivery>), ClientError> {
        let ClaimedNotice { account, channel, notice, attempts, .. } = claimed;
        let contact = found(self.quota.contact(account).await)?.unwrap_or_default().contact;
        if !contact.channels(notice.kind).contains(channel) {
            return Ok((None, None));
        }
        let key = found(self.quota.key(&notice.key, Some(account)).await)?;
        let Some(OwnedKey { key, .. }) = key else { return Ok((None, None)) };
        let link = format!("{}/#/keys/{}", self.link, key.id);
        let (webhook, mail) =
            (contact.webhook.zip(self.webhooks.as_ref()), contact.mail.zip(self.mail.as_ref()));
        let sent = match (channel, webhook, mail) {
            (Channel::Webhook, Some((webhook, rules)), _) => {
                let message = webhook::Message::new(notice, &key, &link);
                let sent = webhook::send(rules, &webhook, &message, webhook::TIMEOUT).await;
                sent.map_err(|error| error.to_string())
            }
            (Channel::Mail, _, Some((mail, mailer))) => {
                if let Err(throttled) = mailer.allow(Purpose::Notice, &mail.address) {
                    return Ok((u32::try_from(throttled.retry_seconds).ok(), None));
                }
                let message = mail::message::Message::notice(notice, &key, &link);
                let sent = mailer.send(&mail.address, &message, mail::TIMEOUT).await;
                sent.map_err(|error| error.to_string())
            }
            // This service does not use the channel any more.
            _ => return Ok((None, None)),
        };
        let backoff = BACKOFF.get(*attempts as usize).or(BACKOFF.last()).copied();
        let retry = backoff.filter(|_| sent.is_err() && *attempts < MAX_ATTEMPTS);
        let result = match (&sent, retry) {
            (Ok(()), _) => "delivered",
            (Err(_), Some(_)) => "failed",
            (Err(_), None) => "dropped",
        };
        self.results.add(1, &[KeyValue::new("channel", channel.as_str()), KeyValue::new("result", result)]);
        Ok((retry, Some(Delivery { at: now_ms(), error: sent.err() })))
    }

    fn log(&self, error: &ClientError, message: &str) {
        if let Some(occurrences) = self.failures.allow() {
            tracing::warn!(%error, occurrences, "{message}");
        }
    }
}
