//! Damaged outboxes and indexes in Redis: what can't be read is dropped, and all other notices are still delivered.

use quota_api::NoticeKind;
use quota_svc::domain::notice::Announcement;
use testkit::redis::Redis;

use super::harness::{DAY, Harness};
use super::notices::{account_and_key, finish, pause};

/// Commands that damage an account, or the indexes of its shard, and whether its later notices are still delivered. `%a` is the
/// Redis key of the account `%id`, `%k` that of the record of its key `%key`. `%n`, `%q` and `%x` are the indexes; `%missing` is
/// an ID in the shard.
fn damages() -> Vec<(String, bool)> {
    let notice = |at: &str| format!(r#"{{"kind":"key.paused","key":"%key","at":{at},"limit":1}}"#);
    let outbox = |notices: &str, due: &str, claim: &str| {
        let queue = format!(r#"{{"notices":[{notices}],"due":{due},"claim":{claim},"attempts":0}}"#);
        format!(r#"HSET %a outbox {{"queues":{{"webhook":{queue}}},"last_claim":{claim}}}"#)
    };
    let [first, end] = ["-9223372036854775808", "9223372036854775807"];
    vec![
        ("HSET %a outbox damaged".to_owned(), true),
        ("HSET %a outbox {}".to_owned(), true),
        ("HDEL %a outbox".to_owned(), true),
        (outbox("", "1", "0"), true),
        (outbox("{}", "1", "0"), true),
        (outbox(&notice("1").replace("paused", "stolen"), "1", "0"), true),
        (outbox(&notice("1").replace("%key", "x"), "1", "0"), true),
        (outbox(&notice(r#""1""#), "1", "0"), true),
        (outbox(&notice(end), "1", "0"), true),
        (outbox(&notice(first), "1", "0"), true),
        (outbox(&notice("1"), first, "0"), true),
        (outbox(&notice("1"), end, "0"), false),
        (outbox(&notice("1"), "1", "18446744073709551615"), true),
        (outbox(&notice("1"), "1", "18446744073709551616"), true),
        ("HSET %a account damaged".to_owned(), false),
        ("DEL %k; LPUSH %k damaged".to_owned(), false),
        ("ZADD %q 1 damaged".to_owned(), true),
        ("ZADD %q 1 %missing".to_owned(), true),
        ("ZADD %q inf %id".to_owned(), false),
        ("ZADD %q -inf %id".to_owned(), true),
        ("ZADD %x 1 damaged".to_owned(), true),
        ("ZADD %x 1 %missing".to_owned(), true),
        ("ZADD %x 1 %key".to_owned(), true),
        ("ZADD %n 1 damaged".to_owned(), true),
        ("ZADD %n -inf {}".to_owned(), true),
        (format!("ZADD %n 1 {}", notice(end)), true),
        (format!("ZADD %n 1 {}", notice("-1")), true),
        (format!("ZADD %n 1 {}", notice("1").replace("%key", "%missing")), true),
    ]
}

async fn damage(redis: &Redis, commands: &str, account: &str, key: &str) {
    let name = redis.find(&format!("{account}:a")).await.unwrap();
    let shard = name.strip_suffix(&format!("{account}:a")).unwrap();
    let placeholders = [
        ("%a", name.clone()),
        ("%key", key.to_owned()),
        ("%k", format!("{shard}{key}:k")),
        ("%n", format!("{shard}n")),
        ("%q", format!("{shard}q")),
        ("%x", format!("{shard}x")),
        ("%id", account.to_owned()),
        ("%missing", format!("{}{}", &account[..2], "0".repeat(30))),
    ];
    for command in commands.split("; ") {
        let fill = |word: &str| {
            placeholders.iter().fold(word.to_owned(), |word, (name, text)| word.replace(*name, text))
        };
        let words: Vec<_> = command.split(' ').map(fill).collect();
        redis.cli(&words.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
}

#[tokio::test]
async fn damaged_outbox_is_dropped_and_delays_no_other_account() {
    let redis = Redis::start().await;
    for (case, delivers_later) in damages() {
        let harness = Harness::redis(&redis.url()).await;
        let store = &harness.store;
        let ((damaged, key), (other, other_key)) =
            (account_and_key(&harness).await, account_and_key(&harness).await);
        // The damaged account has a notice that was claimed, one that is due, and one that was only announced.
        let notice = |at| Announcement { key, kind: NoticeKind::KeyPaused, at, limit: 300 };
        store.announce(&notice(1)).await.unwrap();
        assert_eq!(store.claim_notices(10).await.unwrap().notices.len(), 1, "{case}");
        store.announce(&notice(2)).await.unwrap();
        store.claim_notices(10).await.unwrap();
        store.announce(&pause(&harness, key).await).await.unwrap();
        damage(&redis, &case, &damaged.to_string(), &key.to_string()).await;
        store.announce(&pause(&harness, other_key).await).await.unwrap();
        harness.advance(60_000);
        let mut delivered = 0;
        for _ in 0..5 {
            let claims = store.claim_notices(10).await;
            for claimed in claims.unwrap_or_else(|error| panic!("{case}: {error}")).notices {
                // Others can't be formatted by dashboard-api.
                assert!((0..100_000 * DAY).contains(&claimed.notice.at), "{case}");
                delivered += u32::from(claimed.account == other.to_string());
                assert!(finish(&harness, &claimed, None).await, "{case}");
            }
        }
        assert_eq!(delivered, 1, "{case}");
        store.announce(&Announcement { at: harness.now(), ..notice(3) }).await.unwrap();
        let claimed = store.claim_notices(10).await.unwrap().notices;
        assert_eq!(claimed.len(), usize::from(delivers_later), "{case}: {claimed:?}");
        for claimed in claimed {
            assert!(finish(&harness, &claimed, None).await, "{case}");
        }
        harness.advance(DAY);
        assert_eq!(store.claim_notices(10).await.unwrap().notices, [], "{case}");
        assert_eq!(store.overdue_ms().await.unwrap(), 0, "{case}: nothing is left");
        assert_eq!(store.expiring_keys(harness.now(), 10).await.unwrap(), [], "{case}");
    }
}
