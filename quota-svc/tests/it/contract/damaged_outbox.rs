//! Damaged entries of the outbox in Redis: they are dropped, and all other notices are still delivered.

use quota_api::NoticeKind;
use quota_svc::domain::notice::Announcement;
use testkit::redis::Redis;

use super::harness::{DAY, Harness};
use super::notices::{account_and_key, finish, pause};

/// Commands that damage the outbox. `{n}`, `{q}` and `{c}` are its Redis keys, `{l}` is the list of the damaged queue `{id}`,
/// and `{k}` the record of its key.
const DAMAGES: [&str; 26] = [
    "LSET {l} 0 damaged",
    "LSET {l} 0 {}",
    r#"LSET {l} 0 {"kind":"key.stolen","key":"{key}","at":1,"limit":1}"#,
    r#"LSET {l} 0 {"kind":"key.paused","key":"{key}","at":"1","limit":1}"#,
    r#"LSET {l} 0 {"kind":"key.paused","key":"{key}","at":1,"limit":99999999999999999999}"#,
    r#"LSET {l} 0 {"kind":"key.paused","key":"{key}","at":9223372036854775807,"limit":1}"#,
    r#"LSET {l} 0 {"kind":"key.paused","key":"{key}","at":-9223372036854775808,"limit":1}"#,
    r#"LSET {l} 0 {"kind":"key.paused","key":7,"at":1,"limit":1}"#,
    r#"LSET {l} 0 {"kind":"key.paused","key":"x","at":1,"limit":1}"#,
    "RENAME {c} {l}",
    "SET {l} damaged",
    "DEL {l}",
    "ZADD {q} 1 damaged",
    "ZADD {q} inf {id}",
    "ZADD {q} -inf {id}",
    "HSET {c} {id} damaged",
    "HSET {c} {id} 1:99999999999999999999999",
    "HINCRBY {c} {empty} 9223372036854775000",
    "HSET {c} {empty} damaged",
    "HSET {c} {empty} -5",
    "SET {c} damaged",
    "ZADD {n} 1 damaged",
    "ZADD {n} -inf {}",
    r#"ZADD {n} 1 {"kind":"key.paused","key":"{key}","at":9223372036854775807,"limit":1}"#,
    r#"ZADD {n} 1 {"kind":"key.daily_limit","key":"{key}","at":-1,"limit":1}"#,
    "LPUSH {k} damaged",
];

async fn damage(redis: &Redis, harness: &Harness, damage: &str, [queue, key]: [String; 2]) {
    let outbox = format!("{}1:{{outbox}}:", harness.prefix.as_ref().unwrap());
    let record = format!("{}1:{{{key}}}:k", harness.prefix.as_ref().unwrap());
    if damage.ends_with("{l}") || damage.starts_with("SET ") || damage.contains("{k}") {
        let target = if damage.contains("{k}") { record.clone() } else { format!("{outbox}l:{queue}") };
        redis.cli(&["DEL", &target]).await;
    }
    let replace = |word: &str| {
        let letters = ["n", "q", "c"].iter().fold(word.to_owned(), |word, letter| {
            word.replace(&format!("{{{letter}}}"), &format!("{outbox}{letter}"))
        });
        letters
            .replace("{l}", &format!("{outbox}l:{queue}"))
            .replace("{k}", &record)
            .replace("{id}", &queue)
            .replace("{key}", &key)
            .replace("{empty}", "")
    };
    let words: Vec<String> = damage.split(' ').map(replace).collect();
    redis.cli(&words.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn damaged_outbox_entry_delays_no_other_account() {
    let redis = Redis::start().await;
    for case in DAMAGES {
        let harness = Harness::redis(&redis.url()).await;
        let ((damaged, key), (other, other_key)) =
            (account_and_key(&harness).await, account_and_key(&harness).await);
        // The damaged account has notices in each part of the outbox: one that was claimed, one that is due, and one that was
        // only announced.
        let notice = |at| Announcement { key, kind: NoticeKind::KeyPaused, at, limit: 300 };
        harness.store.announce(&notice(1)).await.unwrap();
        assert_eq!(harness.store.claim_notices(10).await.unwrap().notices.len(), 1, "{case}");
        harness.store.announce(&notice(2)).await.unwrap();
        harness.store.claim_notices(10).await.unwrap();
        harness.store.announce(&pause(&harness, key).await).await.unwrap();
        damage(&redis, &harness, case, [format!("{damaged}:webhook"), key.to_string()]).await;
        harness.store.announce(&pause(&harness, other_key).await).await.unwrap();
        harness.advance(60_000);
        let mut delivered = 0;
        for _ in 0..5 {
            let claims = harness.store.claim_notices(10).await;
            for claimed in claims.unwrap_or_else(|error| panic!("{case}: {error}")).notices {
                // Others can't be formatted by dashboard-api.
                assert!((0..100_000 * DAY).contains(&claimed.notice.at), "{case}");
                delivered += u32::from(claimed.account == other.to_string());
                assert!(finish(&harness, &claimed, None).await, "{case}");
            }
        }
        assert_eq!(delivered, 1, "{case}");
        // A later notice of the same account is delivered, too, unless its turn is in the far future.
        let next = Announcement { at: harness.now(), ..notice(3) };
        harness.store.announce(&next).await.unwrap();
        let claimed = harness.store.claim_notices(10).await.unwrap().notices;
        assert_eq!(claimed.len(), usize::from(!case.contains(" inf ")), "{case}: {claimed:?}");
        harness.advance(DAY);
        assert!(harness.store.overdue_ms().await.is_ok(), "{case}");
    }
}
