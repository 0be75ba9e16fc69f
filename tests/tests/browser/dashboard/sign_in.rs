//! Sign-up, sign-in, sign-out, password change and account deletion.

use thirtyfour::prelude::*;

use super::stack::{PASSWORD, Stack};
use crate::browser::Browser;

share_browser!(
    owner_signs_in_and_out,
    Browser::start(),
    Stack::start(),
    [
        wrong_password_shows_error_and_correct_one_signs_in,
        keys_can_be_managed_by_keyboard_alone,
        sign_out_in_another_tab_ends_the_session,
        password_change_and_account_deletion_work
    ]
);

async fn wrong_password_shows_error_and_correct_one_signs_in(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "ada@example.org").await;
    browser.press("header", "Sign out").await;
    browser.wait_for_text(".lead", "You are signed out.").await;
    browser.screenshot("sign-in").await;

    browser.fill("#login", "ada@example.org").await;
    browser.fill("#password", "not her password").await;
    browser.press(".sign-in", "Sign in").await;
    browser.wait_for_text(".problem", "Incorrect login or password.").await;
    browser.screenshot("sign-in-wrong").await;

    browser.fill("#password", PASSWORD).await;
    browser.find("#password").await.send_keys(Key::Enter).await.unwrap();
    browser.wait_for_text("h1", "API keys").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

async fn keys_can_be_managed_by_keyboard_alone(browser: &Browser, stack: &Stack) {
    browser.goto(&format!("{}/#sign-up", stack.dashboard_url)).await;
    browser.find("#password").await;
    let type_keys = async |keys: TypingData| browser.type_keys(keys).await;
    // The page focuses the first field.
    type_keys(TypingData::from("grace") + Key::Tab + PASSWORD + Key::Enter).await;
    browser.wait_for_text("h1", "API keys").await;
    browser.wait_for_text(".empty", "No keys yet").await;
    browser.find(".empty button").await.focus().await.unwrap();
    type_keys(TypingData::from(Key::Enter)).await;
    browser.find("#key-name").await;
    type_keys(TypingData::from("by keyboard") + Key::Tab + Key::Up + Key::Enter).await;
    assert!(browser.text("#secret").await.starts_with("ipl_"));
    // The button to copy the key has the focus. The key, the curl line and its button are before "I have saved it".
    type_keys(TypingData::from(Key::Tab) + Key::Tab + Key::Tab + Key::Tab + Key::Enter).await;
    browser.wait_gone("dialog").await;
    browser.wait_for_text(".card .scope", "geo").await;
    browser.find("[data-action=delete]").await.focus().await.unwrap();
    type_keys(TypingData::from(Key::Enter)).await;
    browser.wait_for_text("dialog h2", "permanently?").await;
    // The dangerous button is not the default: Enter would cancel.
    assert_eq!(browser.eval("document.activeElement.textContent").await, "Cancel");
    type_keys(TypingData::from(Key::Escape)).await;
    browser.wait_gone("dialog").await;
    assert_eq!(browser.count(".card").await, 1);
}

async fn sign_out_in_another_tab_ends_the_session(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "alan").await;
    let first = browser.driver.window().await.unwrap();
    let second = browser.driver.new_tab().await.unwrap();
    browser.driver.switch_to_window(second).await.unwrap();
    browser.goto(&stack.dashboard_url).await;
    browser.wait_for_text("h1", "API keys").await;
    browser.press("header", "Sign out").await;
    browser.wait_for_text("h1", "Sign in").await;
    browser.driver.switch_to_window(first).await.unwrap();
    browser.wait_for_text(".lead", "Your session has ended. Sign in again.").await;
    browser.screenshot("session-ended").await;
}

async fn password_change_and_account_deletion_work(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "barbara").await;
    browser.click(".account").await;
    browser.fill("#password-current", "wrong").await;
    browser.fill("#password-new", "another password").await;
    browser.press("dialog", "Change password").await;
    browser.wait_for_text("dialog .problem", "Incorrect password.").await;
    browser.screenshot("account").await;
    browser.fill("#password-current", PASSWORD).await;
    browser.press("dialog", "Change password").await;
    browser.wait_for_text(".toast", "Password changed").await;
    browser.click(".account").await;
    browser.click("summary").await;
    browser.fill("#password-delete", "another password").await;
    browser.press("dialog", "Delete account and keys").await;
    browser.wait_for_text(".lead", "Your account and its keys have been deleted.").await;
}

#[tokio::test]
async fn closed_sign_up_shows_sign_in_instead() {
    let Some(browser) = Browser::start().await else { return };
    let stack = Stack::start_with(&[], &["--signup", "off"]).await;
    browser.goto(&format!("{}/#sign-up", stack.dashboard_url)).await;
    browser.wait_for_text("h1", "Sign in").await;
    browser.wait_for_text(".alternative", "Sign-up is closed. Ask the operator for an account.").await;
}
