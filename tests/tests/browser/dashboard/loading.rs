//! The page while it loads: on a slow connection, without JavaScript, without its service.

use serde_json::json;

use super::stack::Stack;
use crate::browser::Browser;

/// Scripts that the page has loaded: their number, whether all were requested before the first had arrived, and how many
/// came from the browser's cache.
const SCRIPTS: &str = "(() => { \
    const scripts = performance.getEntriesByType('resource').filter(e => new URL(e.name).pathname.endsWith('.js')); \
    const lastRequest = Math.max(...scripts.map(e => e.startTime)); \
    const firstResponse = Math.min(...scripts.map(e => e.responseEnd)); \
    return [scripts.length, lastRequest < firstResponse, scripts.filter(e => e.transferSize === 0).length]; })()";

share_browser!(
    page_loads_or_says_why_not,
    Browser::start(),
    Stack::start(),
    [
        scripts_are_requested_at_once_and_cached,
        skeleton_is_shown_until_scripts_have_loaded,
        browser_without_javascript_shows_message_instead_of_skeleton,
        page_that_cannot_load_its_data_can_try_again
    ]
);

async fn scripts_are_requested_at_once_and_cached(browser: &Browser, stack: &Stack) {
    browser.devtools("Network.enable", json!({})).await;
    let slow =
        json!({"offline": false, "latency": 400, "downloadThroughput": 50_000, "uploadThroughput": 50_000});
    browser.devtools("Network.emulateNetworkConditions", slow).await;
    browser.goto(&stack.dashboard_url).await;
    browser.wait_for_text("h1", "Sign in").await;
    assert_eq!(browser.eval(SCRIPTS).await, json!([16, true, 0]));
    browser.goto("about:blank").await;
    browser.goto(&stack.dashboard_url).await;
    browser.wait_for_text("h1", "Sign in").await;
    let second_visit = browser.eval(SCRIPTS).await;
    // From the cache, a script may arrive before the next one is requested.
    assert_eq!((&second_visit[0], &second_visit[2]), (&json!(16), &json!(16)));
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

async fn skeleton_is_shown_until_scripts_have_loaded(browser: &Browser, stack: &Stack) {
    browser.block_urls(&["*/app.js"]).await;
    browser.goto(&stack.dashboard_url).await;
    browser.find(".loading .skeleton.card").await;
    browser.screenshot("loading").await;
    browser.wait_for_text(".late", "Still loading. If this does not change, reload the page.").await;
    browser.block_urls(&[]).await;
    browser.click(".late a").await;
    browser.wait_for_text("h1", "Sign in").await;
    assert_eq!(browser.count(".loading").await, 0);
}

async fn browser_without_javascript_shows_message_instead_of_skeleton(browser: &Browser, stack: &Stack) {
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
    browser.goto(&stack.dashboard_url).await;
    browser.wait_for_text("noscript h1", "The dashboard needs JavaScript").await;
    browser.screenshot("no-javascript").await;
    assert!(
        !browser.driver.find(thirtyfour::By::Css(".loading")).await.unwrap().is_displayed().await.unwrap()
    );
    let docs = browser.find("noscript a").await.attr("href").await.unwrap();
    assert_eq!(docs.unwrap(), format!("{}/docs", stack.lookup_url));
}

async fn page_that_cannot_load_its_data_can_try_again(browser: &Browser, stack: &Stack) {
    browser.block_urls(&["*/api/v1/*"]).await;
    browser.goto(&stack.dashboard_url).await;
    browser.wait_for_text("h1", "Can't load the dashboard").await;
    browser.wait_for_focus("H1 Can't load the dashboard").await;
    browser.block_urls(&[]).await;
    browser.press(".empty", "Try again").await;
    browser.wait_for_text("h1", "Sign in").await;
    browser.wait_for_value("document.activeElement.id", "login").await;
}
