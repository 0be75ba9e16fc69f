//! Many at once: everybody gets their own answer, whoever else goes away.

use futures_util::future::join_all;
use quota_client::wire::{Scope, Verdict};
use reqwest::Method;

use crate::rig::{Mood, Rig, allowed};

/// A verdict that tells by its limit whose it is.
fn numbered(number: u32) -> Verdict {
    Verdict { limit: Some(number), ..allowed(Scope::Ip) }
}

#[tokio::test]
async fn charges_that_travel_together_come_back_to_their_own_requests() {
    let rig = Rig::start().await;
    let keys: Vec<_> = (1..=100).map(|number| (number, rig.key(numbered(number)))).collect();
    join_all(keys.iter().map(async |(number, key)| {
        let answer = rig.lookup(key, "").await;
        assert_eq!(answer.limit()[0], Some(&*number.to_string()));
    }))
    .await;
    let metrics = rig.kit.telemetry.prometheus_text();
    let calls = metrics
        .lines()
        .find_map(|line| line.strip_prefix("lookup_quota_batch_size_count{outcome=\"answered\"} "));
    let calls: usize = calls.unwrap().parse().unwrap();
    assert!(calls < keys.len(), "{calls} calls for {} charges", keys.len());
}

#[tokio::test]
async fn clients_that_go_away_disturb_nobody() {
    let rig = Rig::start().await;
    rig.quota.set(Mood::Hold);
    let key = rig.key(numbered(7));
    let leaving: Vec<_> = (0..20)
        .map(|_| tokio::spawn(rig.request(Method::GET, "/api/v1/ip").bearer_auth(&key).send()))
        .collect();
    rig.quota.called(1).await;
    leaving.iter().for_each(|client| client.abort());
    join_all(leaving).await;
    let (staying, ()) = tokio::join!(rig.lookup(&key, ""), async { rig.quota.set(Mood::Judge) });
    assert_eq!((staying.status, staying.limit()[0]), (200, Some("7")));
    assert_eq!(rig.lookup(&key, "").await.status, 200);
}

#[tokio::test]
async fn a_flood_of_malformed_keys_asks_nobody() {
    let rig = Rig::start().await;
    let paths: Vec<_> = (0..500).map(|n| format!("/api/v1/ip?key=ipl_{n:038}")).collect();
    let answers = join_all(paths.iter().map(|path| rig.get(path))).await;
    assert!(answers.iter().all(|answer| answer.status == 401));
    assert_eq!(rig.quota.charges(), 0);
}
