//! One contract, three stores: embedded, a single Redis, a Redis Cluster of three masters.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "contract/accounts.rs"]
mod accounts;
#[path = "contract/bench.rs"]
mod bench;
#[path = "contract/charges.rs"]
mod charges;
#[path = "contract/keys.rs"]
mod keys;
#[path = "contract/transfer.rs"]
mod transfer;

use bench::Bench;

/// Each behaviour as a test of its own on the stores that start in no time, and all of them in turn on a Cluster.
macro_rules! contract {
    ($($module:ident :: $behaviour:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test]
            async fn $behaviour() {
                crate::$module::$behaviour(&crate::Bench::embedded()).await;
            })*
        }

        mod redis {
            $(#[tokio::test]
            async fn $behaviour() {
                let redis = e2e::redis::Redis::start().await;
                crate::$module::$behaviour(&crate::Bench::redis(&redis.url()).await).await;
            })*
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn a_cluster_of_three_masters_keeps_the_contract() {
            let cluster = e2e::cluster::RedisCluster::start(3, 0).await;
            $(
                println!("{}", stringify!($behaviour));
                $module::$behaviour(&Bench::redis(&cluster.url()).await).await;
            )*
        }
    };
}

contract! {
    accounts::a_login_is_taken_once_whatever_its_case,
    accounts::accounts_are_listed_page_by_page,
    accounts::a_deleted_account_takes_its_keys_along,
    accounts::a_credential_changes_only_from_the_expected_version_and_ends_other_sessions,
    accounts::sessions_end_by_themselves_and_ten_live_at_once,
    keys::fifty_creations_at_once_make_ten_keys,
    keys::a_deleted_key_is_unknown_and_frees_its_place,
    keys::the_state_machine_is_the_documented_one,
    keys::another_account_cannot_see_or_touch_a_key,
    keys::every_change_is_an_event_and_old_ones_go,
    keys::names_and_limits_change,
    charges::an_unknown_key_is_refused,
    charges::three_hundred_in_a_minute_pass_and_the_next_pauses,
    charges::the_window_slides_to_the_millisecond,
    charges::arrivals_keep_their_order_in_a_ring_that_grows_in_the_middle_of_a_turn,
    charges::resuming_and_reactivating_empty_the_window,
    charges::a_day_ends_at_midnight_utc_and_refusals_still_count_as_burst,
    charges::a_clock_that_steps_back_gives_nothing_away,
    charges::a_batch_is_judged_as_the_same_charges_one_by_one,
    charges::the_demo_is_shared_and_starts_anew_each_day,
    charges::usage_is_kept_for_31_days,
    charges::a_pause_is_one_event_with_its_reason,
    transfer::an_import_adds_what_is_missing_and_keeps_what_is_there,
    transfer::imported_keys_have_their_state_and_counts,
}
