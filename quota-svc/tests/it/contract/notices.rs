//! Announcements and the outbox.

use quota_api::{
    Channel, ClaimedNotice, Contact, Delivery, Mail, Notice, NoticeKind, NoticeResult, Outcome, Scope,
    StateChange, Webhook,
};
use quota_api::{KeyChange, Rejection};
use quota_svc::domain::id::{AccountId, KeyId};
use quota_svc::store::StoreError;

use super::harness::{DAY, Harness};

pub fn webhook_contact() -> Contact {
    let (url, secret) = ("https://hooks.example/x".to_owned(), "whsec_eA==".to_owned());
    Contact { webhook: Some(Webhook { url, secret, enabled: true, muted: [].into() }), mail: None }
}

/// A contact with a webhook and a verified mail address.
pub fn both_channels() -> Contact {
    let mail =
        Mail { address: "ada@example.org".to_owned(), verified: true, notices: true, muted: [].into() };
    Contact { mail: Some(mail), ..webhook_contact() }
}

/// The end of a claim.
pub fn notice_result(
    channel: Channel,
    claim: u64,
    retry_seconds: Option<u32>,
    delivery: Option<Delivery>,
) -> NoticeResult {
    NoticeResult { account: String::new(), channel, claim, retry_seconds, delivery }
}

/// Ends the claim of a notice: without a delivery, or after a failed one if it is to be repeated.
pub async fn finish(harness: &Harness, claimed: &ClaimedNotice, retry_seconds: Option<u32>) -> bool {
    let account = AccountId::from_hex(&claimed.account).unwrap();
    let failed = retry_seconds.map(|_| Delivery { at: 5, error: Some("status 500".to_owned()) });
    let result = notice_result(claimed.channel, claimed.claim, retry_seconds, failed);
    harness.store.finish_notice(account, &result).await.unwrap()
}

/// An account that wants notices, and its key.
pub async fn account_and_key(harness: &Harness) -> (AccountId, KeyId) {
    let account = harness.account().await;
    harness.store.set_contact(account, &Contact::default(), &webhook_contact()).await.unwrap();
    (account, harness.key_in(account, Scope::Full, Some(50_000)).await.unwrap())
}

/// Charges a key `count` times, and returns the time.
async fn charge(harness: &Harness, key: KeyId, count: u32) -> i64 {
    harness.charge_and_count(key, count, Outcome::Allowed).await;
    harness.now()
}

/// Pauses a key, and returns the notice of it.
pub async fn pause(harness: &Harness, key: KeyId) -> Notice {
    let limit = harness.limits.burst.into();
    let at = charge(harness, key, limit + 1).await;
    assert_eq!(harness.outcome(key).await, Outcome::Paused);
    Notice { kind: NoticeKind::KeyPaused, key: key.to_string(), at, limit, used: 0 }
}

async fn resume(harness: &Harness, key: KeyId) {
    let resume = KeyChange::State(StateChange::Resume);
    harness.store.change_key(key, None, &resume, &quota_api::Actor::Owner).await.unwrap();
}

/// Claims notices and finishes each, until there are no more. Returns them.
async fn deliver(harness: &Harness) -> Vec<Notice> {
    let mut delivered = Vec::new();
    loop {
        let claimed = claim(harness).await;
        if claimed.is_empty() {
            return delivered;
        }
        for claimed in claimed {
            assert!(finish(harness, &claimed, None).await);
            delivered.push(claimed.notice);
        }
    }
}

async fn claim(harness: &Harness) -> Vec<ClaimedNotice> {
    harness.store.claim_notices(10).await.unwrap().notices
}

pub async fn pause_is_announced_once(harness: &Harness) {
    let ((account, key), store) = (account_and_key(harness).await, &harness.store);
    let paused = pause(harness, key).await;
    harness.advance(12_000);
    assert_eq!(store.overdue_ms().await.unwrap(), 12_000);
    let claimed = claim(harness).await;
    assert_eq!(store.overdue_ms().await.unwrap(), 0, "claimed");
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    assert_eq!((&claimed[0].account, &claimed[0].notice), (&account.to_string(), &paused));
    assert!(finish(harness, &claimed[0], None).await);
    assert_eq!(harness.outcome(key).await, Outcome::Paused);
    harness.advance(DAY);
    assert_eq!(harness.outcome(key).await, Outcome::Paused);
    assert_eq!((claim(harness).await, store.overdue_ms().await.unwrap()), (Vec::new(), 0));
}

pub async fn each_pause_is_announced_also_after_its_end(harness: &Harness) {
    let (_, key) = account_and_key(harness).await;
    let mut pauses = Vec::new();
    for _ in 0..2 {
        pauses.push(pause(harness, key).await);
        resume(harness, key).await;
        harness.advance(1);
    }
    assert_eq!(deliver(harness).await, pauses);
}

pub async fn announcement_of_yesterday_makes_no_notice(harness: &Harness) {
    let (_, key) = account_and_key(harness).await;
    pause(harness, key).await;
    harness.advance(DAY + 1);
    assert_eq!(deliver(harness).await, []);
    assert_eq!(harness.store.overdue_ms().await.unwrap(), 0, "it was removed");
}

pub async fn claim_ends_after_a_minute_and_failed_attempts_are_counted(harness: &Harness) {
    let (_, key) = account_and_key(harness).await;
    pause(harness, key).await;
    let first = claim(harness).await;
    harness.advance(59_999);
    assert_eq!(claim(harness).await, []);
    harness.advance(1);
    let second = claim(harness).await;
    assert_eq!((second.len(), second[0].attempts), (1, 0));
    assert!(!finish(harness, &first[0], None).await, "the claim has ended");
    assert!(finish(harness, &second[0], Some(300)).await);
    assert!(!finish(harness, &second[0], Some(300)).await, "already reported");
    harness.advance(299_999);
    assert_eq!(claim(harness).await, []);
    harness.advance(1);
    let third = claim(harness).await;
    assert_eq!((third.len(), third[0].attempts), (1, 1));
    assert_eq!(third[0].notice, first[0].notice);
}

pub async fn notices_of_an_account_are_claimed_one_after_another(harness: &Harness) {
    let (account, first) = account_and_key(harness).await;
    let second = harness.key_in(account, Scope::Ip, None).await.unwrap();
    for key in [first, second] {
        pause(harness, key).await;
        harness.advance(1);
    }
    for key in [first, second] {
        let claimed = claim(harness).await;
        assert_eq!(claimed.len(), 1, "{claimed:?}");
        assert_eq!(claimed[0].notice.key, key.to_string());
        finish(harness, &claimed[0], None).await;
    }
}

pub async fn levels_of_the_daily_limit_are_announced_once_a_day(harness: &Harness) {
    let (account, _) = account_and_key(harness).await;
    let key = harness.key_in(account, Scope::Ip, Some(11)).await.unwrap();
    let notice = |kind, at, limit, used| Notice { kind, key: key.to_string(), at, limit, used };
    let set_limit = async |limit| {
        let change = KeyChange::DailyLimit(Some(limit));
        harness.store.change_key(key, None, &change, &quota_api::Actor::Operator).await.unwrap();
    };
    charge(harness, key, 8).await;
    assert_eq!(deliver(harness).await, [], "four fifths, rounded up, are 9");
    let at = charge(harness, key, 1).await;
    harness.advance(1_000);
    charge(harness, key, 1).await;
    assert_eq!(deliver(harness).await, [notice(NoticeKind::KeyDailyLimit80, at, 11, 9)]);
    let at = charge(harness, key, 1).await;
    harness.advance(1_000);
    charge(harness, key, 1).await;
    assert_eq!(deliver(harness).await, [notice(NoticeKind::KeyDailyLimit, at, 11, 11)]);
    set_limit(20).await;
    charge(harness, key, 20).await;
    assert_eq!(deliver(harness).await, [], "a changed limit keeps the levels of the day");

    harness.advance(DAY);
    let at = charge(harness, key, 30).await;
    assert_eq!(deliver(harness).await, [notice(NoticeKind::KeyDailyLimit, at, 20, 20)], "both at once");
    harness.advance(DAY);
    charge(harness, key, 15).await;
    set_limit(14).await;
    charge(harness, key, 5).await;
    assert_eq!(deliver(harness).await, [], "denied requests announce nothing");
    set_limit(17).await;
    let at = charge(harness, key, 1).await;
    assert_eq!(deliver(harness).await, [notice(NoticeKind::KeyDailyLimit80, at, 17, 16)]);
}

pub async fn owner_without_a_webhook_gets_no_notice(harness: &Harness) {
    let key = harness.key().await;
    pause(harness, key).await;
    assert_eq!(claim(harness).await, []);
    assert_eq!(harness.store.overdue_ms().await.unwrap(), 0, "the announcement was removed");
}

pub async fn channels_have_their_own_queues_attempts_and_deliveries(harness: &Harness) {
    let ((account, key), store) = (account_and_key(harness).await, &harness.store);
    store.set_contact(account, &webhook_contact(), &both_channels()).await.unwrap();
    for _ in 0..2 {
        pause(harness, key).await;
        resume(harness, key).await;
        harness.advance(1);
    }
    let mut first = claim(harness).await;
    first.sort_by_key(|claimed| claimed.channel);
    let channels: Vec<_> = first.iter().map(|claimed| claimed.channel).collect();
    assert_eq!(channels, [Channel::Webhook, Channel::Mail]);
    assert_eq!(first[0].notice, first[1].notice);
    let failed = Delivery { at: 5, error: Some("status 500".to_owned()) };
    let delivered = Delivery { at: 6, error: None };
    let finish_as = async |channel, claim, retry_seconds, delivery| {
        let result = notice_result(channel, claim, retry_seconds, Some(delivery));
        store.finish_notice(account, &result).await.unwrap()
    };
    assert!(
        !finish_as(Channel::Mail, first[0].claim, None, failed.clone()).await,
        "the claim is of the other channel"
    );
    finish_as(Channel::Webhook, first[0].claim, Some(300), failed.clone()).await;
    finish_as(Channel::Mail, first[1].claim, None, delivered.clone()).await;
    let second = claim(harness).await;
    assert_eq!((second.len(), second[0].channel), (1, Channel::Mail), "a failing webhook delays no mail");
    assert_ne!(second[0].notice, first[0].notice);
    let value = store.account(account).await.unwrap();
    let expected = [("mail".to_owned(), delivered), ("webhook".to_owned(), failed)];
    assert_eq!(value.outbox.last_deliveries, expected.into_iter().collect());
    finish(harness, &second[0], None).await;
    harness.advance(300_000);
    let third = claim(harness).await;
    assert_eq!((third.len(), third[0].channel, third[0].attempts), (1, Channel::Webhook, 1));
}

pub async fn unverified_or_switched_off_mail_gets_no_notice(harness: &Harness) {
    let ((account, key), store) = (account_and_key(harness).await, &harness.store);
    for (verified, notices) in [(false, true), (true, false)] {
        let mail = Mail { address: "ada@example.org".to_owned(), verified, notices, muted: [].into() };
        let old = store.account(account).await.unwrap().value.account.contact;
        store.set_contact(account, &old, &Contact { webhook: None, mail: Some(mail) }).await.unwrap();
        pause(harness, key).await;
        assert_eq!(claim(harness).await, []);
        resume(harness, key).await;
        harness.advance(1);
    }
}

pub async fn contact_is_replaced_and_gone_with_the_account(harness: &Harness) {
    let ((account, key), store) = (account_and_key(harness).await, &harness.store);
    assert_eq!(store.account(account).await.unwrap().account.contact, webhook_contact());
    assert_eq!(store.account(account).await.unwrap().account.contact, webhook_contact());
    store.set_contact(account, &webhook_contact(), &Contact::default()).await.unwrap();
    assert_eq!(store.account(account).await.unwrap().account.contact, Contact::default());
    let outdated = store.set_contact(account, &webhook_contact(), &both_channels()).await;
    assert!(matches!(outdated, Err(StoreError::Rejected(Rejection::ContactConflict))), "{outdated:?}");
    assert_eq!(store.account(account).await.unwrap().account.contact, Contact::default());
    store.set_contact(account, &Contact::default(), &both_channels()).await.unwrap();
    let outdated = store.set_contact(account, &webhook_contact(), &Contact::default()).await;
    assert!(matches!(outdated, Err(StoreError::Rejected(Rejection::ContactConflict))), "{outdated:?}");
    pause(harness, key).await;
    let claimed = claim(harness).await;
    store.delete_account(account, None).await.unwrap();
    let set = store.set_contact(account, &both_channels(), &webhook_contact()).await;
    assert!(matches!(set, Err(StoreError::Rejected(Rejection::AccountNotFound))), "{set:?}");
    // Its notices are gone, too.
    assert_eq!(claimed.len(), 2);
    for ClaimedNotice { channel, claim, .. } in claimed {
        let result = notice_result(channel, claim, None, Some(Delivery { at: 5, error: None }));
        assert!(!store.finish_notice(account, &result).await.unwrap());
    }
    assert!(store.account(account).await.is_err(), "not created again");
    harness.advance(DAY);
    assert_eq!((claim(harness).await, store.overdue_ms().await.unwrap()), (Vec::new(), 0));
}
