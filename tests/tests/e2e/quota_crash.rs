//! Repeatedly kills a quota-svc that uses the embedded store: no acknowledged change is lost, and of the counted
//! charges only those of the last second may be lost.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quota_client::QuotaClient;
use quota_client::wire::{Charge, EventKind, KeyState, NewAccount, NewKey, Outcome, Scope, StateChange};
use testkit::quota::{Quota, StoreChoice, TestKey, rate_limit};
use testkit::wait::eventually;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
/// Only counts of the last second before a kill may be lost.
const LOSS_WINDOW: Duration = Duration::from_secs(1);
/// Length of every fifth round: longer than [`LOSS_WINDOW`], so that some charges must survive.
const LONG_ROUND: Duration = Duration::from_millis(1_400);
/// Delay before each new account. It limits their number, because each is checked twice.
const ACCOUNT_INTERVAL: Duration = Duration::from_millis(20);
/// Minimum number of acknowledged changes before a kill.
const MIN_CHANGES: usize = 6;

/// State that quota-svc has acknowledged. After the kill, all of it must exist, except the charges of the last second.
#[derive(Debug, Default)]
struct Acknowledged {
    accounts: Vec<String>,
    /// Name, state and daily limit by key ID. `None` if deleted.
    keys: BTreeMap<String, Option<(String, KeyState, u32)>>,
    /// When each allowed charge of the demo was acknowledged.
    charges: Vec<Instant>,
    charges_sent: usize,
    changes: usize,
}

type Ledger = Arc<Mutex<Acknowledged>>;

fn record_change(ledger: &Ledger, change: impl FnOnce(&mut Acknowledged)) {
    let mut acknowledged = ledger.lock().unwrap();
    change(&mut acknowledged);
    acknowledged.changes += 1;
}

/// Drops the expectation for a key, because its state is unknown while a change is in flight.
fn drop_expectation(ledger: &Ledger, id: &str) {
    ledger.lock().unwrap().keys.remove(id);
}

fn state(key: &quota_client::wire::Key) -> Option<(String, KeyState, u32)> {
    Some((key.settings.name.clone(), key.state, key.daily_limit))
}

/// Makes changes of every kind, one after another, until the kill makes one fail. The failed change may or may not have
/// been applied.
async fn make_changes(
    client: QuotaClient,
    ledger: Ledger,
    round: usize,
) -> Result<(), quota_client::ClientError> {
    for i in 0.. {
        tokio::time::sleep(ACCOUNT_INTERVAL).await;
        let login = format!("owner-{round}-{i}");
        let account = client.create_account(&NewAccount { login, credential: None }).await?;
        record_change(&ledger, |acknowledged| acknowledged.accounts.push(account.id.clone()));
        for (n, wanted) in [KeyState::Active, KeyState::Inactive, KeyState::Paused].into_iter().enumerate() {
            let new = NewKey { daily_limit: Some(77), ..NewKey::new(&format!("key {n}"), Scope::Geo) };
            let key = TestKey::new(client.create_key(&account.id, &new).await?, account.id.clone());
            let id = key.key.id.clone();
            record_change(&ledger, |acknowledged| {
                acknowledged.keys.insert(id.clone(), state(&key.key));
            });
            if wanted == KeyState::Inactive {
                drop_expectation(&ledger, &id);
                let changed = client.change_state(&id, None, StateChange::Deactivate).await?;
                record_change(&ledger, |acknowledged| {
                    drop(acknowledged.keys.insert(id, state(&changed.key)))
                });
            } else if wanted == KeyState::Paused {
                drop_expectation(&ledger, &id);
                let verdicts = client.charge(&key.charges(21)).await?;
                assert_eq!(verdicts[20].outcome(), Outcome::BurstExceeded);
                record_change(&ledger, |acknowledged| {
                    acknowledged.keys.insert(id, Some((new.settings.name, KeyState::Paused, 77)));
                });
            } else if i % 2 == 1 {
                drop_expectation(&ledger, &id);
                client.delete_key(&id, None).await?;
                record_change(&ledger, |acknowledged| drop(acknowledged.keys.insert(id, None)));
            }
        }
    }
    Ok(())
}

/// Charges the demo, which has no burst limit, until the kill makes a call fail.
async fn make_charges(client: QuotaClient, ledger: Ledger) -> Result<(), quota_client::ClientError> {
    loop {
        ledger.lock().unwrap().charges_sent += 1;
        let verdict = client.charge(&[Charge::Demo]).await?[0];
        assert_eq!(verdict.outcome(), Outcome::Allowed);
        ledger.lock().unwrap().charges.push(Instant::now());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Number of demo charges counted so far, including the one that this call makes.
async fn demo_count(client: &QuotaClient) -> usize {
    let verdict = client.charge(&[Charge::Demo]).await.unwrap()[0];
    let rate_limit = rate_limit(&verdict).unwrap();
    (rate_limit.limit - rate_limit.remaining) as usize
}

async fn check_changes(client: &QuotaClient, acknowledged: &Acknowledged) {
    for account in &acknowledged.accounts {
        client.account(account).await.expect("an acknowledged account exists");
    }
    for (id, expected) in &acknowledged.keys {
        let found = client.key(id, None).await;
        assert_eq!(found.as_ref().ok().and_then(|found| state(&found.key)), *expected, "key {id}");
        if found.is_ok_and(|key| key.key.state == KeyState::Paused) {
            let events = client.events(id, None).await.unwrap().events;
            assert_eq!(events.iter().filter(|event| event.kind == EventKind::Paused).count(), 1);
        }
    }
}

/// A round that ended with a kill.
struct Round {
    acknowledged: Acknowledged,
    /// Demo count at the start of the round.
    base: usize,
    killed: Instant,
}

impl Round {
    /// Runs changes and charges until enough are acknowledged, then kills quota-svc while they continue.
    async fn run(quota: &mut Quota, number: usize) -> Self {
        let (ledger, started) = (Ledger::default(), Instant::now());
        let base = demo_count(&quota.client()).await;
        let changing = tokio::spawn(make_changes(quota.client(), ledger.clone(), number));
        let charging = tokio::spawn(make_charges(quota.client(), ledger.clone()));
        let length = if number % 5 == 4 { LONG_ROUND } else { Duration::ZERO };
        eventually(WAIT_TIMEOUT, "enough changes and charges are acknowledged", async || {
            let acknowledged = ledger.lock().unwrap();
            (acknowledged.changes >= MIN_CHANGES
                && acknowledged.charges.len() > 5
                && started.elapsed() > length)
                .then_some(())
        })
        .await;
        let killed = Instant::now();
        quota.service.kill();
        assert!(changing.await.unwrap().is_err() && charging.await.unwrap().is_err());
        Self { acknowledged: std::mem::take(&mut *ledger.lock().unwrap()), base, killed }
    }

    /// Checks the state after the restart, and returns how many counts were lost.
    async fn check(&self, client: &QuotaClient) -> usize {
        check_changes(client, &self.acknowledged).await;
        // `demo_count` charges the demo itself: this call's charge is subtracted. The charges of the two calls before
        // it (the previous check and the start of this round) may be lost too.
        let (now, charges) = (demo_count(client).await - 1, &self.acknowledged.charges);
        let safe = charges.iter().filter(|at| **at + LOSS_WINDOW < self.killed).count();
        let minimum = if safe > 0 { self.base + safe } else { self.base.saturating_sub(2) };
        assert!(
            now >= minimum,
            "{now} counted, {} before this round, {safe} in this round more than 1 s before the kill",
            self.base
        );
        let sent = self.acknowledged.charges_sent;
        assert!(
            now <= self.base + sent,
            "{now} counted, {} before this round, {sent} sent in this round",
            self.base
        );
        (self.base + charges.len()).saturating_sub(now)
    }
}

#[tokio::test]
async fn load_five_kills_lose_no_change_and_at_most_1_s_of_counts() {
    kill_and_check(5).await;
}

#[tokio::test]
async fn slow_twenty_kills_lose_no_change_and_at_most_1_s_of_counts() {
    kill_and_check(20).await;
}

/// Kills quota-svc under load, restarts it and checks what is stored, `kills` times.
async fn kill_and_check(kills: usize) {
    let dir = tempfile::tempdir().unwrap();
    let store = StoreChoice::File(dir.path().join("quota.redb"));
    let start = async || {
        let started = Instant::now();
        let quota =
            Quota::start_with(store.clone(), &["--burst-limit", "20", "--demo-limit", "1000000"]).await;
        quota.wait_ready(WAIT_TIMEOUT).await;
        (quota, started.elapsed())
    };
    let (mut quota, mut slowest) = start().await;
    let (mut rounds, mut most_lost) = (Vec::new(), 0);
    for number in 0..kills {
        let round = Round::run(&mut quota, number).await;
        let took;
        (quota, took) = start().await;
        slowest = slowest.max(took);
        most_lost = most_lost.max(round.check(&quota.client()).await);
        rounds.push(round);
    }
    let mut changes = 0;
    for round in &rounds {
        check_changes(&quota.client(), &round.acknowledged).await;
        changes += round.acknowledged.changes;
    }
    eprintln!(
        "{kills} kills: none of {changes} changes and at most {most_lost} counts lost; slowest start {slowest:?}"
    );
}
