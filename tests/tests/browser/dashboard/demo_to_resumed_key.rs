//! From the demo to a resumed key: the demo's 429 → sign-up → a key and its curl line → 301 requests → paused →
//! resumed → 200.

use std::process::Command;
use std::time::{Duration, Instant};

use testkit::http;
use testkit::wait::eventually;

use super::stack::Stack;
use crate::browser::Browser;

#[tokio::test]
async fn exhausted_demo_leads_to_sign_up_and_a_resumed_key() {
    let Some(browser) = Browser::start().await else { return };
    let stack = Stack::start_with(&["--demo-limit", "1"], &[]).await;
    let client = http::client();
    let demo = format!("{}/api/v1/ip/demo", stack.lookup_url);
    assert_eq!(client.get(&demo).send().await.unwrap().status(), 200);
    let exhausted: serde_json::Value = client.get(&demo).send().await.unwrap().json().await.unwrap();
    let signup = exhausted["signup"].as_str().expect("the demo's 429 links to sign-up");

    browser.goto(signup).await;
    browser.wait_for_text("h1", "Create your account").await;
    browser.screenshot("sign-up").await;
    browser.fill("#login", "ada@example.org").await;
    browser.fill("#password", "correct horse battery").await;
    browser.press(".sign-in", "Create account").await;
    browser.wait_for_text("h1", "API keys").await;

    browser.press(".empty", "Create your first key").await;
    browser.fill("#key-name", "Production website").await;
    browser.press("dialog", "Create key").await;
    let (secret, curl) = (browser.text("#secret").await, browser.text("#curl").await);
    browser.screenshot("created").await;
    browser.press("dialog", "I have saved it").await;
    let body = run(&curl);
    assert_eq!(body["status"], "success", "the curl line works as shown: {body}");

    // The curl line has sent the first request, so the last of these 300 is the 301st.
    let mut last = None;
    for i in 1..=300 {
        let response =
            client.get(format!("{}/api/v1/ip", stack.lookup_url)).bearer_auth(&secret).send().await.unwrap();
        assert_eq!(response.status(), if i < 300 { 200 } else { 429 }, "request {i} after the first");
        last = Some(response);
    }
    let body: serde_json::Value = last.unwrap().json().await.unwrap();
    let message = body["message"].as_str().unwrap();
    assert!(message.contains(&stack.dashboard_url), "the 429 links to the dashboard: {message}");

    browser.wait_for_text(".badge", "Paused").await;
    stack.open_key(&browser, "Production website").await;
    browser.wait_for_text(".pause", "More than 300 requests within 60 seconds").await;
    browser.wait_for_text(".pause", "Paused").await;
    browser.wait_for_text(".badge", "Paused").await;
    browser.wait_for_text(".today-text", "300 of 10,000 today").await;
    browser.screenshot("paused").await;
    browser.press(".pause", "Resume key").await;
    browser.wait_for_text(".badge", "Active").await;
    let resumed = Instant::now();
    eventually(Duration::from_secs(2), "requests get 200 again", async || {
        let request = client.get(format!("{}/api/v1/ip", stack.lookup_url)).bearer_auth(&secret);
        (request.send().await.ok()?.status() == 200).then_some(())
    })
    .await;
    assert!(resumed.elapsed() < Duration::from_secs(2));
    browser.wait_for_text(".toast", "Resumed").await;
    browser.screenshot("resumed").await;
    browser.wait_for_text(".events li:nth-child(2)", "More than 300 requests within 60 seconds").await;
    browser.screenshot("events-paused").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    for log in [stack.dashboard.logs(), stack.lookup.logs(), stack.quotas[0].service.logs()] {
        assert!(!log.contains(&secret[4..]) && !log.contains("battery"), "a log contains a secret");
    }
}

/// Runs the curl line in a shell and returns the JSON response.
fn run(line: &str) -> serde_json::Value {
    let output = Command::new("sh").args(["-c", &format!("{line} --silent --noproxy '*'")]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}
