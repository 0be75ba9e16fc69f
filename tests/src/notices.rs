//! The processes that charge, announce and deliver, and the owners who are told about their paused keys.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::time::Duration;

use quota_client::wire::{Charge, Contact, NewAccount, NewKey, Outcome, Scope, Webhook};
use quota_client::{ClientError, QuotaClient};
use tempfile::TempDir;
use testkit::process::Service;
use testkit::quota::{Quota, StoreChoice, TestKey};
use testkit::wait::eventually_ok;
use testkit::webhook::{OK, Receiver};

/// The second request within a minute pauses a key.
pub const LIMITS: [&str; 2] = ["--burst-limit", "1"];
/// Lets the tests' own receivers be reached.
pub const WEBHOOKS: [&str; 3] = ["--webhook-allow-http", "--webhook-allow-network", "127.0.0.0/8"];
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Keys of an account.
const KEYS: usize = 10;
/// Maximum number of charges in a call.
const BATCH: usize = 256;

/// Starts the quota-svc of a lookup-svc, which charges.
pub async fn start_charging(store: &StoreChoice) -> Quota {
    let flags = [LIMITS, ["--demo-limit", "1000000"], ["--store-timeout", "5s"]].concat();
    let quota = Quota::start_with(store.clone(), &flags).await;
    quota.wait_ready(START_TIMEOUT).await;
    quota
}

/// A dashboard-api and its quota-svc.
#[derive(Debug)]
pub struct Dashboard {
    pub quota: Quota,
    pub service: Service,
    _dir: TempDir,
}

impl Dashboard {
    /// # Panics
    /// If a process does not start.
    pub async fn start(store: &StoreChoice) -> Self {
        let quota = start_charging(store).await;
        let dir = tempfile::tempdir().unwrap();
        let session_key = dir.path().join("session.key");
        std::fs::write(&session_key, [7; 32]).unwrap();
        let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--insecure-cookies"];
        let other = ["--quota-url", quota.url(), "--session-key-file", session_key.to_str().unwrap()];
        let mut service = Service::spawn("dashboard-api", &[&ports[..], &other, &WEBHOOKS].concat(), &[]);
        service.listen_addr("dashboard").await;
        Self { quota, service, _dir: dir }
    }
}

/// Owners with webhooks, and how often they were told about each of their keys.
pub struct Owners {
    pub receiver: Receiver,
    /// By the ID of the key: its charge, and the number of messages.
    keys: BTreeMap<String, (Charge, usize)>,
}

impl Owners {
    pub async fn new() -> Self {
        Self { receiver: Receiver::start(OK).await, keys: BTreeMap::new() }
    }

    /// Adds keys, ten in an account.
    ///
    /// # Panics
    /// If they can't be created.
    pub async fn add(&mut self, client: &QuotaClient, keys: usize) {
        let url = self.receiver.url();
        for first in (0..keys).step_by(KEYS) {
            for key in add_account(client, &url, KEYS.min(keys - first)).await {
                self.keys.insert(key.key.id.clone(), (key.charges(1)[0], 0));
            }
        }
    }

    /// Charges each key whose owner was not told yet `count` times, and returns the outcomes.
    ///
    /// # Panics
    /// If a call fails.
    pub async fn charge_untold(&self, client: &QuotaClient, count: usize) -> Vec<Outcome> {
        self.try_charge_untold(client, count).await.unwrap()
    }

    async fn try_charge_untold(
        &self,
        client: &QuotaClient,
        count: usize,
    ) -> Result<Vec<Outcome>, ClientError> {
        let charges = self.keys.values().filter(|(_, told)| *told == 0);
        let charges: Vec<Charge> =
            charges.flat_map(|(charge, _)| std::iter::repeat_n(*charge, count)).collect();
        let mut outcomes = Vec::new();
        for batch in charges.chunks(BATCH) {
            let verdicts = client.charge(batch).await?;
            outcomes.extend(verdicts.iter().map(|verdict| verdict.outcome()));
        }
        Ok(outcomes)
    }

    /// Counts the messages since the last call. Returns the number of keys whose owner was not told yet.
    ///
    /// # Panics
    /// If a message is about another key.
    pub fn count_untold(&mut self) -> usize {
        for message in self.receiver.take() {
            let json = message.json();
            let id = json["data"]["key"]["id"].as_str().unwrap();
            self.keys.get_mut(id).unwrap().1 += 1;
        }
        self.keys.values().filter(|(_, told)| *told == 0).count()
    }

    /// Uses the keys until their owners are told.
    pub async fn wait_until_told(&mut self, timeout: Duration, client: &QuotaClient) {
        eventually_ok(timeout, "the owners are told", async || match self.count_untold() {
            0 => Ok(()),
            untold => {
                // Fails while the store is busy; the next one succeeds.
                let _ = self.try_charge_untold(client, 1).await;
                Err(format!("{untold} are not"))
            }
        })
        .await;
    }

    /// IDs of all keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// Waits for this number of messages more than keys, and describes all messages.
    pub async fn wait_for_duplicates(&mut self, timeout: Duration, expected: usize) -> String {
        eventually_ok(timeout, format!("{expected} duplicates"), async || {
            let (_, keys) = (self.count_untold(), self.keys.len());
            let messages: usize = self.keys.values().map(|(_, told)| told).sum();
            let text = format!("{keys} pauses, {messages} messages, {} duplicates", messages - keys);
            if messages >= keys + expected { Ok(text) } else { Err(text) }
        })
        .await
    }
}

/// Creates an account with a webhook and keys.
async fn add_account(client: &QuotaClient, url: &str, keys: usize) -> Vec<TestKey> {
    let login = format!("owner-{:016x}", getrandom::u64().unwrap());
    let account = client.create_account(&NewAccount { login, credential: None }).await.unwrap().id;
    let webhook =
        Webhook { url: url.to_owned(), secret: "whsec_eA==".to_owned(), enabled: true, muted: [].into() };
    client
        .set_contact(&account, Contact::default(), Contact { webhook: Some(webhook), mail: None })
        .await
        .unwrap();
    let mut created = Vec::new();
    for _ in 0..keys {
        let key = client.create_key(&account, &NewKey::new("in use", Scope::Ip)).await.unwrap();
        created.push(TestKey::new(key, account.clone()));
    }
    created
}
