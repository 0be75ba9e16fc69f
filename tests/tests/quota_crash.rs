//! quota-svc on the embedded store killed again and again: nothing that was answered is lost.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use e2e::quota::{Quota, StoreChoice, TestKey};
use e2e::wait::eventually;
use quota_client::QuotaClient;
use quota_client::wire::{EventKind, KeyState, NewAccount, NewKey, Outcome, Scope};

const ROUNDS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(20);
/// Counters may lose the last second; what is older may not be lost.
const MAY_BE_LOST: Duration = Duration::from_secs(1);
/// Every fifth round is long enough for that to say something.
const LONG_ROUND: Duration = Duration::from_millis(1_400);
/// Between two accounts: all that was answered is looked at twice, and that takes its time.
const PACE: Duration = Duration::from_millis(20);
/// Changes that were answered before the kill in a short round.
const CHANGES: usize = 6;

/// What quota-svc has answered: it must all be there after the kill.
#[derive(Debug, Default)]
struct Answered {
    accounts: Vec<String>,
    /// Key by id: its name, its state, its daily limit. `None`: deleted.
    keys: BTreeMap<String, Option<(String, KeyState, u32)>>,
    /// When a charge of the demo was answered with `allowed`.
    charges: Vec<Instant>,
    asked: usize,
    changes: usize,
}

type Ledger = Arc<Mutex<Answered>>;

fn note(ledger: &Ledger, change: impl FnOnce(&mut Answered)) {
    let mut answered = ledger.lock().unwrap();
    change(&mut answered);
    answered.changes += 1;
}

/// A change is under way: until it is answered nobody knows how the key is.
fn forget(ledger: &Ledger, id: &str) {
    ledger.lock().unwrap().keys.remove(id);
}

fn state(key: &quota_client::wire::Key) -> Option<(String, KeyState, u32)> {
    Some((key.name.clone(), key.state, key.daily_limit))
}

/// Changes of every kind, one after another, until quota-svc is gone: an error ends it, and what it interrupted may
/// or may not have happened.
async fn make_changes(
    client: QuotaClient,
    ledger: Ledger,
    round: usize,
) -> Result<(), quota_client::ClientError> {
    for i in 0.. {
        tokio::time::sleep(PACE).await;
        let login = format!("owner-{round}-{i}");
        let account = client.create_account(&NewAccount { login, credential: None }).await?;
        note(&ledger, |answered| answered.accounts.push(account.id.clone()));
        for (n, wanted) in [KeyState::Active, KeyState::Inactive, KeyState::Paused].into_iter().enumerate() {
            let new = NewKey { name: format!("key {n}"), scope: Scope::Geo, daily_limit: Some(77) };
            let key = TestKey::from(client.create_key(&account.id, &new).await?);
            let id = key.key.id.clone();
            note(&ledger, |answered| drop(answered.keys.insert(id.clone(), state(&key.key))));
            if wanted == KeyState::Inactive {
                forget(&ledger, &id);
                let changed = client.deactivate_key(&id, None).await?;
                note(&ledger, |answered| drop(answered.keys.insert(id, state(&changed))));
            } else if wanted == KeyState::Paused {
                forget(&ledger, &id);
                let verdicts = client.charge(&key.charges(21)).await?.verdicts;
                assert_eq!(verdicts[20].outcome, Outcome::BurstExceeded);
                note(&ledger, |answered| {
                    answered.keys.insert(id, Some((new.name, KeyState::Paused, 77)));
                });
            } else if i % 2 == 1 {
                forget(&ledger, &id);
                client.delete_key(&id, None).await?;
                note(&ledger, |answered| drop(answered.keys.insert(id, None)));
            }
        }
    }
    Ok(())
}

/// Charges the demo, which no burst pauses, until quota-svc is gone.
async fn make_charges(client: QuotaClient, ledger: Ledger) -> Result<(), quota_client::ClientError> {
    let demo = quota_client::wire::Charge { key_sha256: None, demo: Some(true) };
    let batch = quota_client::wire::ChargeRequest { charges: vec![demo] };
    loop {
        ledger.lock().unwrap().asked += 1;
        let verdict = client.charge(&batch).await?.verdicts[0];
        assert_eq!(verdict.outcome, Outcome::Allowed);
        ledger.lock().unwrap().charges.push(Instant::now());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// How many demo requests were counted so far, told by one more.
async fn counted(client: &QuotaClient) -> usize {
    let demo = quota_client::wire::Charge { key_sha256: None, demo: Some(true) };
    let batch = quota_client::wire::ChargeRequest { charges: vec![demo] };
    let verdict = client.charge(&batch).await.unwrap().verdicts[0];
    (verdict.limit.unwrap() - verdict.remaining.unwrap()) as usize
}

async fn check_changes(client: &QuotaClient, answered: &Answered) {
    for account in &answered.accounts {
        client.account(account).await.expect("an answered account is there");
    }
    for (id, expected) in &answered.keys {
        let found = client.key(id, None).await;
        assert_eq!(found.as_ref().ok().and_then(state), *expected, "key {id}");
        if found.is_ok_and(|key| key.state == KeyState::Paused) {
            let events = client.events(id, None).await.unwrap().events;
            assert_eq!(events.iter().filter(|event| event.kind == EventKind::Paused).count(), 1);
        }
    }
}

/// A round that ended with a kill.
struct Round {
    answered: Answered,
    /// What was counted when it began.
    base: usize,
    killed: Instant,
}

impl Round {
    /// Lets changes and charges go on until enough is answered, and kills quota-svc in the middle of them.
    async fn play(quota: &mut Quota, number: usize) -> Self {
        let (ledger, began) = (Ledger::default(), Instant::now());
        let base = counted(&quota.client()).await;
        let changing = tokio::spawn(make_changes(quota.client(), ledger.clone(), number));
        let charging = tokio::spawn(make_charges(quota.client(), ledger.clone()));
        let length = if number % 5 == 4 { LONG_ROUND } else { Duration::ZERO };
        eventually(PATIENCE, "enough has been answered", async || {
            let answered = ledger.lock().unwrap();
            (answered.changes >= CHANGES && answered.charges.len() > 5 && began.elapsed() > length)
                .then_some(())
        })
        .await;
        let killed = Instant::now();
        quota.service.kill();
        assert!(changing.await.unwrap().is_err() && charging.await.unwrap().is_err());
        Self { answered: std::mem::take(&mut *ledger.lock().unwrap()), base, killed }
    }

    /// What must be there after the restart; gives how many counts were lost.
    async fn check(&self, client: &QuotaClient) -> usize {
        check_changes(client, &self.answered).await;
        // Learning the number charges one more, and the two of before the round may be lost with it.
        let (now, charges) = (counted(client).await - 1, &self.answered.charges);
        let safe = charges.iter().filter(|at| **at + MAY_BE_LOST < self.killed).count();
        let least = if safe > 0 { self.base + safe } else { self.base.saturating_sub(2) };
        assert!(
            now >= least,
            "{now} counted, {} before, {safe} of this round older than a second",
            self.base
        );
        assert!(now <= self.base + self.answered.asked, "{now} counted, {} asked", self.answered.asked);
        (self.base + charges.len()).saturating_sub(now)
    }
}

#[tokio::test]
async fn load_killed_twenty_times_it_has_lost_no_change_and_at_most_a_second_of_counting() {
    let dir = tempfile::tempdir().unwrap();
    let store = StoreChoice::File(dir.path().join("quota.redb"));
    let start = async || {
        let started = Instant::now();
        let quota =
            Quota::start_with(store.clone(), &["--burst-limit", "20", "--demo-limit", "1000000"]).await;
        quota.wait_ready(PATIENCE).await;
        (quota, started.elapsed())
    };
    let (mut quota, mut slowest) = start().await;
    let (mut rounds, mut most_lost) = (Vec::new(), 0);
    for number in 0..ROUNDS {
        let round = Round::play(&mut quota, number).await;
        let took;
        (quota, took) = start().await;
        slowest = slowest.max(took);
        most_lost = most_lost.max(round.check(&quota.client()).await);
        rounds.push(round);
    }
    let mut changes = 0;
    for round in &rounds {
        check_changes(&quota.client(), &round.answered).await;
        changes += round.answered.changes;
    }
    eprintln!(
        "{ROUNDS} kills: none of {changes} changes lost, at most {most_lost} counts; slowest start {slowest:?}"
    );
}
