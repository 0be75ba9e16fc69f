//! What users of a keyboard or a screen reader notice: focus, names of buttons, announcements.

use quota_client::wire::{NewKey, Scope};
use testkit::http;

use super::stack::{PASSWORD, Stack};
use crate::browser::Browser;

share_browser!(
    focus_and_names_help_keyboard_and_screen_reader,
    Browser::start(),
    Stack::start_with(&["--burst-limit", "3", "--daily-limit", "5"], &[]),
    [
        focus_moves_to_what_an_action_has_changed,
        links_to_all_keys_have_distinct_names,
        new_counts_keep_selection_and_focus_and_announce_what_stops_a_key
    ]
);

async fn focus_moves_to_what_an_action_has_changed(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "ada").await;
    browser.wait_for_focus("H1 API keys").await;
    browser.press("header", "Sign out").await;
    browser.wait_for_value("document.activeElement.id", "login").await;
    browser.click(".alternative a").await;
    browser.wait_for_text("h1", "Create your account").await;
    browser.wait_for_value("document.activeElement.id", "login").await;
    browser.click(".alternative a").await;
    browser.wait_for_text("h1", "Sign in").await;
    browser.fill("#login", "ada").await;
    browser.fill("#password", PASSWORD).await;
    browser.press(".sign-in", "Sign in").await;
    browser.wait_for_focus("H1 API keys").await;

    stack.create_key(browser, "First").await;
    browser.wait_for_focus("A First").await;
    stack.create_key(browser, "Second").await;
    browser.wait_for_focus("A Second").await;
    stack.open_key(browser, "First").await;
    browser.press(".key-page", "Edit").await;
    browser.fill("#key-name", "Third").await;
    browser.press("dialog", "Save").await;
    browser.wait_for_focus("BUTTON Edit").await;
    browser.press(".key-page", "Deactivate").await;
    browser.press("dialog", "Deactivate").await;
    browser.wait_for_focus("BUTTON Reactivate").await;
    browser.press(".key-page", "Reactivate").await;
    browser.press("dialog", "Reactivate").await;
    browser.wait_for_focus("BUTTON Deactivate").await;
    browser.click(".back").await;
    browser.wait_for_focus("A Third").await;
    browser.driver.back().await.unwrap();
    browser.wait_for_focus("H1 Third").await;
    browser.press(".key-page", "Delete").await;
    browser.press("dialog", "Delete key").await;
    browser.wait_for_focus("H1 API keys").await;
    browser.wait_for_text("#notices", "Deleted “Third”").await;
    browser.goto(&format!("{}/#/keys/{}", stack.dashboard_url, "0".repeat(32))).await;
    browser.wait_for_focus("H1 Key not found").await;
    browser.click(".empty a").await;
    browser.wait_for_focus("H1 API keys").await;
    // The row of a key that is deleted elsewhere had the focus: the next row gets it.
    let quota = stack.quotas[0].client();
    let account = quota.find_account("ada").await.unwrap().unwrap();
    quota.create_key(&account.id, &NewKey::new("Last", Scope::Ip)).await.unwrap();
    browser.find(".rows a[aria-label='Last']").await;
    browser.find(".rows a[aria-label='Second']").await.focus().await.unwrap();
    let keys = quota.keys(&account.id).await.unwrap().keys;
    for (key, next) in keys.iter().zip(["A Last", "BUTTON Create your first key"]) {
        quota.delete_key(&key.id, None).await.unwrap();
        browser.wait_for_focus(next).await;
    }
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

async fn links_to_all_keys_have_distinct_names(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "grace").await;
    let quota = stack.quotas[0].client();
    let account = quota.find_account("grace").await.unwrap().unwrap();
    for name in ["Same", "Same", "Other"] {
        let key = NewKey::new(name, Scope::Ip);
        quota.create_key(&account.id, &key).await.unwrap();
    }
    browser.wait_for_text(".key-count", "3 of 10 keys").await;
    let names = browser.eval("[...document.querySelectorAll('.rows a')].map(a => a.ariaLabel)").await;
    let names: Vec<&str> = names.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let distinct: std::collections::HashSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
    assert!(names.contains(&"Other"), "{names:?}");
}

/// Records the text of each announcement in `window.announced`.
const RECORD: &str = "window.announced = []; new MutationObserver((records) => { for (const record of records) \
                      for (const node of record.addedNodes) window.announced.push(node.textContent); }) \
                      .observe(document.getElementById('announcements'), {childList: true});";

async fn new_counts_keep_selection_and_focus_and_announce_what_stops_a_key(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "alan").await;
    let (secret, _) = stack.create_key(browser, "Production").await;
    stack.open_key(browser, "Production").await;
    browser.find(".month").await;
    let request = async |count: usize| {
        for _ in 0..count {
            let request = http::client().get(format!("{}/api/v1/ip", stack.lookup_url)).bearer_auth(&secret);
            request.send().await.unwrap();
        }
    };
    let select = "getSelection().selectAllChildren(document.querySelector('.key-hint')); \
                  document.querySelector('[data-action=delete]').focus();";
    browser.driver.execute(format!("{RECORD} {select}"), vec![]).await.unwrap();
    let check_unchanged = async || {
        let hint = browser.text(".key-hint").await;
        assert_eq!(browser.eval("String(getSelection())").await, hint);
        browser.wait_for_focus("BUTTON Delete").await;
    };

    request(2).await;
    browser.wait_for_text(".today-text", "2 of 5").await;
    check_unchanged().await;
    browser.wait_for_text(".badge", "Active").await;
    request(2).await;
    browser.wait_for_text(".badge", "Paused").await;
    check_unchanged().await;
    let paused = "Key Production is paused: more than 3 requests within 60 seconds.";
    assert_eq!(browser.eval("announced").await, serde_json::json!([paused]));

    browser.press(".key-page", "Resume key").await;
    browser.wait_for_focus("H1 Production").await;
    request(2).await;
    browser.wait_for_text(".badge", "At limit").await;
    assert_eq!(browser.count(".badge.active").await, 0);
    let limited = "Key Production has reached its daily limit.";
    assert_eq!(browser.eval("announced").await, serde_json::json!([paused, limited]));
}

#[tokio::test]
async fn failed_sign_out_shows_error_as_alert() {
    let Some(browser) = Browser::start().await else { return };
    let mut stack = Stack::start().await;
    stack.sign_up(&browser, "ada").await;
    browser.wait_for_text(".empty", "No keys yet").await;
    stack.dashboard.kill();
    browser.press("header", "Sign out").await;
    browser
        .wait_for_text("[role=alert] .toast.error", "Can't reach the service. Check your connection.")
        .await;
    browser.wait_for_text(".warning", "Retrying automatically.").await;
    browser.screenshot("stopped").await;
    let icons = |region: &str| format!("document.querySelectorAll('{region} .icon').length");
    assert_eq!(browser.eval(&icons("#notices")).await, 0, "no check mark");
    assert_eq!(browser.eval(&icons("#errors")).await, 1);
}
