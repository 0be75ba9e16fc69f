//! A phone's width, dark: nothing is cut off, everything can be reached.

use crate::browser::{Browser, Look};
use crate::stack::Stack;

#[tokio::test]
async fn at_360_pixels_nothing_is_cut_off() {
    let Some(browser) = Browser::start(Look { dark: true, phone: true }).await else { return };
    let stack = Stack::start().await;
    browser.goto(&format!("{}/#sign-up", stack.dashboard_url)).await;
    browser.find("#login").await;
    fits(&browser, "phone-sign-up").await;
    stack.sign_up(&browser, "a.rather.long.login.of.somebody@subdomain.example.org").await;
    fits(&browser, "phone-empty").await;
    browser.press(".title", "Create key").await;
    browser.fill("#key-name", "A key with a name as long as a name of a key can be, 64 in all..").await;
    fits(&browser, "phone-create").await;
    browser.press("dialog", "Create key").await;
    browser.find("#secret").await;
    fits(&browser, "phone-created").await;
    let secret = browser.text("#secret").await;
    browser.press("dialog", "I have saved it").await;
    for _ in 0..301 {
        let url = format!("{}/api/v1/ip", stack.lookup_url);
        e2e::http::client().get(url).bearer_auth(&secret).send().await.unwrap();
    }
    browser.sees(".badge", "Paused").await;
    fits(&browser, "phone-paused").await;
    browser
        .driver
        .execute("document.querySelector('.actions').scrollIntoView({block: 'end'})", vec![])
        .await
        .unwrap();
    fits(&browser, "phone-actions").await;
    browser.press(".card", "Events").await;
    browser.sees(".events", "Paused").await;
    fits(&browser, "phone-events").await;
    browser.click("dialog .icon-button").await;
    browser.press(".pause", "Resume key").await;
    browser.sees(".badge", "Active").await;
}

async fn fits(browser: &Browser, name: &str) {
    browser.shot(name).await;
    let width = browser.eval("[innerWidth, document.documentElement.scrollWidth]").await;
    assert_eq!(width, serde_json::json!([360, 360]), "{name} scrolls sideways");
    let cut = "[...document.querySelectorAll('button, input, a, h1, h2, code')].filter(e => { \
               const r = e.getBoundingClientRect(); return r.width && (r.left < 0 || r.right > 360.5); }).map(e => e.outerHTML)";
    assert_eq!(browser.eval(cut).await, serde_json::json!([]), "{name}");
}
