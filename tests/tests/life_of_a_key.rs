//! The documented life of a key, from the demo's 429 to the resumed key, on one machine and on three services with Redis.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::time::Duration;

use e2e::http;
use e2e::lookup::{Answer, Lookup, PATIENCE};
use e2e::process::{Service, binary};
use e2e::quota::{Quota, StoreChoice};
use e2e::redis::Redis;
use e2e::wait::eventually;
use serde_json::Value;
use tokio::process::Command;

/// What a user and an operator reach of an installation.
struct Installation {
    /// The public API.
    api: String,
    /// The quota-svc that the operator's command line talks to.
    quota: String,
    /// How long a change may take to be seen by the API: nothing where one quota-svc serves both.
    seen_within: Duration,
}

impl Installation {
    /// Runs the operator's command line and gives what it printed.
    async fn operator(&self, arguments: &str) -> Value {
        let mut command = Command::new(binary("quota-svc"));
        command.args(["--quota-url", &self.quota, "--output", "json"]).args(arguments.split(' '));
        let output = command.kill_on_drop(true).output().await.unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "quota-svc {arguments}: {complaint}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    async fn demo(&self) -> Answer {
        Answer::of(http::client().get(format!("{}/api/v1/ip/demo", self.api))).await
    }

    async fn ask(&self, key: &str) -> Answer {
        Answer::of(http::client().get(format!("{}/api/v1/ip", self.api)).bearer_auth(key)).await
    }

    /// After a change, the key answers this within what was promised.
    async fn sees(&self, key: &str, status: u16) -> Answer {
        let first = self.ask(key).await;
        if self.seen_within.is_zero() || first.status == status {
            assert_eq!(first.status, status, "{first:?}");
            return first;
        }
        eventually(self.seen_within, format!("the change to {status} is seen"), async || {
            Some(self.ask(key).await).filter(|answer| answer.status == status)
        })
        .await
    }
}

/// The walk of README and docs: try it, sign up, use it, overdo it, be paused, resume, go on.
async fn live(place: &Installation) -> String {
    // A visitor tries the demo until it is used up, and is told where to sign up.
    assert_eq!(place.demo().await.status, 200);
    assert_eq!(place.demo().await.status, 200);
    let enough = place.demo().await;
    assert_eq!((enough.status, enough.error()), (429, "rate_limit_exceeded"));
    assert!(enough.body["signup"].is_string(), "{enough:?}");
    // An account, a key, the first answer.
    place.operator("account create visitor@example.com").await;
    let made = place.operator("key create --account visitor@example.com --name first --scope geo").await;
    let (key, id) = (made["key"].as_str().unwrap().to_owned(), made["id"].as_str().unwrap().to_owned());
    let answer = place.sees(&key, 200).await;
    assert_eq!((answer.fields().len(), answer.number("x-ratelimit-remaining")), (19, 9_999), "{answer:?}");
    overdo(place, &key).await;
    let listed = place.operator("key list --account visitor@example.com").await;
    let listed = &listed["keys"][0];
    assert_eq!((&listed["state"], &listed["used_today"]), (&"paused".into(), &300.into()), "{listed}");
    assert!(!listed.to_string().contains(&key), "the key is shown once only");
    // The owner resumes it, and it goes on where the day stood.
    place.operator(&format!("key resume {id}")).await;
    let resumed = place.sees(&key, 200).await;
    assert_eq!(resumed.number("x-ratelimit-remaining"), 9_699);
    manage(place, &key, &id).await;
    key
}

/// Too many in a minute: exactly 300 pass, the next pauses the key, and it stays paused.
async fn overdo(place: &Installation, key: &str) {
    let request = http::client().get(format!("{}/api/v1/ip", place.api)).bearer_auth(key);
    for sent in 2..=300 {
        let answer = Answer::of(request.try_clone().unwrap()).await;
        assert_eq!(answer.status, 200, "number {sent}: {answer:?}");
    }
    for _ in 0..2 {
        let answer = Answer::of(request.try_clone().unwrap()).await;
        assert_eq!((answer.status, answer.error()), (429, "rate_limit_exceeded"), "{answer:?}");
        assert_eq!((answer.number("retry-after"), answer.number("x-ratelimit-limit")), (60, 300));
        assert!(
            answer.body["message"].as_str().is_some_and(|message| message.contains("paused")),
            "{answer:?}"
        );
    }
}

/// What else an owner can do with it.
async fn manage(place: &Installation, key: &str, id: &str) {
    place.operator(&format!("key deactivate {id}")).await;
    assert_eq!(place.sees(key, 403).await.error(), "inactive_api_key");
    place.operator(&format!("key reactivate {id}")).await;
    place.sees(key, 200).await;
    place.operator(&format!("key set-limit {id} --daily 302")).await;
    let used_up = place.sees(key, 429).await;
    assert!(used_up.body["enterprise"].is_string(), "{used_up:?}");
    assert_eq!(used_up.number("x-ratelimit-limit"), 302);
    place.operator(&format!("key set-limit {id} --daily 1000")).await;
    assert_eq!(place.sees(key, 200).await.number("x-ratelimit-remaining"), 697);
}

async fn standalone(data: &Path) -> (Service, Installation) {
    let data = data.to_str().unwrap();
    let args =
        ["--data-dir", data, "--listen", "127.0.0.1:0", "--quota-listen", "127.0.0.1:0", "--demo-limit", "2"];
    let more = ["--admin-listen", "127.0.0.1:0", "--log-level", "info"];
    // As a variable: it counts as soon as there is a dashboard in it.
    let env = [("DASHBOARD_LISTEN", "127.0.0.1:0")];
    let mut service = Service::spawn("ip-lookup", &[args.as_slice(), &more].concat(), &env);
    let quota = format!("http://{}", service.listening("quota").await);
    let api = format!("http://{}", service.listening("lookup").await);
    (service, Installation { api, quota, seen_within: Duration::ZERO })
}

#[tokio::test]
async fn on_one_machine_and_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (mut service, place) = standalone(&data).await;
    let printed = eventually(PATIENCE, "the first key is printed", async || {
        let stdout = service.stdout();
        stdout.split_whitespace().find(|word| word.starts_with("ipl_")).map(str::to_owned)
    })
    .await;
    assert_eq!(place.ask(&printed).await.fields().len(), 26, "the first key shows all");
    let key = live(&place).await;
    service.term();
    assert!(service.wait_exit(PATIENCE).await.success());
    let (_service, place) = standalone(&data).await;
    let answer = place.ask(&key).await;
    assert_eq!(
        (answer.status, answer.number("x-ratelimit-remaining")),
        (200, 696),
        "nothing is forgotten: {answer:?}"
    );
    assert_eq!(place.demo().await.status, 429, "nor the demo's day");
}

/// As in a cluster: lookup-svc's own quota-svc only charges, and the one beside the dashboard changes keys.
#[tokio::test]
async fn on_three_services_with_redis() {
    let redis = Redis::start().await;
    let store = StoreChoice::from(&redis);
    let flags = ["--store-timeout", "10s", "--demo-limit", "2"];
    let sidecar =
        Quota::start_with(store.clone(), &[flags.as_slice(), &["--serve", "charges"]].concat()).await;
    let keeper = Quota::start_with(store, &flags).await;
    sidecar.wait_ready(PATIENCE).await;
    keeper.wait_ready(PATIENCE).await;
    let lookup = Lookup::start_patient(sidecar.url(), &[]).await;
    let (api, quota) = (lookup.url(), keeper.url().to_owned());
    // Refusals may be 2 s old; some more for a machine that is busy.
    live(&Installation { api, quota, seen_within: Duration::from_secs(4) }).await;
}
