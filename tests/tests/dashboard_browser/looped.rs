//! The whole loop: the demo's 429 → sign-up → a key and its curl line → 301 requests → paused → resumed → 200.

use std::process::Command;
use std::time::{Duration, Instant};

use e2e::http;
use e2e::wait::eventually;

use crate::browser::{Browser, Look};
use crate::stack::Stack;

#[tokio::test]
async fn from_the_exhausted_demo_to_a_resumed_key() {
    let Some(browser) = Browser::start(Look::default()).await else { return };
    let stack = Stack::start_with(&["--demo-limit", "1"], &[]).await;
    let client = http::client();
    let demo = format!("{}/api/v1/ip/demo", stack.lookup_url);
    assert_eq!(client.get(&demo).send().await.unwrap().status(), 200);
    let exhausted: serde_json::Value = client.get(&demo).send().await.unwrap().json().await.unwrap();
    let signup = exhausted["signup"].as_str().expect("the demo's 429 links to sign-up");

    browser.goto(signup).await;
    browser.sees("h1", "Create your account").await;
    browser.shot("sign-up").await;
    browser.fill("#login", "ada@example.org").await;
    browser.fill("#password", "correct horse battery").await;
    browser.press(".entrance", "Create account").await;
    browser.sees("h1", "API keys").await;

    browser.press(".empty", "Create your first key").await;
    browser.fill("#key-name", "Production website").await;
    browser.press("dialog", "Create key").await;
    let (secret, curl) = (browser.text("#secret").await, browser.text("#curl").await);
    browser.shot("created").await;
    browser.press("dialog", "I have saved it").await;
    let answer = run(&curl);
    assert_eq!(answer["status"], "success", "the line that is shown works as it is: {answer}");

    let mut last = None;
    for i in 1..=300 {
        let response =
            client.get(format!("{}/api/v1/ip", stack.lookup_url)).bearer_auth(&secret).send().await.unwrap();
        assert_eq!(response.status(), if i < 300 { 200 } else { 429 }, "request {i} after the first");
        last = Some(response);
    }
    let refused: serde_json::Value = last.unwrap().json().await.unwrap();
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains(&stack.dashboard_url), "the 429 says where to resume: {message}");

    browser.sees(".pause", "More than 300 requests within 60 seconds").await;
    browser.sees(".pause", "Paused").await;
    browser.sees(".badge", "Paused").await;
    browser.sees(".today-text", "300 of 10,000").await;
    browser.shot("paused").await;
    browser.press(".pause", "Resume key").await;
    browser.sees(".badge", "Active").await;
    let resumed = Instant::now();
    eventually(Duration::from_secs(2), "requests are answered again", async || {
        let request = client.get(format!("{}/api/v1/ip", stack.lookup_url)).bearer_auth(&secret);
        (request.send().await.ok()?.status() == 200).then_some(())
    })
    .await;
    assert!(resumed.elapsed() < Duration::from_secs(2));
    browser.sees(".toast", "works again").await;
    browser.shot("resumed").await;
    browser.press(".card", "Events").await;
    browser.sees(".events li:nth-child(2)", "More than 300 requests within 60 seconds").await;
    browser.shot("events-paused").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    for log in [stack.dashboard.logs(), stack.lookup.logs(), stack.quotas[0].service.logs()] {
        assert!(!log.contains(&secret[4..]) && !log.contains("battery"), "no secret in a log");
    }
}

/// Runs the line in a shell, as a person would.
fn run(line: &str) -> serde_json::Value {
    let output = Command::new("sh").args(["-c", &format!("{line} --silent --noproxy '*'")]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}
