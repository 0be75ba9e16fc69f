//! Keys on the page: limits, states, failures.

use e2e::wait::eventually_ok;
use quota_client::wire::{NewKey, Scope};

use crate::browser::{Browser, Look, SOON};
use crate::stack::Stack;

/// Keys made behind the page's back.
async fn keys_for(stack: &Stack, login: &str, names: &[&str]) {
    let quota = stack.quotas[0].client();
    let account = quota.find_account(login).await.unwrap().unwrap();
    for name in names {
        let key = NewKey { name: (*name).to_owned(), scope: Scope::Geo, daily_limit: None };
        quota.create_key(&account.id, &key).await.unwrap();
    }
}

#[tokio::test]
async fn the_tenth_key_is_the_last() {
    let Some(browser) = Browser::start(Look::default()).await else { return };
    let stack = Stack::start().await;
    stack.sign_up(&browser, "ada").await;
    browser.sees(".empty", "No keys yet").await;
    browser.shot("empty").await;
    // The dialogue is open when the places run out elsewhere.
    browser.press(".title", "Create key").await;
    browser.fill("#key-name", "one too many").await;
    browser.shot("create").await;
    keys_for(&stack, "ada", &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]).await;
    browser.press("dialog", "Create key").await;
    browser.sees("dialog .problem", "An account holds at most 10 keys.").await;
    browser.shot("key-limit").await;
    browser.press("dialog", "Cancel").await;
    browser.sees(".counted", "10 of 10 keys").await;
    assert!(!browser.find(".title .primary").await.is_enabled().await.unwrap());
    assert_eq!(browser.count(".card").await, 10);
    browser.press(".card:first-child", "Delete").await;
    browser.shot("delete").await;
    browser.press("dialog", "Delete key").await;
    browser.sees(".counted", "9 of 10 keys").await;
    assert!(browser.find(".title .primary").await.is_enabled().await.unwrap());
}

#[tokio::test]
async fn a_key_is_renamed_deactivated_and_reactivated() {
    let Some(browser) = Browser::start(Look::default()).await else { return };
    let stack = Stack::start().await;
    stack.sign_up(&browser, "ada").await;
    stack.create_key(&browser, "<b>Bold</b>").await;
    browser.sees(".card h2", "<b>Bold</b>").await;
    browser.press(".card", "Rename").await;
    browser.fill("#asked", "Checkout").await;
    browser.press("dialog", "Save").await;
    browser.sees(".card h2", "Checkout").await;
    browser.press(".card", "Deactivate").await;
    browser.shot("deactivate").await;
    browser.press("dialog", "Deactivate").await;
    browser.sees(".card .badge", "Inactive").await;
    browser.press(".card", "Reactivate").await;
    browser.press("dialog", "Reactivate").await;
    browser.sees(".card .badge", "Active").await;
    browser.press(".card", "Events").await;
    browser.sees(".events li:nth-child(1)", "Reactivated").await;
    browser.sees(".events li:nth-child(3)", "Renamed").await;
    browser.shot("events").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn while_the_store_is_away_the_page_says_so_and_recovers() {
    let Some(browser) = Browser::start(Look::default()).await else { return };
    let stack = Stack::start().await;
    stack.sign_up(&browser, "ada").await;
    stack.create_key(&browser, "Production").await;
    stack.redis.freeze();
    browser.sees(".trouble", "These are the last known numbers").await;
    assert_eq!(browser.count(".card").await, 1, "what was known stays");
    browser.shot("trouble").await;
    stack.redis.thaw();
    eventually_ok(SOON, "the trouble is over", async || {
        let text = browser.eval("document.querySelector('.trouble').textContent").await;
        if text == "" { Ok(()) } else { Err(text.to_string()) }
    })
    .await;
}
