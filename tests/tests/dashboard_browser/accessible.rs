//! axe-core finds nothing wrong, in any state, in light and dark.

use e2e::wait::eventually;
use quota_client::wire::{NewKey, Scope};

use crate::browser::{Browser, Look, SOON};
use crate::stack::Stack;

#[tokio::test]
async fn axe_finds_no_violation_in_light() {
    check(Look { dark: false, phone: false }).await;
}

#[tokio::test]
async fn axe_finds_no_violation_in_dark_on_a_phone() {
    check(Look { dark: true, phone: true }).await;
}

async fn check(look: Look) {
    let Some(browser) = Browser::start(look).await else { return };
    let Some(axe) = axe() else { return };
    let stack = Stack::start_with(&["--burst-limit", "3", "--daily-limit", "10"], &[]).await;
    browser.goto(&stack.dashboard_url).await;
    browser.sees("h1", "Sign in").await;
    clean(&browser, &axe, "sign-in").await;
    stack.sign_up(&browser, "ada").await;
    browser.sees(".empty", "No keys yet").await;
    clean(&browser, &axe, "empty").await;
    browser.press(".title", "Create key").await;
    clean(&browser, &axe, "create").await;
    browser.fill("#key-name", "Production").await;
    browser.press("dialog", "Create key").await;
    let secret = browser.text("#secret").await;
    clean(&browser, &axe, "created").await;
    browser.press("dialog", "I have saved it").await;

    let url = format!("{}/api/v1/ip", stack.lookup_url);
    for _ in 0..4 {
        e2e::http::client().get(&url).bearer_auth(&secret).send().await.unwrap();
    }
    inactive_key(&stack).await;
    browser.sees(".badge.paused", "Paused").await;
    browser.sees(".badge.inactive", "Inactive").await;
    browser.find(".month").await;
    clean(&browser, &axe, "keys").await;
    browser.press(".card", "Events").await;
    browser.sees(".events", "Paused").await;
    clean(&browser, &axe, "events").await;
    browser.click("dialog .icon-button").await;
    browser.press(".card", "Delete").await;
    clean(&browser, &axe, "delete").await;
    browser.press("dialog", "Cancel").await;
    browser.click(".account").await;
    browser.click("summary").await;
    clean(&browser, &axe, "account").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

async fn inactive_key(stack: &Stack) {
    let quota = stack.quotas[0].client();
    let account = quota.find_account("ada").await.unwrap().unwrap();
    let key = NewKey { name: "Old laptop".to_owned(), scope: Scope::Ip, daily_limit: None };
    let key = quota.create_key(&account.id, &key).await.unwrap().key;
    quota.deactivate_key(&key.id, None).await.unwrap();
}

/// axe-core as npm has installed it.
fn axe() -> Option<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/node/node_modules/axe-core/axe.min.js");
    match std::fs::read_to_string(file) {
        Ok(source) => Some(source),
        Err(error) => {
            assert!(std::env::var_os(e2e::tools::STRICT).is_none(), "axe-core is missing: {error}");
            e2e::tools::announce_skip("axe-core is missing (./test installs it)");
            None
        }
    }
}

async fn clean(browser: &Browser, axe: &str, state: &str) {
    // Numbers may be on their way, and colours in transition: only what stays counts.
    eventually(SOON, format!("{state} stands still"), async || {
        let still = browser
            .eval(
                "document.getAnimations().every(a => a.effect?.getComputedTiming().iterations === Infinity)",
            )
            .await;
        (still == true).then_some(())
    })
    .await;
    browser.driver.execute(axe, vec![]).await.expect("axe can be loaded");
    let script = "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then(r => done(r.violations.map(v => \
                  v.id + ': ' + v.help + ' ' + v.nodes.map(n => n.html + ' ' + n.failureSummary).join(' | '))), e => done([String(e)]));";
    let found = browser.driver.execute_async(script, vec![]).await.expect("axe runs");
    assert_eq!(found.json(), &serde_json::json!([]), "{state}");
}
