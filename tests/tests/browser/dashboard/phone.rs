//! The dashboard at the width of phones, in the dark theme: nothing overflows the screen.

use serde_json::json;

use super::stack::Stack;
use crate::browser::{Appearance, Browser};

share_browser!(
    page_fits_widths_of_phones,
    Browser::start(),
    Stack::start_with(&["--burst-limit", "3", "--daily-limit", "6"], &[]),
    [page_fits_a_width_of_360_pixels, page_fits_a_width_of_320_pixels]
);

async fn page_fits_a_width_of_360_pixels(browser: &Browser, stack: &Stack) {
    check_width(browser, stack, 360).await;
}

/// 320 pixels are the width of the smallest phones, and of a desktop browser at a zoom of 400%.
async fn page_fits_a_width_of_320_pixels(browser: &Browser, stack: &Stack) {
    check_width(browser, stack, 320).await;
}

async fn check_width(browser: &Browser, stack: &Stack, width: u32) {
    browser.set_appearance(Appearance { dark: true, phone: true }).await;
    browser.set_screen(width, 640).await;
    let check_fits = async |browser: &Browser, name: &str| check_fits(browser, width, name).await;
    browser.goto(&format!("{}/#sign-up", stack.dashboard_url)).await;
    browser.find("#login").await;
    check_fits(browser, "phone-sign-up").await;
    let login = format!("a.rather.long.login.of.owner.{width}@subdomain.example.org");
    stack.sign_up(browser, &login).await;
    check_fits(browser, "phone-empty").await;
    browser.press(".title", "Create key").await;
    browser.fill("#key-name", "A key name of the maximum length, which is sixty-four characters").await;
    check_fits(browser, "phone-create").await;
    browser.press("dialog", "Create key").await;
    browser.find("#secret").await;
    check_fits(browser, "phone-created").await;
    let secret = browser.text("#secret").await;
    browser.press("dialog", "I have saved it").await;
    let request = async || {
        let url = format!("{}/api/v1/ip", stack.lookup_url);
        testkit::http::client().get(url).bearer_auth(&secret).send().await.unwrap();
    };
    for _ in 0..4 {
        request().await;
    }
    browser.wait_for_text(".badge", "Paused").await;
    check_fits(browser, "phone-paused").await;
    browser
        .driver
        .execute("document.querySelector('.actions').scrollIntoView({block: 'end'})", vec![])
        .await
        .unwrap();
    check_fits(browser, "phone-actions").await;
    browser.press(".card", "Events").await;
    browser.wait_for_text(".events", "Paused").await;
    check_fits(browser, "phone-events").await;
    browser.click("dialog .icon-button").await;
    browser.press(".pause", "Resume key").await;
    browser.wait_for_text(".badge", "Active").await;
    for _ in 0..3 {
        request().await;
    }
    browser.wait_for_text(".badge", "Daily limit reached").await;
    check_fits(browser, "phone-limit").await;
    browser.click(".account").await;
    browser.click("summary").await;
    check_fits(browser, "phone-account").await;
}

async fn check_fits(browser: &Browser, expected: u32, name: &str) {
    browser.screenshot(&format!("{name}-{expected}")).await;
    let width = browser.eval("[innerWidth, document.documentElement.scrollWidth]").await;
    assert_eq!(width, json!([expected, expected]), "{name} scrolls horizontally");
    let overflowing = "[...document.querySelectorAll('button, input, a, h1, h2, code')].filter(e => { \
               const r = e.getBoundingClientRect(); return r.width && (r.left < 0 || r.right > innerWidth + 0.5); }).map(e => e.outerHTML)";
    assert_eq!(browser.eval(overflowing).await, json!([]), "{name}");
}
