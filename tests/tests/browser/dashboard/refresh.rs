//! Failures while the list of keys refreshes.

use quota_client::wire::{NewKey, Scope};
use serde_json::json;

use super::stack::Stack;
use crate::browser::Browser;

/// Runs the page's timers 20 times as fast, and records their delays, the paths of requests and the announcements.
const INSTRUMENT: &str = "(() => { \
    Object.assign(window, {delays: [], requests: [], announced: []}); \
    const {setTimeout: start, fetch: send} = window; \
    window.setTimeout = (run, ms) => { delays.push(ms); return start(run, ms / 20); }; \
    window.fetch = (path, options) => { requests.push(path); return send(path, options); }; \
    new MutationObserver((records) => { \
        for (const record of records.filter((record) => record.target.id === 'announcements')) \
            for (const node of record.addedNodes) announced.push(node.textContent); \
    }).observe(document, {childList: true, subtree: true}); })()";

/// Delays of the refreshes. The timer that removes an announcement has 10 s.
const REFRESH_DELAYS: &str = "delays.filter((ms) => ms !== 10000)";

/// Runs `INSTRUMENT` in each page that is opened from now on.
async fn instrument(browser: &Browser) {
    browser.devtools("Page.addScriptToEvaluateOnNewDocument", json!({"source": INSTRUMENT})).await;
}

/// Creates a key through quota-svc and returns its ID.
async fn create_key(stack: &Stack, login: &str, name: &str) -> String {
    let quota = stack.quotas[0].client();
    let account = quota.find_account(login).await.unwrap().unwrap();
    let key = NewKey::new(name, Scope::Geo);
    quota.create_key(&account.id, &key).await.unwrap().key.id.to_string()
}

/// JavaScript expression for the number of requests for this path.
fn requests(path: &str) -> String {
    format!("requests.filter((path) => path === '{path}').length")
}

share_browser!(
    failures_of_a_refresh_are_shown,
    Browser::start(),
    Stack::start(),
    [
        first_load_that_keeps_failing_backs_off_and_is_announced_once,
        unreadable_keys_stay_listed_when_a_refresh_fails,
        failed_usage_request_shows_current_keys_and_is_not_repeated_at_each_refresh,
        response_body_that_times_out_is_shown_as_connection_error
    ]
);

async fn first_load_that_keeps_failing_backs_off_and_is_announced_once(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "ada").await;
    browser.block_urls(&["*/api/v1/keys"]).await;
    instrument(browser).await;
    browser.goto(&stack.dashboard_url).await;
    browser.wait_for_text(".empty", "Can't load your keys").await;
    // The seventh request follows the sixth delay.
    browser.wait_for_value(&format!("{} > 6", requests("/api/v1/keys")), true).await;
    let message = "Can't load your keys. Can't reach the service. Check your connection.";
    assert_eq!(browser.eval("announced").await, json!([message]));
    let delays = browser.eval(&format!("{REFRESH_DELAYS}.slice(0, 6)")).await;
    assert_eq!(delays, json!([3_000, 6_000, 12_000, 24_000, 30_000, 30_000]));

    browser.press(".empty", "Try again").await;
    browser.wait_for_value("announced.length", 2).await;
    browser.wait_for_focus("BUTTON Try again").await;
    let is_reset = format!("{REFRESH_DELAYS}.lastIndexOf(3000) > {REFRESH_DELAYS}.indexOf(30000)");
    browser.wait_for_value(&is_reset, true).await;
    assert_eq!(browser.eval("announced").await, json!([message, message]));

    browser.block_urls(&[]).await;
    browser.wait_for_text(".empty", "No keys yet").await;
    browser.wait_for_focus("BUTTON Create your first key").await;
}

async fn unreadable_keys_stay_listed_when_a_refresh_fails(browser: &Browser, stack: &Stack) {
    instrument(browser).await;
    stack.sign_up(browser, "grace").await;
    let id = create_key(stack, "grace", "Production").await;
    browser.find(".rows .month").await;
    let redis_key = stack.redis.find(&format!("{id}:k")).await.unwrap();
    stack.redis.cli(&["RENAME", &redis_key, "backup"]).await;
    stack.redis.cli(&["SET", &redis_key, "\u{1}truncated"]).await;
    browser.wait_for_text(".rows .badge", "Unreadable").await;
    browser.block_urls(&["*/api/v1/keys"]).await;
    let message =
        "[...document.querySelectorAll('.warning, .slot > .empty')].map((e) => e.textContent).join('')";
    browser.wait_for_value(&format!("{message} !== ''"), true).await;
    assert_eq!(browser.count(".rows li").await, 1);
    browser.wait_for_text(".warning", "Showing the last known numbers.").await;
    browser.check_axe("unreadable").await;
    browser.click(".rows a").await;
    browser.wait_for_text(".key-page .problem", "The data of this key can't be read").await;
    browser.check_axe("unreadable key").await;
    browser.driver.back().await.unwrap();

    // The usage of a key that was not listed for a while is loaded again.
    browser.block_urls(&[]).await;
    stack.redis.cli(&["RENAME", "backup", &redis_key]).await;
    browser.find(".rows .month").await;
    browser.wait_for_value(&requests(&format!("/api/v1/keys/{id}/usage")), 2).await;
}

async fn failed_usage_request_shows_current_keys_and_is_not_repeated_at_each_refresh(
    browser: &Browser,
    stack: &Stack,
) {
    stack.sign_up(browser, "alan").await;
    browser.goto("about:blank").await;
    let failing = create_key(stack, "alan", "Failing").await;
    let working = create_key(stack, "alan", "Working").await;
    browser.block_urls(&[&format!("*/api/v1/keys/{failing}/usage")]).await;
    instrument(browser).await;
    browser.goto(&stack.dashboard_url).await;
    browser.wait_for_value(&format!("{} > 4", requests("/api/v1/keys")), true).await;
    assert_eq!(browser.eval("document.querySelector('.warning').textContent").await, "");
    for id in [&failing, &working] {
        let count = requests(&format!("/api/v1/keys/{id}/usage"));
        assert_eq!(browser.eval(&count).await, 1);
    }
    browser.find(&format!("[data-key='{working}'] .month")).await;
    browser.wait_for_text(&format!("[data-key='{failing}'] .spark"), "Can't be loaded").await;
    stack.open_key(browser, "Failing").await;
    let placeholder = format!("[data-key='{failing}'] .chart");
    browser.wait_for_text(&placeholder, "The usage of the last 30 days can't be loaded.").await;
    browser.screenshot("usage-failed").await;
}

async fn response_body_that_times_out_is_shown_as_connection_error(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "barbara").await;
    browser.wait_for_text(".empty", "No keys yet").await;
    let break_body = "window.fetch = async () => new Response(new ReadableStream({ \
                      start: (body) => body.error(new DOMException('timed out', 'TimeoutError')) }));";
    browser.driver.execute(break_body, vec![]).await.unwrap();
    browser.wait_for_value("document.querySelector('.warning').textContent !== ''", true).await;
    let warning = browser.text(".warning").await;
    assert!(warning.starts_with("Can't reach the service. Check your connection."), "{warning}");
}
