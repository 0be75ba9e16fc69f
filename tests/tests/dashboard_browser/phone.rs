//! The dashboard at the width of a phone, in the dark theme: nothing overflows the screen.

use crate::browser::{Appearance, Browser};
use crate::stack::Stack;

#[tokio::test]
async fn page_fits_a_width_of_360_pixels() {
    let Some(browser) = Browser::start(Appearance { dark: true, phone: true }).await else { return };
    let stack = Stack::start().await;
    browser.goto(&format!("{}/#sign-up", stack.dashboard_url)).await;
    browser.find("#login").await;
    check_fits(&browser, "phone-sign-up").await;
    stack.sign_up(&browser, "a.rather.long.login.of.an.owner@subdomain.example.org").await;
    check_fits(&browser, "phone-empty").await;
    browser.press(".title", "Create key").await;
    browser.fill("#key-name", "A key name of the maximum length, which is sixty-four characters").await;
    check_fits(&browser, "phone-create").await;
    browser.press("dialog", "Create key").await;
    browser.find("#secret").await;
    check_fits(&browser, "phone-created").await;
    let secret = browser.text("#secret").await;
    browser.press("dialog", "I have saved it").await;
    for _ in 0..301 {
        let url = format!("{}/api/v1/ip", stack.lookup_url);
        testkit::http::client().get(url).bearer_auth(&secret).send().await.unwrap();
    }
    browser.wait_for_text(".badge", "Paused").await;
    check_fits(&browser, "phone-paused").await;
    browser
        .driver
        .execute("document.querySelector('.actions').scrollIntoView({block: 'end'})", vec![])
        .await
        .unwrap();
    check_fits(&browser, "phone-actions").await;
    browser.press(".card", "Events").await;
    browser.wait_for_text(".events", "Paused").await;
    check_fits(&browser, "phone-events").await;
    browser.click("dialog .icon-button").await;
    browser.press(".pause", "Resume key").await;
    browser.wait_for_text(".badge", "Active").await;
}

async fn check_fits(browser: &Browser, name: &str) {
    browser.screenshot(name).await;
    let width = browser.eval("[innerWidth, document.documentElement.scrollWidth]").await;
    assert_eq!(width, serde_json::json!([360, 360]), "{name} scrolls horizontally");
    let overflowing = "[...document.querySelectorAll('button, input, a, h1, h2, code')].filter(e => { \
               const r = e.getBoundingClientRect(); return r.width && (r.left < 0 || r.right > 360.5); }).map(e => e.outerHTML)";
    assert_eq!(browser.eval(overflowing).await, serde_json::json!([]), "{name}");
}
