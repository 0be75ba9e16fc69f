//! Expiry, origins and rotation of keys.

use futures_util::future::join_all;
use quota_api::{
    Actor, Contact, KeySettings, NewKey, NoticeKind, Outcome, Scope, SettingsChange, StateChange, Verdict,
    origin_hash,
};
use quota_api::{KeyChange, Rejection};
use quota_svc::domain::id::{AccountId, KeyId};
use quota_svc::domain::key::{KeyMeta, StoredKey};
use quota_svc::domain::verdict::{ChargeGroup, Subject};
use quota_svc::store::StoreError;
use testkit::quota::remaining;

use super::harness::{DAY, Harness, NOON, draft};
use super::notices::{account_and_key, finish, webhook_contact};

const ALLOWED: &str = "https://shop.example";

async fn change(harness: &Harness, key: KeyId, json: &str) -> StoredKey {
    let change: SettingsChange = serde_json::from_str(json).unwrap();
    harness.store.change_key(key, None, &KeyChange::Settings(change), &Actor::Owner).await.unwrap().value
}

async fn create(harness: &Harness, account: AccountId, settings: KeySettings) -> StoredKey {
    let new = NewKey { settings, daily_limit: Some(77) };
    harness.store.create_key(account, draft(&account.generate_key().unwrap(), new)).await.unwrap().value
}

/// Charges a key once, for a request from this origin.
async fn outcome_from(harness: &Harness, key: KeyId, origin: Option<&str>) -> Outcome {
    let origin = origin.map(|origin| origin_hash(origin.as_bytes()));
    let outcomes =
        harness.store.charge(&[ChargeGroup { subject: Subject::Key(key), origin, count: 1 }]).await;
    outcomes[0].verdict(0, &harness.limits).outcome()
}

pub async fn key_expires_at_the_exact_second(harness: &Harness) {
    let key = harness.key().await;
    let at = NOON / 1000 + 10;
    change(harness, key, &format!(r#"{{"expires_at": {at}}}"#)).await;
    harness.set_time(at * 1000 - 1);
    assert_eq!(harness.outcome(key).await, Outcome::Allowed);
    harness.set_time(at * 1000);
    assert_eq!(harness.charge_key(key, 1).await, [Verdict::Expired { at: at as u32 }]);
    // Nothing is remembered: if the clock was ahead, the key works again when it is corrected.
    harness.set_time(NOON);
    assert_eq!(harness.outcome(key).await, Outcome::Allowed);
    harness.set_time(at * 1000 + 5_000);
    assert_eq!(harness.charge_key(key, 400).await[399].outcome(), Outcome::Expired);
    change(harness, key, &format!(r#"{{"expires_at": {}}}"#, at + 6)).await;
    assert_eq!(
        remaining(&harness.charge_key(key, 1).await[0]),
        Some(9_997),
        "denied requests are not counted"
    );
    harness.set_time(at * 1000 + 6_000);
    assert_eq!(harness.outcome(key).await, Outcome::Expired);
    let never = change(harness, key, r#"{"expires_at": null}"#).await;
    assert_eq!((never.meta.settings.expires_at, never.record.expires_at), (None, None));
    assert_eq!(harness.outcome(key).await, Outcome::Allowed);
}

pub async fn expired_key_stays_deactivated_and_a_paused_one_expires(harness: &Harness) {
    let [deactivated, paused] = [harness.key().await, harness.key().await];
    harness.charge_key(paused, 301).await;
    let deactivate = KeyChange::State(StateChange::Deactivate);
    harness.store.change_key(deactivated, None, &deactivate, &Actor::Owner).await.unwrap();
    for key in [deactivated, paused] {
        change(harness, key, &format!(r#"{{"expires_at": {}}}"#, NOON / 1000 + 1)).await;
    }
    assert_eq!(harness.outcome(paused).await, Outcome::Paused);
    harness.advance(1_000);
    assert_eq!(harness.outcome(deactivated).await, Outcome::Inactive);
    assert_eq!(harness.outcome(paused).await, Outcome::Expired);
}

pub async fn wrong_origin_is_denied_without_counting(harness: &Harness) {
    let account = harness.account().await;
    let settings =
        KeySettings { allowed_origins: vec![ALLOWED.to_owned()], ..KeySettings::new("web", Scope::Geo) };
    let key = create(harness, account, settings).await.meta.id();
    let wrong =
        [None, Some("null"), Some("https://shop.example:8443"), Some("http://shop.example"), Some("")];
    for origin in wrong {
        assert_eq!(outcome_from(harness, key, origin).await, Outcome::WrongOrigin, "{origin:?}");
    }
    let groups =
        [Some(ALLOWED), None, Some("https://copy.example"), Some(ALLOWED)].map(|origin| ChargeGroup {
            subject: Subject::Key(key),
            origin: origin.map(|origin| origin_hash(origin.as_bytes())),
            count: 2,
        });
    let outcomes = harness.store.charge(&groups).await;
    let verdicts = outcomes.iter().map(|outcome| outcome.verdict(1, &harness.limits));
    let verdicts: Vec<_> = verdicts.map(|verdict| (verdict.outcome(), remaining(&verdict))).collect();
    let denied = (Outcome::WrongOrigin, None);
    assert_eq!(verdicts, [(Outcome::Allowed, Some(75)), denied, denied, (Outcome::Allowed, Some(73))]);
    let record = harness.store.key(key, None).await.unwrap().value.record;
    assert_eq!((record.used, record.window.used(harness.now())), (4, 4));

    change(harness, key, r#"{"allowed_origins": []}"#).await;
    assert_eq!(outcome_from(harness, key, None).await, Outcome::Allowed);
    change(harness, key, r#"{"allowed_origins": ["https://other.example"]}"#).await;
    assert_eq!(outcome_from(harness, key, Some(ALLOWED)).await, Outcome::WrongOrigin);
    assert_eq!(outcome_from(harness, key, Some("https://other.example")).await, Outcome::Allowed);
}

pub async fn pause_and_its_announcement_keep_the_origins(harness: &Harness) {
    let account = harness.account().await;
    harness.store.set_contact(account, &Contact::default(), &webhook_contact()).await.unwrap();
    let settings =
        KeySettings { allowed_origins: vec![ALLOWED.to_owned()], ..KeySettings::new("web", Scope::Geo) };
    let key = create(harness, account, settings).await.meta.id();
    let group =
        ChargeGroup { subject: Subject::Key(key), origin: Some(origin_hash(ALLOWED.as_bytes())), count: 301 };
    let outcome = harness.store.charge(&[group]).await[0];
    assert_eq!(outcome.verdict(300, &harness.limits).outcome(), Outcome::BurstExceeded);
    assert_eq!(outcome_from(harness, key, Some(ALLOWED)).await, Outcome::Paused);
    assert_eq!(outcome_from(harness, key, None).await, Outcome::WrongOrigin);
    assert_eq!(harness.store.claim_notices(10).await.unwrap().notices.len(), 1);
    let record = harness.store.key(key, None).await.unwrap().value.record;
    assert!(!record.origins.is_empty() && !record.unannounced, "{record:?}");
    assert_eq!(outcome_from(harness, key, None).await, Outcome::WrongOrigin);
}

pub async fn rotation_copies_the_key_and_lets_the_old_one_expire(harness: &Harness) {
    let account = harness.account().await;
    let settings = KeySettings {
        expires_at: Some(u32::try_from(NOON / 1000 + 500).unwrap()),
        allowed_origins: vec![ALLOWED.to_owned()],
        ..KeySettings::new("web", Scope::Geo)
    };
    let old = create(harness, account, settings.clone()).await.meta.id();
    let rotate = async |overlap| {
        let secret = account.generate_key().unwrap();
        harness.store.rotate_key(old, Some(account), &secret, overlap, &Actor::Owner).await
    };
    assert_eq!(outcome_from(harness, old, Some(ALLOWED)).await, Outcome::Allowed);
    // Twice at once: the second one finds an old key.
    let copies = join_all([rotate(10), rotate(10)]).await;
    let (copies, rejections): (Vec<_>, Vec<_>) = copies.into_iter().partition(Result::is_ok);
    let [Ok(copy)] = &copies[..] else { panic!("{copies:?}") };
    assert!(matches!(rejections[..], [Err(StoreError::Rejected(Rejection::KeyReplaced))]), "{rejections:?}");
    assert_eq!(copy.record.used, 1, "the count of the old key");
    assert_eq!(copy.meta.settings, KeySettings { expires_at: None, ..settings.clone() });
    assert_eq!(copy.record.daily_limit, Some(77));
    assert_eq!(outcome_from(harness, old, Some(ALLOWED)).await, Outcome::Allowed);
    assert_eq!(outcome_from(harness, copy.meta.id(), Some(ALLOWED)).await, Outcome::Allowed);
    harness.advance(10_000);
    assert_eq!(outcome_from(harness, old, Some(ALLOWED)).await, Outcome::Expired);
    assert_eq!(outcome_from(harness, copy.meta.id(), Some(ALLOWED)).await, Outcome::Allowed);
    let secret = account.generate_key().unwrap();
    let last = harness.store.rotate_key(copy.meta.id(), None, &secret, 60, &Actor::Owner).await.unwrap();
    assert_eq!(last.record.used, 3);
    assert_eq!(harness.outcome(old).await, Outcome::UnknownKey, "it was deleted");
    let keys = harness.store.keys(account).await.unwrap().value.keys;
    let successors: Vec<_> = keys.iter().map(|key| key.meta.successor).collect();
    assert_eq!(successors, [Some(last.meta.id()), None]);
}

pub async fn deletion_during_rotation_leaves_a_copy_or_nothing(harness: &Harness) {
    for _ in 0..10 {
        let account = harness.account().await;
        let old = harness.key_in(account, Scope::Ip, None).await.unwrap();
        let secret = account.generate_key().unwrap();
        let rotation = harness.store.rotate_key(old, None, &secret, 60, &Actor::Operator);
        let (rotated, deleted) = tokio::join!(rotation, harness.store.delete_key(old, None));
        deleted.unwrap();
        let left = harness.store.keys(account).await.unwrap().value.keys;
        match rotated {
            Ok(copy) => {
                // It knows the count of the old key, if that was deleted later.
                let deleted_count = left[0].meta.deleted_count;
                let meta = KeyMeta { deleted_count, ..copy.value.meta };
                assert_eq!(left, [StoredKey { meta, ..copy.value }]);
            }
            Err(error) => assert!(
                matches!(error, StoreError::Rejected(Rejection::KeyNotFound)) && left.is_empty(),
                "{error}"
            ),
        }
        assert_eq!(harness.outcome(old).await, Outcome::UnknownKey);
    }
}

pub async fn owner_is_told_seven_days_and_one_day_before_a_key_expires(harness: &Harness) {
    let (account, key) = account_and_key(harness).await;
    let told = async || {
        let claimed = harness.store.claim_notices(10).await.unwrap().notices;
        for notice in &claimed {
            assert!(finish(harness, notice, None).await);
        }
        claimed.into_iter().map(|claimed| (claimed.notice.kind, claimed.notice.at)).collect::<Vec<_>>()
    };
    assert_eq!(told().await, []);
    let end = NOON + 10 * DAY;
    change(harness, key, &format!(r#"{{"expires_at": {}}}"#, end / 1000)).await;
    let short = KeySettings {
        expires_at: Some(u32::try_from(NOON / 1000 + 3_600).unwrap()),
        ..KeySettings::new("short", Scope::Ip)
    };
    create(harness, account, short).await;
    for (days, expected) in [(8, 0), (7, 1), (6, 0), (2, 0), (1, 1)] {
        harness.set_time(end - days * DAY);
        let notices = vec![(NoticeKind::KeyExpiring, end - days * DAY); expected];
        assert_eq!(told().await, notices, "{days} days before");
        assert_eq!(told().await, [], "once");
    }
    // Extended: told again; then never, and deleted: not told.
    change(harness, key, &format!(r#"{{"expires_at": {}}}"#, (end + 9 * DAY) / 1000)).await;
    harness.set_time(end + 2 * DAY + 5_000);
    assert_eq!(told().await, [(NoticeKind::KeyExpiring, end + 2 * DAY)]);
    change(harness, key, r#"{"expires_at": null}"#).await;
    harness.set_time(end + 8 * DAY + 100_000);
    assert_eq!(told().await, []);
    change(harness, key, &format!(r#"{{"expires_at": {}}}"#, (end + 20 * DAY) / 1000)).await;
    harness.store.delete_key(key, None).await.unwrap();
    harness.set_time(end + 19 * DAY);
    assert_eq!(told().await, []);
}
