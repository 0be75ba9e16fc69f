//! Damaged outboxes and indexes in Redis: what can't be read is dropped, and all other notices are still delivered.

use testkit::redis::Redis;

use super::harness::{DAY, Harness};
use super::notices::{account_and_key, finish, pause};

/// Commands that damage an account, or the indexes of its shard, and whether its later notices are still delivered. `%a` is the
/// Redis key of the account `%id`, `%k` that of the record of its key `%key`. `%n`, `%q` and `%x` are the indexes; `%missing` is
/// an ID in the shard.
fn damages() -> Vec<(String, bool)> {
    let notice = |at: &str| format!(r#"{{"kind":"key.paused","key":"%key","at":{at},"limit":1,"used":0}}"#);
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
        ("LPUSHX %n damaged".to_owned(), true),
        (format!("LPUSHX %n %key_key.paused_{end}_1_0"), true),
        ("LPUSHX %n %key_key.paused_-1_1_0".to_owned(), true),
        ("LPUSHX %n %key_key.stolen_%now_1_0".to_owned(), true),
        ("LPUSHX %n %missing_key.paused_%now_1_0".to_owned(), true),
        ("LSET %n -1 damaged".to_owned(), true),
    ]
}

/// In a word, `_` stands for a space.
async fn damage(redis: &Redis, commands: &str, account: &str, key: &str, now: i64) {
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
        ("%now", now.to_string()),
    ];
    for command in commands.split("; ") {
        let fill = |word: &str| {
            let word = if word.contains("_key.") { word.replace('_', " ") } else { word.to_owned() };
            placeholders.iter().fold(word, |word, (name, text)| word.replace(*name, text))
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
        let announce = async |at: i64| {
            let command = format!("LPUSHX %n %key_key.paused_{at}_300_0");
            damage(&redis, &command, &damaged.to_string(), &key.to_string(), at).await;
        };
        announce(harness.now() - 2).await;
        assert_eq!(store.claim_notices(10).await.unwrap().notices.len(), 1, "{case}");
        announce(harness.now() - 1).await;
        store.claim_notices(10).await.unwrap();
        pause(&harness, key).await;
        damage(&redis, &case, &damaged.to_string(), &key.to_string(), harness.now()).await;
        pause(&harness, other_key).await;
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
        announce(harness.now()).await;
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
