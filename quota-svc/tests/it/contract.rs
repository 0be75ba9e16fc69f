//! One contract suite for every store: the embedded store, a single Redis, a Valkey that confirms writes on disk, and a
//! Redis Cluster of three masters.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod accounts;
mod charges;
mod cluster;
mod damaged_outbox;
pub(crate) mod harness;
mod history;
mod keys;
mod killed;
mod many_at_once;
mod notices;
mod replicas;
mod settings;
mod standing;
mod transfer;
pub(crate) mod unreadable;
mod write_faults;

use harness::Harness;

/// Runs each behavior as a separate test on the embedded store and on a single Redis. One test runs all behaviors on a
/// Valkey, which differs from Redis only in its confirmations, and one on a Cluster, which starts slowly.
macro_rules! contract {
    ($($module:ident :: $behavior:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test]
            async fn $behavior() {
                super::$module::$behavior(&super::Harness::embedded()).await;
            })*
        }

        mod redis {
            $(#[tokio::test]
            async fn $behavior() {
                let redis = testkit::redis::Redis::start().await;
                super::$module::$behavior(&super::Harness::redis(&redis.url()).await).await;
            })*
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn valkey_with_append_only_file_fulfills_the_contract() {
            let Some(valkey) = testkit::redis::Redis::valkey() else { return };
            let valkey = valkey.start().await;
            $(
                println!("{}", stringify!($behavior));
                $module::$behavior(&Harness::redis(&valkey.url()).await).await;
            )*
            let calls = valkey.calls("waitaof").await;
            assert!(calls > 100, "changes are confirmed on disk: {calls}");
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn cluster_of_three_masters_fulfills_the_contract() {
            let cluster = testkit::cluster::RedisCluster::start(3, 0).await;
            $(
                println!("{}", stringify!($behavior));
                $module::$behavior(&Harness::redis(&cluster.url()).await).await;
            )*
        }
    };
}

contract! {
    accounts::duplicate_login_in_other_case_is_rejected,
    accounts::listing_returns_every_account_once,
    accounts::invalid_cursor_is_rejected,
    accounts::account_deletion_deletes_keys,
    accounts::credential_change_checks_version_and_revokes_sessions,
    accounts::session_with_an_outdated_credential_is_rejected,
    accounts::account_deletion_with_an_outdated_credential_is_rejected,
    accounts::sessions_expire_and_at_most_ten_are_active,
    keys::concurrent_creations_stop_at_ten_keys,
    keys::deleted_key_is_unknown_and_frees_its_slot,
    keys::key_state_transitions_match_documentation,
    keys::key_of_another_account_is_not_found,
    keys::changes_add_events_and_old_events_are_dropped,
    keys::events_name_the_actor,
    keys::name_and_daily_limit_can_be_changed,
    standing::suspension_denies_all_keys_and_its_end_restores_their_states,
    standing::keys_created_during_suspensions_agree_with_their_account,
    standing::imported_keys_of_a_suspended_account_are_suspended,
    standing::account_events_name_the_change_and_its_actor,
    standing::concurrent_account_changes_are_all_kept,
    notices::pause_is_announced_once,
    notices::each_pause_is_announced_also_after_its_end,
    notices::announcement_of_yesterday_makes_no_notice,
    notices::claim_ends_after_a_minute_and_failed_attempts_are_counted,
    notices::notices_of_an_account_are_claimed_one_after_another,
    notices::levels_of_the_daily_limit_are_announced_once_a_day,
    notices::owner_without_a_webhook_gets_no_notice,
    notices::channels_have_their_own_queues_attempts_and_deliveries,
    notices::unverified_or_switched_off_mail_gets_no_notice,
    notices::contact_is_replaced_and_gone_with_the_account,
    charges::unknown_key_is_denied,
    charges::request_301_in_a_minute_pauses_the_key,
    charges::burst_window_slides_by_the_millisecond,
    charges::ring_growth_after_wraparound_keeps_arrival_order,
    charges::resume_and_reactivate_clear_the_burst_window,
    charges::quota_resets_at_utc_midnight_and_denials_count_toward_the_burst_limit,
    charges::clock_stepping_back_resets_nothing,
    charges::burst_window_moves_back_when_a_clock_ahead_is_corrected,
    charges::arrivals_before_a_clock_correction_keep_their_time,
    charges::burst_window_stays_when_the_clock_steps_back_by_a_second,
    charges::charges_under_a_future_clock_move_to_today,
    charges::exhausted_demo_under_a_future_clock_resets_the_next_day,
    charges::batched_charges_equal_single_charges,
    charges::outcomes_of_a_batch_have_the_order_of_its_groups,
    charges::demo_and_keys_of_one_batch_are_counted_separately,
    charges::demo_quota_is_shared_and_resets_daily,
    charges::usage_covers_31_days,
    charges::pause_adds_one_event_with_reason,
    settings::key_expires_at_the_exact_second,
    settings::expired_key_stays_deactivated_and_a_paused_one_expires,
    settings::wrong_origin_is_denied_without_counting,
    settings::pause_and_its_announcement_keep_the_origins,
    settings::rotation_copies_the_key_and_lets_the_old_one_expire,
    settings::owner_is_told_seven_days_and_one_day_before_a_key_expires,
    settings::deletion_during_rotation_leaves_a_copy_or_nothing,
    transfer::import_adds_missing_and_keeps_existing,
    transfer::imported_keys_keep_their_state_and_usage,
    transfer::import_skips_keys_that_another_account_holds,
}

#[tokio::test]
async fn embedded_store_rejects_changes_while_writes_fail_and_recovers() {
    let disk = write_faults::FaultyDisk::default();
    let backend = disk.clone();
    let harness = Harness::on_backend(write_faults::LIMITS, move || backend.clone());
    write_faults::rejected_changes_have_no_effect(&harness, async |fail| disk.fail_all_writes(fail)).await;
    write_faults::failed_writes_lose_no_notice(&harness, async |fail| disk.fail_all_writes(fail)).await;
}

#[tokio::test]
async fn redis_store_rejects_changes_while_writes_fail_and_recovers() {
    let redis = testkit::redis::Redis::start().await;
    let harness = Harness::redis_with(&redis.url(), write_faults::LIMITS).await;
    // Without a replica, this setting makes Redis reject every write.
    let fail_writes = async |fail: bool| {
        let replicas = if fail { "1" } else { "0" };
        redis.cli(&["config", "set", "min-replicas-to-write", replicas]).await;
    };
    write_faults::rejected_changes_have_no_effect(&harness, fail_writes).await;
    write_faults::failed_writes_lose_no_notice(&harness, fail_writes).await;
}

#[tokio::test]
async fn embedded_store_lists_and_deletes_unreadable_data() {
    let disk = std::cell::RefCell::new(write_faults::FaultyDisk::default());
    let store = disk.borrow().store();
    unreadable::can_be_listed_and_deleted(store, async |_, part, id| {
        let copy = disk.borrow().copy();
        unreadable::damage_file(copy.clone(), part, &id);
        disk.replace(copy);
        disk.borrow().store()
    })
    .await;
}

#[tokio::test]
async fn redis_store_lists_and_deletes_unreadable_data() {
    let redis = testkit::redis::Redis::start().await;
    let harness = Harness::redis(&redis.url()).await;
    unreadable::can_be_listed_and_deleted(harness, async |harness, part, id| {
        let name = match part {
            unreadable::Part::Record => format!("*{id}*:k"),
            unreadable::Part::Account => format!("*{id}*:a"),
            unreadable::Part::Meta => "*:a".to_owned(),
        };
        let found = redis.cli(&["KEYS", &name]).await;
        let row = if part == unreadable::Part::Meta { format!("k:{id}") } else { "account".to_owned() };
        for redis_key in found.lines() {
            if part == unreadable::Part::Record {
                redis.cli(&["DEL", redis_key]).await;
                redis.cli(&["SET", redis_key, "damaged"]).await;
            } else if redis.cli(&["HEXISTS", redis_key, &row]).await.trim() == "1" {
                redis.cli(&["HSET", redis_key, &row, "damaged"]).await;
            }
        }
        harness
    })
    .await;
}

/// With `everysec`, a confirmation takes up to a second, and a change has 2.5 s.
#[tokio::test]
async fn suspension_of_ten_keys_takes_one_confirmation() {
    let Some(valkey) = testkit::redis::Redis::valkey() else { return };
    let valkey = valkey.directive("appendfsync everysec").start().await;
    let harness = Harness::redis(&valkey.url()).await;
    let account = harness.account().await;
    for _ in 0..10 {
        harness.key_in(account, quota_api::Scope::Full, None).await.unwrap();
    }
    let before = valkey.calls("waitaof").await;
    let reason = Some("abuse".to_owned());
    let change = quota_api::AccountChange { action: quota_api::AccountAction::Suspend, reason };
    harness.store.change_account(account, &change, &quota_api::Actor::Operator).await.unwrap();
    assert_eq!(valkey.calls("waitaof").await - before, 1);
    let keys = harness.store.keys(account).await.unwrap().value.keys;
    assert!(keys.len() == 10 && keys.iter().all(|key| key.record.suspended));
}

#[tokio::test]
async fn redis_store_lists_key_without_record_as_unreadable() {
    let redis = testkit::redis::Redis::start().await;
    let harness = Harness::redis(&redis.url()).await;
    let account = harness.account().await;
    let key = harness.key_in(account, quota_api::Scope::Full, None).await.unwrap();
    let record = redis.cli(&["KEYS", &format!("*{key}*:k")]).await;
    redis.cli(&["DEL", record.trim()]).await;
    let listing = harness.store.keys(account).await.unwrap();
    let unreadable: Vec<_> =
        listing.unreadable.iter().map(|key| (key.id.clone(), key.name.is_some())).collect();
    assert_eq!((listing.keys.len(), unreadable), (0, vec![(key.to_string(), true)]));
    harness.store.delete_key(key, Some(account)).await.unwrap();
    assert!(harness.store.keys(account).await.unwrap().unreadable.is_empty());
}
