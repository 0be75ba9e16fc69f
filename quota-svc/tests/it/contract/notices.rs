//! Announcements and the outbox.

use quota_api::{
    Channel, ClaimedNotice, Contact, Delivery, Mail, NoticeKind, NoticeResult, Scope, StateChange, Verdict,
    Webhook,
};
use quota_svc::domain::id::{AccountId, KeyId};
use quota_svc::domain::key::KeyChange;
use quota_svc::domain::notice::{Announcement, MAX_NOTICES, Queue};
use quota_svc::domain::rejection::Rejection;
use quota_svc::domain::verdict::{ChargeGroup, GroupOutcome, Subject};
use quota_svc::store::StoreError;

use super::harness::{DAY, Harness};

pub fn webhook_contact() -> Contact {
    let (url, secret) = ("https://hooks.example/x".to_owned(), "whsec_eA==".to_owned());
    Contact { webhook: Some(Webhook { url, secret, enabled: true }), mail: None }
}

/// A contact with a webhook and a verified mail address.
pub fn both_channels() -> Contact {
    let mail = Mail { address: "ada@example.org".to_owned(), verified: true, notices: true };
    Contact { mail: Some(mail), ..webhook_contact() }
}

/// The end of a claim.
pub fn notice_result(claim: u64, retry_seconds: Option<u32>, delivery: Option<Delivery>) -> NoticeResult {
    NoticeResult { account: String::new(), channel: Channel::Webhook, claim, retry_seconds, delivery }
}

/// Ends the claim of a notice without a delivery.
pub async fn finish(harness: &Harness, claimed: &ClaimedNotice, retry_seconds: Option<u32>) -> bool {
    let account = AccountId::from_hex(&claimed.account).unwrap();
    let queue = Queue { account, channel: claimed.channel };
    harness.store.finish_notice(queue, notice_result(claimed.claim, retry_seconds, None)).await.unwrap()
}

/// An account that wants notices, and its key.
pub async fn account_and_key(harness: &Harness) -> (AccountId, KeyId) {
    let account = harness.account().await;
    harness.store.set_contact(account, &Contact::default(), &webhook_contact()).await.unwrap();
    (account, harness.key_in(account, Scope::Full, Some(500)).await.unwrap())
}

/// Charges a key and returns what its outcome gives reason to announce.
pub async fn announcement(harness: &Harness, key: KeyId, count: u32) -> Option<Announcement> {
    let group = ChargeGroup { subject: Subject::Key(key), origin: None, count };
    let outcomes = harness.store.charge(&[group]).await;
    Announcement::of(&group, &outcomes[0], harness.limits.burst)
}

pub async fn pause(harness: &Harness, key: KeyId) -> Announcement {
    announcement(harness, key, u32::from(harness.limits.burst) + 1).await.unwrap()
}

async fn claim(harness: &Harness) -> Vec<ClaimedNotice> {
    harness.store.claim_notices(10).await.unwrap().notices
}

pub async fn pause_is_announced_until_it_is_marked(harness: &Harness) {
    let ((account, key), store) = (account_and_key(harness).await, &harness.store);
    let paused = pause(harness, key).await;
    assert_eq!((paused.kind, paused.at, paused.limit), (NoticeKind::KeyPaused, harness.now(), 300));
    harness.advance(5_000);
    assert_eq!(announcement(harness, key, 1).await, Some(paused), "not announced yet");
    for _ in 0..2 {
        assert_eq!(store.announce(&paused).await.unwrap(), 0);
    }
    harness.advance(7_000);
    assert!((7_000..=12_000).contains(&store.overdue_ms().await.unwrap()));
    let claimed = claim(harness).await;
    assert_eq!(announcement(harness, key, 1).await, None, "announced");
    assert_eq!(store.overdue_ms().await.unwrap(), 0, "claimed");
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    assert_eq!((&claimed[0].account, &claimed[0].notice), (&account.to_string(), &paused.notice()));
    assert!(finish(harness, &claimed[0], None).await);
    harness.advance(DAY);
    assert_eq!(claim(harness).await, [], "a repeated announcement added nothing");
    assert_eq!(store.overdue_ms().await.unwrap(), 0);
}

pub async fn late_mark_does_not_hide_a_second_pause(harness: &Harness) {
    let (_, key) = account_and_key(harness).await;
    let first = pause(harness, key).await;
    let resume = KeyChange::State(StateChange::Resume);
    harness.store.change_key(key, None, &resume, &quota_api::Actor::Owner).await.unwrap();
    harness.advance(1);
    let second = pause(harness, key).await;
    harness.store.announce(&first).await.unwrap();
    assert_eq!(claim(harness).await[0].notice, first.notice());
    assert_eq!(announcement(harness, key, 1).await, Some(second));
    harness.store.announce(&second).await.unwrap();
    assert_eq!(claim(harness).await, [], "the first one is in delivery");
    assert_eq!(announcement(harness, key, 1).await, None);
}

pub async fn resume_keeps_a_pause_unannounced(harness: &Harness) {
    let (account, key) = account_and_key(harness).await;
    let paused = pause(harness, key).await;
    let resume = KeyChange::State(StateChange::Resume);
    harness.store.change_key(key, Some(account), &resume, &quota_api::Actor::Owner).await.unwrap();
    harness.store.announce(&paused).await.unwrap();
    assert_eq!(claim(harness).await[0].notice, paused.notice());
}

pub async fn claim_ends_after_a_minute_and_failed_attempts_are_counted(harness: &Harness) {
    let ((_, key), store) = (account_and_key(harness).await, &harness.store);
    store.announce(&pause(harness, key).await).await.unwrap();
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
    let ((account, first), store) = (account_and_key(harness).await, &harness.store);
    let second = harness.key_in(account, Scope::Ip, None).await.unwrap();
    for key in [first, second] {
        store.announce(&pause(harness, key).await).await.unwrap();
        harness.advance(1);
    }
    for key in [first, second] {
        let claimed = claim(harness).await;
        assert_eq!(claimed.len(), 1, "{claimed:?}");
        assert_eq!(claimed[0].notice.key, key.to_string());
        finish(harness, &claimed[0], None).await;
    }
}

pub async fn daily_limit_is_announced_once_a_day(harness: &Harness) {
    let (account, _) = account_and_key(harness).await;
    let key = harness.key_in(account, Scope::Ip, Some(2)).await.unwrap();
    for _ in 0..2 {
        let limited = announcement(harness, key, 3).await.unwrap();
        assert_eq!((limited.kind, limited.limit), (NoticeKind::KeyDailyLimit, 2));
        harness.store.announce(&limited).await.unwrap();
        let claimed = claim(harness).await;
        assert_eq!(claimed[0].notice.at, harness.now() / DAY * DAY);
        finish(harness, &claimed[0], None).await;
        harness.advance(1_000);
        let again = announcement(harness, key, 1).await.unwrap();
        harness.store.announce(&again).await.unwrap();
        assert_eq!(claim(harness).await, [], "announced before");
        harness.advance(DAY);
    }
}

pub async fn full_outbox_drops_an_older_notice_and_counts_it(harness: &Harness) {
    let ((_, key), store) = (account_and_key(harness).await, &harness.store);
    let announcement = |at| Announcement { key, kind: NoticeKind::KeyPaused, at, limit: 300 };
    let mut dropped = 0;
    for at in (0..MAX_NOTICES as i64).chain([1_000]) {
        dropped += store.announce(&announcement(at)).await.unwrap();
    }
    // Announcements are sorted in parts.
    for _ in 0..5 {
        dropped += store.claim_notices(10).await.unwrap().dropped;
    }
    assert_eq!(dropped, 1);
    harness.advance(60_000);
    let mut delivered = Vec::new();
    while let [claimed] = &claim(harness).await[..] {
        delivered.push(claimed.notice.at);
        finish(harness, claimed, None).await;
    }
    let expected: Vec<i64> = [0].into_iter().chain(2..100).chain([1_000]).collect();
    assert_eq!(delivered, expected, "the oldest stays, because it may be claimed");
}

pub async fn owner_without_a_webhook_gets_no_notice(harness: &Harness) {
    let key = harness.key().await;
    let paused = pause(harness, key).await;
    harness.store.announce(&paused).await.unwrap();
    assert_eq!(claim(harness).await, []);
    assert_eq!(announcement(harness, key, 1).await, None, "marked, so that no charge announces it again");
    let unknown = Announcement { key: KeyId([1; 16]), ..paused };
    harness.store.announce(&unknown).await.unwrap();
    let group = ChargeGroup { subject: Subject::Key(unknown.key), origin: None, count: 1 };
    assert_eq!(
        harness.store.charge(&[group]).await,
        [GroupOutcome::Denied(Verdict::UnknownKey)],
        "no record was created"
    );
}

pub async fn channels_have_their_own_queues_attempts_and_deliveries(harness: &Harness) {
    let ((account, key), store) = (account_and_key(harness).await, &harness.store);
    store.set_contact(account, &webhook_contact(), &both_channels()).await.unwrap();
    for _ in 0..2 {
        store.announce(&pause(harness, key).await).await.unwrap();
        let resume = KeyChange::State(StateChange::Resume);
        store.change_key(key, None, &resume, &quota_api::Actor::Owner).await.unwrap();
        harness.advance(1);
    }
    let mut first = claim(harness).await;
    first.sort_by_key(|claimed| claimed.channel);
    let channels: Vec<_> = first.iter().map(|claimed| claimed.channel).collect();
    assert_eq!(channels, [Channel::Webhook, Channel::Mail]);
    assert_eq!(first[0].notice, first[1].notice);
    let failed = Delivery { at: 5, error: Some("status 500".to_owned()) };
    let delivered = Delivery { at: 6, error: None };
    let [webhook, mail] = [Channel::Webhook, Channel::Mail].map(|channel| Queue { account, channel });
    assert!(
        !store.finish_notice(mail, notice_result(first[0].claim, None, Some(failed.clone()))).await.unwrap(),
        "the claim is of the other channel"
    );
    store
        .finish_notice(webhook, notice_result(first[0].claim, Some(300), Some(failed.clone())))
        .await
        .unwrap();
    store.finish_notice(mail, notice_result(first[1].claim, None, Some(delivered.clone()))).await.unwrap();
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
        let mail = Mail { address: "ada@example.org".to_owned(), verified, notices };
        let old = store.account(account).await.unwrap().value.account.contact;
        store.set_contact(account, &old, &Contact { webhook: None, mail: Some(mail) }).await.unwrap();
        store.announce(&pause(harness, key).await).await.unwrap();
        assert_eq!(claim(harness).await, []);
        let resume = KeyChange::State(StateChange::Resume);
        store.change_key(key, None, &resume, &quota_api::Actor::Owner).await.unwrap();
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
    store.announce(&pause(harness, key).await).await.unwrap();
    let claimed = claim(harness).await;
    store.delete_account(account, None).await.unwrap();
    let set = store.set_contact(account, &both_channels(), &webhook_contact()).await;
    assert!(matches!(set, Err(StoreError::Rejected(Rejection::AccountNotFound))), "{set:?}");
    // Its notices are gone, too.
    assert_eq!(claimed.len(), 2);
    for ClaimedNotice { channel, claim, .. } in claimed {
        let result = notice_result(claim, None, Some(Delivery { at: 5, error: None }));
        assert!(!store.finish_notice(Queue { account, channel }, result).await.unwrap());
    }
    assert!(store.account(account).await.is_err(), "not created again");
    harness.advance(DAY);
    assert_eq!((claim(harness).await, store.overdue_ms().await.unwrap()), (Vec::new(), 0));
}
