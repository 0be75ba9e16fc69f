//! A new key is shown once: it disappears only after "I have saved it". A form stays open when a drag ends outside.

use thirtyfour::prelude::*;

use super::stack::Stack;
use crate::browser::Browser;

/// A point outside of every dialog.
const OUTSIDE: (i64, i64) = (10, 10);

share_browser!(
    dialogs_close_only_when_they_may,
    Browser::start(),
    Stack::start(),
    [new_key_stays_visible_until_it_is_saved, form_closes_on_click_outside_but_not_on_drag_out_of_field]
);

async fn new_key_stays_visible_until_it_is_saved(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "ada").await;
    browser.press(".title", "Create key").await;
    browser.fill("#key-name", "Production").await;
    browser.press("dialog", "Create key").await;
    let secret = browser.text("#secret").await;
    // Enter copies: a second Enter in the form must not close this dialog.
    browser.wait_for_focus("BUTTON Copy: API key").await;

    let check = async |after: &str| {
        // A dialog that was closed by force opens again in the next task.
        browser.wait_for_value("document.querySelectorAll('dialog[open]').length", 1).await;
        assert_eq!(browser.text("#secret").await, secret, "after {after}");
    };
    // Browsers let a page prevent that Escape closes a dialog only once.
    for _ in 0..3 {
        browser.type_keys(Key::Escape).await;
    }
    check("Escape").await;
    let (x, y) = OUTSIDE;
    browser.driver.action_chain().move_to(x, y).click().perform().await.unwrap();
    check("a click outside").await;
    // What a browser without `closedby` does on the second Escape.
    browser.driver.execute("document.querySelector('dialog').close()", vec![]).await.unwrap();
    check("a forced close").await;
    assert!(warns_before_leaving(browser).await);
    end_session(browser).await;
    browser.find(".sign-in").await;
    check("the end of the session").await;

    browser.press("dialog", "I have saved it").await;
    browser.wait_gone("dialog").await;
    browser.wait_for_value("document.activeElement.id", "login").await;
    browser.wait_for_text(".lead", "Your session has ended. Sign in again.").await;
    assert!(!warns_before_leaving(browser).await);
}

/// Whether the browser would warn before it leaves the page.
async fn warns_before_leaving(browser: &Browser) -> bool {
    let script = "(() => { const event = new Event('beforeunload', {cancelable: true}); dispatchEvent(event); \
                  return event.defaultPrevented; })()";
    browser.eval(script).await == true
}

/// Signs out, as another tab would.
async fn end_session(browser: &Browser) {
    let script = "const done = arguments[0]; \
                  fetch('/api/v1/session', {method: 'DELETE', headers: {'X-CSRF-Token': '1'}}).then(r => done(r.status));";
    let status = browser.driver.execute_async(script, vec![]).await.unwrap();
    assert_eq!(status.json(), &serde_json::json!(204));
}

async fn form_closes_on_click_outside_but_not_on_drag_out_of_field(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "grace").await;
    browser.press(".title", "Create key").await;
    browser.fill("#key-name", "Production").await;
    let field = browser.find("#key-name").await;
    let (x, y) = OUTSIDE;
    let chain = browser.driver.action_chain();
    chain.click_and_hold_element(&field).move_to(x, y).release().perform().await.unwrap();
    assert_eq!(browser.eval("document.querySelector('#key-name').value").await, "Production");
    browser.driver.action_chain().move_to(x, y).click().perform().await.unwrap();
    browser.wait_gone("dialog").await;

    // The drawer is higher than its content. The space below it is not outside.
    browser.click(".account").await;
    browser.find("#password-current").await;
    let space = "(() => { const box = document.querySelector('dialog').getBoundingClientRect(); \
                 return [box.left + 20, box.bottom - 20]; })()";
    let space = browser.eval(space).await;
    let [x, y] = [0, 1].map(|i: usize| space[i].as_f64().unwrap() as i64);
    browser.driver.action_chain().move_to(x, y).click().perform().await.unwrap();
    assert_eq!(browser.count("dialog[open]").await, 1);
}
