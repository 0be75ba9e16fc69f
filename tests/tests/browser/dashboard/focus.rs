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
        buttons_of_all_cards_have_distinct_names,
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
    browser.wait_for_focus("H2 First").await;
    stack.create_key(browser, "Second").await;
    browser.wait_for_focus("H2 Second").await;
    let first = ".card:has([aria-label$=' First'])";
    browser.press(first, "Rename").await;
    browser.fill("#prompt-input", "Third").await;
    browser.press("dialog", "Save").await;
    browser.wait_for_focus("BUTTON Rename key Third").await;
    let third = ".card:has([aria-label$=' Third'])";
    browser.press(third, "Deactivate").await;
    browser.press("dialog", "Deactivate").await;
    browser.wait_for_focus("BUTTON Reactivate key Third").await;
    browser.press(third, "Reactivate").await;
    browser.press("dialog", "Reactivate").await;
    browser.wait_for_focus("BUTTON Deactivate key Third").await;
    browser.press(third, "Events").await;
    browser.click("dialog .icon-button").await;
    browser.wait_for_focus("BUTTON Events of key Third").await;
    browser.press(third, "Delete").await;
    browser.press("dialog", "Delete key").await;
    browser.wait_for_focus("H2 Second").await;
    browser.wait_for_text("#notices", "Deleted “Third”").await;
    browser.press(".card", "Delete").await;
    browser.press("dialog", "Delete key").await;
    browser.wait_for_focus("BUTTON Create your first key").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

async fn buttons_of_all_cards_have_distinct_names(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "grace").await;
    let quota = stack.quotas[0].client();
    let account = quota.find_account("grace").await.unwrap().unwrap();
    for name in ["Same", "Same", "Other"] {
        let key = NewKey::new(name, Scope::Ip);
        quota.create_key(&account.id, &key).await.unwrap();
    }
    browser.wait_for_text(".key-count", "3 of 10 keys").await;
    let names =
        "[...document.querySelectorAll('.card button:not([hidden], [hidden] *)')].map(b => b.ariaLabel)";
    let names = browser.eval(names).await;
    let names: Vec<&str> = names.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(names.len(), 12, "{names:?}");
    let distinct: std::collections::HashSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
    assert!(names.contains(&"Delete key Other"), "{names:?}");
}

/// Records the text of each announcement in `window.announced`.
const RECORD: &str = "window.announced = []; new MutationObserver((records) => { for (const record of records) \
                      for (const node of record.addedNodes) window.announced.push(node.textContent); }) \
                      .observe(document.getElementById('announcements'), {childList: true});";

async fn new_counts_keep_selection_and_focus_and_announce_what_stops_a_key(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "alan").await;
    let (secret, _) = stack.create_key(browser, "Production").await;
    browser.find(".month").await;
    let request = async |count: usize| {
        for _ in 0..count {
            let request = http::client().get(format!("{}/api/v1/ip", stack.lookup_url)).bearer_auth(&secret);
            request.send().await.unwrap();
        }
    };
    let select = "getSelection().selectAllChildren(document.querySelector('.key-hint')); \
                  document.querySelector('[data-action=events]').focus();";
    browser.driver.execute(format!("{RECORD} {select}"), vec![]).await.unwrap();
    let check_unchanged = async || {
        let hint = browser.text(".key-hint").await;
        assert_eq!(browser.eval("String(getSelection())").await, hint);
        browser.wait_for_focus("BUTTON Events of key Production").await;
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

    browser.press(".card", "Resume key").await;
    browser.wait_for_focus("H2 Production").await;
    request(2).await;
    browser.wait_for_text(".badge", "Daily limit reached").await;
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
