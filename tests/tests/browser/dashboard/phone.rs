//! The dashboard at the width of the smallest phones, in the dark theme: nothing overflows the screen.

use super::stack::Stack;
use crate::browser::{Appearance, Browser};

/// The width of the smallest phones, and of a desktop browser at a zoom of 400%.
const WIDTH: u32 = 320;

#[tokio::test]
async fn page_fits_the_width_of_small_phones() {
    let Some(browser) = Browser::start().await else { return };
    let stack = Stack::start_with(&["--burst-limit", "3", "--daily-limit", "6"], &[]).await;
    browser.set_appearance(Appearance { dark: true, phone: true }).await;
    browser.set_screen(WIDTH, 640).await;
    browser.goto(&format!("{}/#sign-up", stack.dashboard_url)).await;
    browser.find("#login").await;
    browser.check_fits(WIDTH, "phone-sign-up").await;
    let login = "a.rather.long.login.of.an.owner@subdomain.example.org";
    stack.sign_up(&browser, login).await;
    browser.check_fits(WIDTH, "phone-empty").await;
    browser.press(".title", "Create key").await;
    browser.fill("#key-name", "A key name of the maximum length, which is sixty-four characters").await;
    browser.check_fits(WIDTH, "phone-create").await;
    browser.press("dialog", "Create key").await;
    browser.find("#secret").await;
    browser.check_fits(WIDTH, "phone-created").await;
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
    browser.check_fits(WIDTH, "phone-list").await;
    browser.click(".rows a").await;
    browser.wait_for_text(".events", "Paused").await;
    browser.check_fits(WIDTH, "phone-paused").await;
    browser
        .driver
        .execute("document.querySelector('.actions').scrollIntoView({block: 'end'})", vec![])
        .await
        .unwrap();
    browser.check_fits(WIDTH, "phone-actions").await;
    browser.press(".key-page", "Replace").await;
    browser.check_fits(WIDTH, "phone-replace").await;
    browser.press("dialog", "Cancel").await;
    browser.press(".pause", "Resume key").await;
    browser.wait_for_text(".badge", "Active").await;
    for _ in 0..3 {
        request().await;
    }
    browser.wait_for_text(".badge", "At limit").await;
    browser.check_fits(WIDTH, "phone-limit").await;
    browser.click(".account").await;
    browser.click("dialog summary").await;
    browser.check_fits(WIDTH, "phone-account").await;
}
