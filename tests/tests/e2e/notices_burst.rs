//! Many pauses at once: memory stays bounded, charges are answered meanwhile, and every owner is told.

use std::time::{Duration, Instant};

use e2e::notices::{Dashboard, Owners, start_charging};
use quota_client::QuotaClient;
use quota_client::wire::{Charge, KeyState, Outcome, Verdict};
use testkit::loadgen::Load;
use testkit::quota::StoreChoice;
use testkit::redis::Redis;
use testkit::wait::eventually_ok;

const PAUSES: usize = 10_000;
/// A debug build delivers about 12 messages per second on two busy cores.
const WAIT_TIMEOUT: Duration = Duration::from_secs(1_500);
/// Of each process.
const MAX_MEMORY: u64 = 96 << 20;
/// Pause between two charges of the demo.
const PACE: Duration = Duration::from_millis(20);

/// Charges the demo, which has no burst limit. Returns what is left of its daily limit.
async fn charge_demo(client: &QuotaClient) -> Result<u32, String> {
    let verdict = client.charge(&[Charge::Demo]).await.map_err(|error| error.to_string())?[0];
    match verdict {
        Verdict::Allowed { rate_limit, .. } => Ok(rate_limit.remaining),
        denial => Err(format!("{denial:?}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_10000_pauses_in_a_minute_are_announced_in_bounded_memory() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let (charging, dashboard) = (start_charging(&store).await, Dashboard::start(&store).await);
    let (client, mut owners) = (charging.client(), Owners::new().await);
    owners.add(&dashboard.quota.client(), PAUSES).await;
    let left = charge_demo(&client).await.unwrap();
    let demo = client.clone();
    let load = Load::start(1, move || {
        let client = demo.clone();
        async move {
            let outcome = charge_demo(&client).await.map_or_else(|error| error, |_| "allowed".to_owned());
            tokio::time::sleep(PACE).await;
            outcome
        }
    });
    let start = Instant::now();
    let outcomes = owners.charge_untold(&client, 2).await;
    let paused = start.elapsed();
    assert!(paused < Duration::from_secs(60), "{paused:?}");
    assert_eq!(outcomes, [Outcome::Allowed, Outcome::BurstExceeded].repeat(PAUSES));
    // Each shard with accounts has an index of them.
    let indexes = redis.cli(&["KEYS", &format!("{}*:i", store.prefix())]).await;
    let shards: Vec<_> = indexes.lines().map(|index| index.trim_end_matches('i')).collect();
    // A list of announcements has one entry more.
    let length = async |part: &str, command: &str, more: usize| -> usize {
        let sum = format!(
            "local n = 0 for _, shard in ipairs(ARGV) do n = n + redis.call('{command}', shard .. KEYS[1]) end return n"
        );
        let command = ["EVAL", &sum, "1", part].into_iter().chain(shards.iter().copied());
        redis.cli(&command.collect::<Vec<_>>()).await.parse::<usize>().unwrap() - more * shards.len()
    };
    let announced = async || length("n", "LLEN", 1).await;
    let due = async || length("q", "ZCARD", 0).await;
    let mut longest = 0;
    eventually_ok(WAIT_TIMEOUT, "the owners are told", async || {
        let waiting = announced().await + due().await;
        longest = longest.max(waiting);
        match owners.count_untold() {
            0 => Ok(()),
            untold => Err(format!("{untold} are not, {waiting} wait")),
        }
    })
    .await;
    let (told, report) = (start.elapsed(), load.stop().await);
    println!(
        "paused in {paused:?}, told after {told:?}: {}",
        owners.wait_for_duplicates(WAIT_TIMEOUT, 0).await
    );
    println!("at most {longest} announcements and waiting accounts; demo: {report}");

    assert_eq!(report.outcomes().keys().collect::<Vec<_>>(), [&"allowed"], "{report}");
    assert_eq!(
        left - charge_demo(&client).await.unwrap(),
        report.samples.len() as u32 + 1,
        "no charge is lost"
    );
    for id in owners.keys() {
        let key = client.key(id, None).await.unwrap().key;
        assert_eq!((key.state, key.used_today), (KeyState::Paused, 1), "{id}");
    }
    for (name, service) in [
        ("quota-svc that charges", &charging.service),
        ("quota-svc of dashboard-api", &dashboard.quota.service),
        ("dashboard-api", &dashboard.service),
    ] {
        let memory = service.peak_rss();
        println!("{name}: at most {} MiB", memory >> 20);
        assert!(memory < MAX_MEMORY, "{name}: {memory}");
        assert!(!service.logs().contains("panic"), "{name}");
    }
    eventually_ok(WAIT_TIMEOUT, "no notice waits", async || match (announced().await, due().await) {
        (0, 0) => Ok(()),
        left => Err(format!("{left:?} left")),
    })
    .await;
}
