//! The outbox of an account: notices that wait for their delivery.

use quota_api::{ClaimedNotice, Notice, NoticeResult};

use super::AccountValue;
use crate::domain::id::KeyId;
use crate::domain::notice::{Announcement, CLAIM_MS, MAX_NOTICES, NoticeQueue};

impl AccountValue {
    /// Adds a notice in each channel where the owner wants notices of its kind, unless it is there already. Returns how many notices were
    /// dropped for it.
    pub fn add_notice(&mut self, notice: &Notice, now: i64) -> u64 {
        let mut dropped = 0;
        for channel in self.account.contact.channels(notice.kind) {
            let new = NoticeQueue { due: now, ..NoticeQueue::default() };
            let queue = self.outbox.queues.entry(channel).or_insert(new);
            if !queue.notices.contains(notice) {
                queue.notices.push(notice.clone());
            }
            // The oldest one may be claimed, so it stays: its claim must find it. The next one goes.
            if queue.notices.len() > MAX_NOTICES {
                queue.notices.remove(1);
                dropped += 1;
            }
        }
        dropped
    }

    /// Makes notices of an announcement, which the commit removes. `default_limit` is that of keys without their own. Returns how
    /// many notices were dropped for it.
    pub fn make_notices(&mut self, announcement: &Announcement, default_limit: u32, now: i64) -> u64 {
        self.made = Some(*announcement);
        if announcement.is_over(now) {
            return 0;
        }
        let limit = if announcement.limit == 0 { default_limit } else { announcement.limit };
        self.add_notice(&Announcement { limit, ..*announcement }.notice(), now)
    }

    /// Makes the notice that a key expires, if it is due, and sets the time of the next one. Returns how many notices were dropped
    /// for it.
    pub fn add_expiry_notice(&mut self, key: KeyId, now: i64) -> u64 {
        let Some(Ok(stored)) = self.keys.get_mut(&key) else { return 0 };
        if stored.meta.expiry_notice.is_none_or(|at| at > now) {
            return 0;
        }
        stored.meta.set_expiry_notice(now);
        let expires_at = stored.meta.settings.expires_at;
        let announcement = expires_at.and_then(|at| Announcement::of_expiry(key, at, now));
        announcement.map_or(0, |announcement| self.add_notice(&announcement.notice(), now))
    }

    /// Claims the oldest notice of each channel where it is due.
    pub fn claim_notices(&mut self, now: i64) -> Vec<ClaimedNotice> {
        let (account, last_claim) = (self.id().to_string(), &mut self.outbox.last_claim);
        let mut claimed = Vec::new();
        for (channel, queue) in &mut self.outbox.queues {
            let Some(notice) = queue.notices.first().filter(|_| queue.due <= now) else { continue };
            *last_claim = u64::try_from(now).unwrap_or(0).max(last_claim.saturating_add(1));
            (queue.claim, queue.due) = (*last_claim, now + CLAIM_MS);
            let (account, notice, attempts) = (account.clone(), notice.clone(), queue.attempts);
            claimed.push(ClaimedNotice { account, channel: *channel, notice, claim: queue.claim, attempts });
        }
        claimed
    }

    /// Ends a claim: removes its notice, or delays its next attempt, and stores the delivery as the last one. Returns `false` if
    /// the claim is no longer valid.
    pub fn finish_notice(&mut self, result: NoticeResult, now: i64) -> bool {
        let channel = result.channel;
        let Some(queue) = self.outbox.queues.get_mut(&channel) else { return false };
        if queue.claim == 0 || queue.claim != result.claim {
            return false;
        }
        queue.claim = 0;
        if let Some(seconds) = result.retry_seconds {
            queue.attempts = queue.attempts.saturating_add(result.delivery.is_some().into());
            queue.due = now + i64::from(seconds) * 1000;
        } else if queue.notices.len() > 1 {
            queue.notices.remove(0);
            (queue.attempts, queue.due) = (0, now);
        } else {
            self.outbox.queues.remove(&channel);
        }
        let delivery = result.delivery.map(|delivery| (channel.as_str().to_owned(), delivery));
        self.outbox.last_deliveries.extend(delivery);
        true
    }
}

#[cfg(test)]
pub(in crate::domain) mod tests {
    use quota_api::{Channel, Contact, Delivery, Mail, NoticeKind, Webhook};

    use super::super::tests::{NOW, draft, id, make_unreadable, with_keys};
    use super::*;
    use crate::domain::time::MS_PER_DAY;

    pub fn contact(webhook: bool, mail: bool) -> Contact {
        let (url, secret) = ("https://hooks.example/x".to_owned(), "whsec_eA==".to_owned());
        let address = "ada@example.org".to_owned();
        Contact {
            webhook: Some(Webhook { url, secret, enabled: webhook, muted: [].into() }),
            mail: Some(Mail { address, verified: true, notices: mail, muted: [].into() }),
        }
    }

    fn reachable(webhook: bool, mail: bool) -> AccountValue {
        let mut value = with_keys(1);
        value.account.contact = contact(webhook, mail);
        value
    }

    pub fn notice(at: i64) -> Notice {
        Notice { kind: NoticeKind::KeyPaused, key: id(1).to_string(), at, limit: 300, used: 0 }
    }

    pub fn result(claim: u64, retry_seconds: Option<u32>, delivery: Option<Delivery>) -> NoticeResult {
        NoticeResult { account: String::new(), channel: Channel::Webhook, claim, retry_seconds, delivery }
    }

    fn times(value: &AccountValue, channel: Channel) -> Vec<i64> {
        let queue = value.outbox.queues.get(&channel);
        queue.map(|queue| queue.notices.iter().map(|notice| notice.at).collect()).unwrap_or_default()
    }

    #[test]
    fn notice_is_added_once_to_each_channel_of_the_contact() {
        for (webhook, mail) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut value = reachable(webhook, mail);
            for at in [1, 2, 1] {
                assert_eq!(value.add_notice(&notice(at), NOW + at), 0);
            }
            for (channel, is_wanted) in [(Channel::Webhook, webhook), (Channel::Mail, mail)] {
                assert_eq!(times(&value, channel), if is_wanted { &[1, 2][..] } else { &[] });
                let due = value.outbox.queues.get(&channel).map(|queue| queue.due);
                assert_eq!(due, is_wanted.then_some(NOW + 1), "later notices do not delay it");
            }
        }
    }

    #[test]
    fn channel_gets_no_notice_of_a_muted_kind() {
        for kind in NoticeKind::ALL.iter().copied() {
            let mut value = reachable(true, true);
            value.account.contact.webhook.as_mut().unwrap().muted.insert(kind);
            for (at, kind) in (1..).zip(NoticeKind::ALL.iter().copied()) {
                assert_eq!(value.add_notice(&Notice { kind, ..notice(at) }, NOW), 0);
            }
            let kinds = |channel| {
                let notices = value.outbox.queues[&channel].notices.iter();
                notices.map(|notice| notice.kind).collect::<Vec<_>>()
            };
            assert_eq!(kinds(Channel::Mail), NoticeKind::ALL, "{kind:?}");
            let others: Vec<_> = NoticeKind::ALL.iter().copied().filter(|other| *other != kind).collect();
            assert_eq!(kinds(Channel::Webhook), others, "{kind:?}");
        }
    }

    #[test]
    fn full_queue_drops_the_notice_after_the_oldest() {
        let mut value = reachable(true, true);
        let max = MAX_NOTICES as i64;
        for at in 0..max {
            assert_eq!(value.add_notice(&notice(at), NOW), 0);
        }
        assert_eq!(value.add_notice(&notice(5), NOW), 0, "there already");
        value.outbox.queues.remove(&Channel::Mail);
        assert_eq!(value.add_notice(&notice(max), NOW), 1);
        assert_eq!(value.add_notice(&notice(max + 1), NOW), 1);
        assert_eq!(times(&value, Channel::Webhook), [0].into_iter().chain(3..max + 2).collect::<Vec<_>>());
        assert_eq!(times(&value, Channel::Mail), [max, max + 1]);
    }

    #[test]
    fn claim_lasts_a_minute_and_the_next_one_invalidates_it() {
        let mut value = reachable(true, false);
        assert_eq!(value.claim_notices(NOW), []);
        value.add_notice(&notice(1), NOW);
        assert_eq!(value.claim_notices(NOW - 1), [], "not due");
        let first = value.claim_notices(NOW).remove(0);
        let expected = ClaimedNotice {
            account: value.id().to_string(),
            channel: Channel::Webhook,
            notice: notice(1),
            claim: NOW as u64,
            attempts: 0,
        };
        assert_eq!(first, expected);
        assert_eq!(value.claim_notices(NOW + CLAIM_MS - 1), []);
        let second = value.claim_notices(NOW + CLAIM_MS).remove(0);
        assert_eq!((second.claim, second.attempts), (first.claim + 60_000, 0));
        assert!(!value.finish_notice(result(first.claim, None, None), NOW));
        let mail = NoticeResult { channel: Channel::Mail, ..result(second.claim, None, None) };
        assert!(!value.finish_notice(mail, NOW));
        let before = value.outbox.clone();
        assert_eq!(before.queues[&Channel::Webhook].claim, second.claim, "an invalid end changes nothing");
        // It has ended, but nobody else has claimed the notice.
        assert!(value.finish_notice(result(second.claim, None, None), NOW + MS_PER_DAY));
        assert!(value.outbox.queues.is_empty());
    }

    #[test]
    fn claims_have_increasing_numbers() {
        let mut value = reachable(true, true);
        for at in 1..=3 {
            value.add_notice(&notice(at), NOW);
        }
        let now = NOW as u64;
        for (at, expected) in
            [(NOW, [now, now + 1]), (NOW, [now + 2, now + 3]), (NOW + 9, [now + 9, now + 10])]
        {
            let claimed = value.claim_notices(at);
            assert_eq!(claimed.iter().map(|claimed| claimed.claim).collect::<Vec<_>>(), expected);
            for claimed in claimed {
                let result = NoticeResult { channel: claimed.channel, ..result(claimed.claim, None, None) };
                assert!(value.finish_notice(result, at));
            }
        }
    }

    #[test]
    fn failed_attempt_is_repeated_later_and_a_successful_one_removes_the_notice() {
        let (mut value, channel) = (reachable(true, false), Channel::Webhook);
        value.add_notice(&notice(1), NOW);
        value.add_notice(&notice(2), NOW);
        assert!(!value.finish_notice(result(0, None, None), NOW), "not claimed");
        let claim = value.claim_notices(NOW).remove(0).claim;
        let failed = Delivery { at: NOW, error: Some("status 500".to_owned()) };
        assert!(value.finish_notice(result(claim, Some(300), Some(failed.clone())), NOW + 5));
        assert!(!value.finish_notice(result(claim, Some(300), None), NOW + 5), "reported already");
        let queue = &value.outbox.queues[&channel];
        assert_eq!((queue.due, queue.attempts, queue.claim), (NOW + 300_005, 1, 0));
        assert_eq!(value.outbox.last_deliveries, [("webhook".to_owned(), failed.clone())].into());
        let again = value.claim_notices(NOW + 300_005).remove(0);
        assert_eq!((again.attempts, &again.notice), (1, &notice(1)));

        assert!(value.finish_notice(result(again.claim, None, None), NOW + 400_000));
        assert_eq!(value.outbox.last_deliveries["webhook"], failed, "nothing was sent");
        let queue = &value.outbox.queues[&channel];
        assert_eq!((queue.due, queue.attempts, queue.claim), (NOW + 400_000, 0, 0));
        assert_eq!(times(&value, channel), [2]);
        let claim = value.claim_notices(NOW + 400_000).remove(0).claim;
        let delivered = Delivery { at: NOW, error: None };
        assert!(value.finish_notice(result(claim, None, Some(delivered.clone())), NOW));
        assert_eq!(value.outbox.last_deliveries["webhook"], delivered);
        assert!(value.outbox.queues.is_empty(), "a queue without notices vanishes");
        assert_eq!(value.outbox.due(), None);
    }

    #[test]
    fn delay_without_a_delivery_is_no_attempt() {
        let (mut value, channel) = (reachable(true, false), Channel::Webhook);
        value.add_notice(&notice(1), NOW);
        let claim = value.claim_notices(NOW).remove(0).claim;
        assert!(value.finish_notice(result(claim, Some(300), None), NOW));
        let queue = &value.outbox.queues[&channel];
        assert_eq!((queue.due, queue.attempts, queue.claim), (NOW + 300_000, 0, 0));
        assert!(value.outbox.last_deliveries.is_empty());
    }

    #[test]
    fn outbox_is_due_with_the_first_of_its_queues() {
        let mut value = reachable(true, false);
        value.add_notice(&notice(1), NOW);
        value.account.contact = contact(true, true);
        value.add_notice(&notice(2), NOW + 5);
        assert_eq!(value.outbox.due(), Some(NOW));
        assert_eq!(value.claim_notices(NOW + 1).len(), 1, "the other channel is not due");
        assert_eq!(value.outbox.due(), Some(NOW + 5));
    }

    #[test]
    fn owner_is_told_seven_days_and_one_day_before_a_key_expires() {
        let mut value = reachable(true, false);
        let mut draft = draft(2);
        let end = NOW + 10 * MS_PER_DAY;
        draft.new.settings.expires_at = u32::try_from(end / 1000).ok();
        value.create_key(draft, NOW).unwrap();
        let told = |value: &mut AccountValue, now| {
            assert_eq!(value.add_expiry_notice(id(2), now), 0);
            let told = times(value, Channel::Webhook);
            value.outbox.queues.clear();
            (told, value.key(id(2)).unwrap().meta.expiry_notice)
        };
        let (week, day) = (end - 7 * MS_PER_DAY, end - MS_PER_DAY);
        let mut early = value.clone();
        assert_eq!(told(&mut value, week - 1), (vec![], Some(week)));
        assert_eq!(told(&mut value, week), (vec![week], Some(day)));
        assert_eq!(told(&mut value, week), (vec![], Some(day)), "once");
        assert_eq!(told(&mut value, day), (vec![day], None));
        assert_eq!(told(&mut value, day), (vec![], None));
        assert_eq!(told(&mut early.clone(), day + 5), (vec![day], None), "only the last one that is due");
        assert_eq!(told(&mut early.clone(), end - 1), (vec![day], None));
        assert_eq!(told(&mut early, end), (vec![], None), "it has expired");
    }

    #[test]
    fn notices_that_an_expiry_notice_drops_are_counted() {
        let mut value = reachable(true, false);
        for at in 0..MAX_NOTICES as i64 {
            value.add_notice(&notice(at), NOW);
        }
        let mut draft = draft(2);
        draft.new.settings.expires_at = u32::try_from(NOW / 1000 + 10 * 86_400).ok();
        value.create_key(draft, NOW).unwrap();
        assert_eq!(value.add_expiry_notice(id(2), NOW + 4 * MS_PER_DAY), 1);
        make_unreadable(&mut value, 2);
        for n in [1, 2, 3] {
            assert_eq!(
                value.add_expiry_notice(id(n), NOW + 9 * MS_PER_DAY),
                0,
                "never expires, or can't be read"
            );
        }
    }
}
