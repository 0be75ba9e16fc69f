//! The limits of quota-svc, for the pages that state them.

use std::time::Duration;

use quota_client::QuotaClient;
use quota_client::wire::Limits;
use tokio::sync::watch;
use tokio::time::sleep;

/// How often the limits are read again: quota-svc may have been restarted with other flags.
const INTERVAL: Duration = Duration::from_secs(30);

/// How often to retry while quota-svc does not respond.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The limits of quota-svc. Unknown until it has responded, and always unknown with an earlier version, which does not
/// report them.
#[derive(Clone, Debug)]
pub struct QuotaLimits(watch::Receiver<Option<Limits>>);

impl QuotaLimits {
    /// Returns the limits, and the task that keeps them current. No request waits for it.
    pub fn follow(client: QuotaClient) -> (Self, impl Future<Output = ()> + use<>) {
        let (sender, receiver) = watch::channel(None);
        (Self(receiver), update(client, sender))
    }

    pub fn current(&self) -> Option<Limits> {
        *self.0.borrow()
    }
}

async fn update(client: QuotaClient, limits: watch::Sender<Option<Limits>>) {
    loop {
        let delay = match client.status().await {
            Ok(status) => {
                limits.send_replace(status.limits);
                INTERVAL
            }
            // A version without this operation.
            Err(error) if error.status() == Some(404) => {
                limits.send_replace(None);
                INTERVAL
            }
            // The limits that were read last stay in use. Failed lookups and the readiness check report the same problem.
            Err(error) => {
                tracing::debug!(%error, "can't read the limits of quota-svc");
                if error.status().is_some() { INTERVAL } else { RETRY_INTERVAL }
            }
        };
        sleep(delay).await;
    }
}

/// Formats a number with a comma between groups of three digits.
pub fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        for (number, text) in [(0, "0"), (300, "300"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
