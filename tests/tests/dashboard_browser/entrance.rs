//! Signing up, in and out, as a person does it.

use thirtyfour::prelude::*;

use crate::browser::{Browser, Look};
use crate::stack::{PASSWORD, Stack};

#[tokio::test]
async fn a_wrong_password_is_told_and_the_right_one_enters() {
    let Some(browser) = Browser::start(Look::default()).await else { return };
    let stack = Stack::start().await;
    stack.sign_up(&browser, "ada@example.org").await;
    browser.press("header", "Sign out").await;
    browser.sees(".lead", "You are signed out.").await;
    browser.shot("sign-in").await;

    browser.fill("#login", "ada@example.org").await;
    browser.fill("#password", "not her password").await;
    browser.press(".entrance", "Sign in").await;
    browser.sees(".problem", "Login or password is wrong.").await;
    browser.shot("sign-in-wrong").await;

    browser.fill("#password", PASSWORD).await;
    browser.find("#password").await.send_keys(Key::Enter).await.unwrap();
    browser.sees("h1", "API keys").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_page_is_used_by_keyboard_alone() {
    let Some(browser) = Browser::start(Look::default()).await else { return };
    let stack = Stack::start().await;
    browser.goto(&format!("{}/#sign-up", stack.dashboard_url)).await;
    browser.find("#password").await;
    let keys = async |keys: TypingData| {
        browser.driver.action_chain().send_keys(keys).perform().await.unwrap();
    };
    // The page puts the cursor into the first field.
    keys(TypingData::from("grace") + Key::Tab + PASSWORD + Key::Enter).await;
    browser.sees("h1", "API keys").await;
    browser.sees(".empty", "No keys yet").await;
    browser.find(".empty button").await.focus().await.unwrap();
    keys(TypingData::from(Key::Enter)).await;
    browser.find("#key-name").await;
    keys(TypingData::from("by keyboard") + Key::Tab + Key::Up + Key::Enter).await;
    assert!(browser.text("#secret").await.starts_with("ipl_"));
    // Escape does not lose a key that is shown once; the button has the focus.
    keys(TypingData::from(Key::Escape)).await;
    browser.find("#secret").await;
    keys(TypingData::from(Key::Enter)).await;
    browser.gone("dialog").await;
    browser.sees(".card .scope", "geo").await;
    browser.find("[data-action=delete]").await.focus().await.unwrap();
    keys(TypingData::from(Key::Enter)).await;
    browser.sees("dialog h2", "for good?").await;
    // What is dangerous is not under the finger: Enter would cancel.
    assert_eq!(browser.eval("document.activeElement.textContent").await, "Cancel");
    keys(TypingData::from(Key::Escape)).await;
    browser.gone("dialog").await;
    assert_eq!(browser.count(".card").await, 1);
}

#[tokio::test]
async fn signing_out_in_another_tab_is_noticed() {
    let Some(browser) = Browser::start(Look::default()).await else { return };
    let stack = Stack::start().await;
    stack.sign_up(&browser, "ada").await;
    let first = browser.driver.window().await.unwrap();
    let second = browser.driver.new_tab().await.unwrap();
    browser.driver.switch_to_window(second).await.unwrap();
    browser.goto(&stack.dashboard_url).await;
    browser.sees("h1", "API keys").await;
    browser.press("header", "Sign out").await;
    browser.sees("h1", "Sign in").await;
    browser.driver.switch_to_window(first).await.unwrap();
    browser.sees(".lead", "Your session has ended. Sign in again.").await;
    browser.shot("session-ended").await;
}

#[tokio::test]
async fn an_account_changes_its_password_and_leaves() {
    let Some(browser) = Browser::start(Look::default()).await else { return };
    let stack = Stack::start().await;
    stack.sign_up(&browser, "ada").await;
    browser.click(".account").await;
    browser.fill("#password-current", "wrong").await;
    browser.fill("#password-fresh", "another password").await;
    browser.press("dialog", "Change password").await;
    browser.sees("dialog .problem", "The password is wrong.").await;
    browser.shot("account").await;
    browser.fill("#password-current", PASSWORD).await;
    browser.press("dialog", "Change password").await;
    browser.sees(".toast", "Password changed").await;
    browser.click(".account").await;
    browser.click("summary").await;
    browser.fill("#password-leave", "another password").await;
    browser.press("dialog", "Delete account and keys").await;
    browser.sees(".lead", "Your account and its keys are deleted.").await;
}

#[tokio::test]
async fn where_sign_up_is_off_nobody_is_invited() {
    let Some(browser) = Browser::start(Look::default()).await else { return };
    let stack = Stack::start_with(&[], &["--signup", "off"]).await;
    browser.goto(&format!("{}/#sign-up", stack.dashboard_url)).await;
    browser.sees("h1", "Sign in").await;
    browser.sees(".other", "Accounts are created by whoever runs this service.").await;
}
