//! Sign-up, sign-in, sign-out, password change and account deletion.

use testkit::process::{TOKEN_FILE, binary, token_file};
use thirtyfour::prelude::*;

use super::stack::{PASSWORD, Stack};
use crate::browser::{Appearance, Browser};

share_browser!(
    owner_signs_in_and_out,
    Browser::start(),
    Stack::start(),
    [
        wrong_password_shows_error_and_correct_one_signs_in,
        keys_can_be_managed_by_keyboard_alone,
        sign_out_in_another_tab_ends_the_session,
        password_change_and_account_deletion_work,
        link_sets_a_password_once
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
    // The link to the new key has the focus.
    browser.wait_for_focus("A by keyboard").await;
    type_keys(TypingData::from(Key::Enter)).await;
    browser.wait_for_text(".key-page .scope", "geo").await;
    browser.find("[data-action=delete]").await.focus().await.unwrap();
    type_keys(TypingData::from(Key::Enter)).await;
    browser.wait_for_text("dialog h2", "permanently?").await;
    // The dangerous button is not the default: Enter would cancel.
    assert_eq!(browser.eval("document.activeElement.textContent").await, "Cancel");
    type_keys(TypingData::from(Key::Escape)).await;
    browser.wait_gone("dialog").await;
    browser.find(".back").await.focus().await.unwrap();
    type_keys(TypingData::from(Key::Enter)).await;
    browser.wait_for_focus("A by keyboard").await;
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

/// Runs `dashboard-api invite` or `reset-password --link`, and returns the link.
async fn link(stack: &Stack, args: &[&str]) -> String {
    let mut command = tokio::process::Command::new(binary("dashboard-api"));
    command.args(args).args(["--public-url", &stack.dashboard_url, "--quota-url", stack.quotas[0].url()]);
    let output = command.args(["--output", "json"]).env(TOKEN_FILE, token_file()).output().await.unwrap();
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    printed["link"].as_str().unwrap().to_owned()
}

async fn link_sets_a_password_once(browser: &Browser, stack: &Stack) {
    let invitation = link(stack, &["invite", "edsger"]).await;
    browser.goto(&invitation).await;
    browser.wait_for_text("h1", "Set your password").await;
    browser.wait_for_value("document.activeElement.id", "password").await;
    browser.wait_for_value("location.href", format!("{}/", stack.dashboard_url)).await;
    assert_eq!(browser.count("#login").await, 0);
    browser.check_axe("set-password").await;
    browser.screenshot("set-password").await;
    browser.type_keys(TypingData::from("password1") + Key::Enter).await;
    browser.wait_for_text(".problem", "This password is one of the most common ones").await;
    browser.fill("#password", "chosen by edsger").await;
    browser.press(".sign-in", "Set password").await;
    browser.wait_for_text(".lead", "Password set. Sign in.").await;
    browser.wait_for_value("document.activeElement.id", "login").await;
    browser.fill("#login", "edsger").await;
    browser.fill("#password", "chosen by edsger").await;
    browser.press(".sign-in", "Sign in").await;
    browser.wait_for_text("h1", "API keys").await;

    // In the same tab, a link changes only the fragment, so the page is not loaded again.
    browser.goto(&invitation).await;
    browser.wait_for_text("h1", "Set your password").await;
    browser.set_appearance(Appearance { dark: true, phone: true }).await;
    browser.fill("#password", "chosen by another").await;
    browser.press(".sign-in", "Set password").await;
    let message = "This link is no longer valid. Request a new one.";
    browser.wait_for_text(".problem", message).await;
    browser.check_axe("invalid link, dark").await;
    browser.check_fits(360, "invalid link").await;
    browser.screenshot("invalid-link").await;
    browser.click(".alternative a").await;
    browser.wait_for_text("h1", "Sign in").await;

    // A link opens its form even if the browser has a session.
    browser.goto("about:blank").await;
    browser.goto(&link(stack, &["reset-password", "edsger", "--link"]).await).await;
    browser.wait_for_text("h1", "Set your password").await;
}

#[tokio::test]
async fn closed_sign_up_shows_sign_in_instead() {
    let Some(browser) = Browser::start().await else { return };
    let stack = Stack::start_with(&[], &["--signup", "off"]).await;
    browser.goto(&format!("{}/#sign-up", stack.dashboard_url)).await;
    browser.wait_for_text("h1", "Sign in").await;
    browser.wait_for_text(".alternative", "Sign-up is closed. Ask the operator for an account.").await;
}
