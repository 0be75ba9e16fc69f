//! axe-core finds no violation in any state of the dashboard, in the light and the dark theme.

use quota_client::wire::{NewKey, Scope};
use testkit::wait::eventually;

use super::stack::Stack;
use crate::browser::{Appearance, Browser, WAIT_TIMEOUT};

#[tokio::test]
async fn axe_finds_no_violation_in_light_theme() {
    check_all_states(Appearance { dark: false, phone: false }).await;
}

#[tokio::test]
async fn axe_finds_no_violation_in_dark_theme_on_phone() {
    check_all_states(Appearance { dark: true, phone: true }).await;
}

#[tokio::test]
async fn hovered_primary_button_has_sufficient_contrast_in_both_themes() {
    let stack = Stack::start().await;
    for dark in [false, true] {
        let Some(browser) = Browser::start(Appearance { dark, phone: false }).await else { return };
        let Some(axe) = axe() else { return };
        browser.goto(&stack.dashboard_url).await;
        let button = browser.find(".primary").await;
        browser.driver.action_chain().move_to_element_center(&button).perform().await.unwrap();
        browser.wait_for_value("document.querySelector('.primary').matches(':hover')", true).await;
        check_axe(&browser, &axe, if dark { "hovered, dark" } else { "hovered, light" }).await;
    }
}

async fn check_all_states(appearance: Appearance) {
    let Some(browser) = Browser::start(appearance).await else { return };
    let Some(axe) = axe() else { return };
    let stack = Stack::start_with(&["--burst-limit", "3", "--daily-limit", "10"], &[]).await;
    browser.block_urls(&["*/app.js"]).await;
    browser.goto(&stack.dashboard_url).await;
    browser.find(".loading").await;
    check_axe(&browser, &axe, "loading").await;
    // The error about the blocked script is expected.
    browser.console_errors().await;
    browser.block_urls(&[]).await;
    browser.goto(&stack.dashboard_url).await;
    browser.wait_for_text("h1", "Sign in").await;
    check_axe(&browser, &axe, "sign-in").await;
    stack.sign_up(&browser, "ada").await;
    browser.wait_for_text(".empty", "No keys yet").await;
    check_axe(&browser, &axe, "empty").await;
    browser.press(".title", "Create key").await;
    check_axe(&browser, &axe, "create").await;
    browser.fill("#key-name", "Production").await;
    browser.press("dialog", "Create key").await;
    let secret = browser.text("#secret").await;
    check_axe(&browser, &axe, "created").await;
    browser.press("dialog", "I have saved it").await;

    let url = format!("{}/api/v1/ip", stack.lookup_url);
    for _ in 0..4 {
        testkit::http::client().get(&url).bearer_auth(&secret).send().await.unwrap();
    }
    create_inactive_key(&stack).await;
    create_limited_key(&stack).await;
    browser.wait_for_text(".badge.paused", "Paused").await;
    browser.wait_for_text(".badge.inactive", "Inactive").await;
    browser.wait_for_text(".badge.limited", "Daily limit reached").await;
    browser.find(".month").await;
    check_axe(&browser, &axe, "keys").await;
    browser.press(".card", "Events").await;
    browser.wait_for_text(".events", "Paused").await;
    check_axe(&browser, &axe, "events").await;
    browser.click("dialog .icon-button").await;
    browser.press(".card", "Delete").await;
    check_axe(&browser, &axe, "delete").await;
    browser.press("dialog", "Cancel").await;
    browser.click(".account").await;
    browser.click("summary").await;
    check_axe(&browser, &axe, "account").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    browser.click("dialog .icon-button").await;
    browser.block_urls(&["*/api/v1/*"]).await;
    browser.press("header", "Sign out").await;
    browser.find(".toast.error").await;
    check_axe(&browser, &axe, "unreachable").await;
}

async fn create_inactive_key(stack: &Stack) {
    let quota = stack.quotas[0].client();
    let account = quota.find_account("ada").await.unwrap().unwrap();
    let key = NewKey { name: "Old laptop".to_owned(), scope: Scope::Ip, daily_limit: None };
    let key = quota.create_key(&account.id, &key).await.unwrap().key;
    quota.deactivate_key(&key.id, None).await.unwrap();
}

/// Creates a key and uses up its daily quota.
async fn create_limited_key(stack: &Stack) {
    let quota = stack.quotas[0].client();
    let account = quota.find_account("ada").await.unwrap().unwrap();
    let key = NewKey { name: "Import".to_owned(), scope: Scope::Ip, daily_limit: Some(1) };
    let secret = quota.create_key(&account.id, &key).await.unwrap().secret;
    let request = testkit::http::client().get(format!("{}/api/v1/ip", stack.lookup_url));
    assert_eq!(request.bearer_auth(&secret).send().await.unwrap().status(), 200);
}

/// The source of axe-core, installed by npm. `None` means that the test must be skipped.
fn axe() -> Option<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/node/node_modules/axe-core/axe.min.js");
    match std::fs::read_to_string(file) {
        Ok(source) => Some(source),
        Err(error) => {
            assert!(std::env::var_os(testkit::tools::STRICT).is_none(), "axe-core is missing: {error}");
            testkit::tools::announce_skip("axe-core is missing (./test installs it)");
            None
        }
    }
}

async fn check_axe(browser: &Browser, axe: &str, state: &str) {
    // Transitions change colors, so wait until they are over and only endless animations and delays run.
    eventually(WAIT_TIMEOUT, format!("animations of {state} are finished"), async || {
        let script = "document.getAnimations().map(a => a.effect.getComputedTiming()) \
                      .every(timing => timing.iterations === Infinity || timing.duration === 0)";
        (browser.eval(script).await == true).then_some(())
    })
    .await;
    browser.driver.execute(axe, vec![]).await.expect("axe is loaded");
    let script = "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then(r => done(r.violations.map(v => \
                  v.id + ': ' + v.help + ' ' + v.nodes.map(n => n.html + ' ' + n.failureSummary).join(' | '))), e => done([String(e)]));";
    let violations = browser.driver.execute_async(script, vec![]).await.expect("axe runs");
    assert_eq!(violations.json(), &serde_json::json!([]), "{state}");
}
