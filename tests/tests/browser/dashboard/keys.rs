//! API keys on the dashboard page: the limit of ten, state changes, store outage.

use quota_client::wire::{NewKey, Scope};
use testkit::smtp::SmtpServer;
use testkit::wait::eventually_ok;

use super::stack::{PASSWORD, Stack};
use crate::browser::{Appearance, Browser, WAIT_TIMEOUT};

/// Creates keys through quota-svc, so that the page does not know of them yet.
async fn create_keys(stack: &Stack, login: &str, names: &[&str]) {
    let quota = stack.quotas[0].client();
    let account = quota.find_account(login).await.unwrap().unwrap();
    for name in names {
        let key = NewKey::new(name, Scope::Geo);
        quota.create_key(&account.id, &key).await.unwrap();
    }
}

share_browser!(
    owner_manages_keys,
    Browser::start(),
    Stack::start(),
    [
        eleventh_key_is_rejected,
        key_can_be_renamed_deactivated_and_reactivated,
        webhook_is_saved_tested_and_its_error_is_shown,
        store_outage_shows_warning_until_recovery
    ]
);

async fn webhook_is_saved_tested_and_its_error_is_shown(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "hopper").await;
    browser.click(".account").await;
    browser.fill("#webhook-url", "https://10.0.0.1/").await;
    browser.press("dialog", "Save webhook").await;
    browser.wait_for_text(".webhook .problem", "The webhook's host is not a public address.").await;
    browser.fill("#webhook-url", "https://localhost/hook").await;
    browser.click(".webhook [value='key.expiring']").await;
    browser.press("dialog", "Save webhook").await;
    browser.wait_for_text("#webhook-secret-text", "whsec_").await;
    browser.wait_for_text(".webhook [role=status]", "Webhook saved.").await;
    let muted = ".webhook [type=checkbox]:not(:checked)";
    assert_eq!(browser.eval(&format!("document.querySelector('{muted}').value")).await, "key.expiring");
    assert_eq!(browser.count(muted).await, 1, "the other kinds are sent");
    browser.check_axe("webhook").await;
    browser.screenshot("webhook").await;
    browser.press("dialog", "Send a test event").await;
    let failed = "Not delivered: the webhook's host is not a public address.";
    browser.wait_for_text(".webhook [role=status]", failed).await;
    create_keys(stack, "hopper", &["Linked"]).await;
    let quota = stack.quotas[0].client();
    let account = quota.find_account("hopper").await.unwrap().unwrap();
    let key = quota.keys(&account.id).await.unwrap().keys.remove(0);
    browser.goto("about:blank").await;
    browser.goto(&format!("{}/#/keys/{}", stack.dashboard_url, key.id)).await;
    browser.wait_for_focus("H1 Linked").await;
    browser.wait_for_value("document.title", "Linked · IP Lookup").await;
}

/// The form for a forgotten password, and the mail address in the account drawer.
#[tokio::test]
async fn mail_address_is_verified_and_a_forgotten_password_reset() {
    let Some(browser) = Browser::start().await else { return };
    let Some(server) = SmtpServer::start("smtps").await else { return };
    let flags = server.flags();
    let stack = Stack::start_with_mail(&flags.each_ref().map(String::as_str), server.trust()).await;
    stack.sign_up(&browser, "katherine").await;
    browser.click(".account").await;
    browser.fill("#mail-address", "katherine@example.org").await;
    browser.fill("#mail-password", PASSWORD).await;
    browser.press("dialog", "Save mail address").await;
    browser.wait_for_text(".mail [role=status]", "Check your inbox for the link.").await;
    browser.check_axe("mail").await;
    browser.screenshot("mail").await;
    browser.press("dialog", "Save and send the link again").await;
    server.wait_for(2).await;
    browser.set_appearance(Appearance { dark: true, phone: true }).await;
    browser.check_axe("mail, dark").await;
    browser.check_fits(360, "mail").await;
    browser.screenshot("mail-dark-phone").await;
    let link = format!("{}/#verify-mail=", stack.dashboard_url);
    let token = server.wait_for(2).await.after(&link);
    browser.goto("about:blank").await;
    browser.goto(&format!("{link}{token}")).await;
    browser.wait_for_text("#notices", "Mail address verified.").await;
    browser.wait_for_value("location.hash", "").await;
    browser.click(".account").await;
    browser.wait_for_text("#mail-address-hint", "Verified.").await;
    browser.goto("about:blank").await;
    browser.set_appearance(Appearance { dark: false, phone: false }).await;
    browser.goto(&stack.dashboard_url).await;
    browser.press("header", "Sign out").await;
    browser.click(".forgotten a").await;
    browser.wait_for_text("h1", "Forgot your password?").await;
    browser.fill("#login", "katherine").await;
    browser.press(".sign-in", "Send the link").await;
    browser.wait_for_text(".sign-in [role=status]", "a link is on its way").await;
    browser.check_axe("forgot-password").await;
    browser.screenshot("forgot-password").await;
    let link = format!("{}/#set-password=", stack.dashboard_url);
    let token = server.wait_for(3).await.after(&link);
    browser.goto(&format!("{link}{token}")).await;
    browser.wait_for_text("h1", "Set your password").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

async fn eleventh_key_is_rejected(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "ada").await;
    browser.wait_for_text(".empty", "No keys yet").await;
    browser.screenshot("empty").await;
    // The dialog is open already when ten keys, created outside of this page, use up the limit.
    browser.press(".title", "Create key").await;
    browser.fill("#key-name", "one too many").await;
    browser.screenshot("create").await;
    create_keys(stack, "ada", &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]).await;
    browser.press("dialog", "Create key").await;
    browser
        .wait_for_text(
            "dialog .problem",
            "You have reached the limit of 10 keys per account, expired ones included.",
        )
        .await;
    let problem = browser.text("dialog .problem").await;
    assert!(!problem.contains("Request ID"), "only failures of the service have an ID to report: {problem}");
    browser.screenshot("key-limit").await;
    browser.press("dialog", "Cancel").await;
    browser.wait_for_text(".key-count", "10 of 10 keys").await;
    assert!(!browser.find(".title .primary").await.is_enabled().await.unwrap());
    assert_eq!(browser.count(".rows li").await, 10);
    stack.open_key(browser, "a").await;
    browser.press(".key-page", "Delete").await;
    browser.screenshot("delete").await;
    browser.press("dialog", "Delete key").await;
    browser.wait_for_text(".key-count", "9 of 10 keys").await;
    assert!(browser.find(".title .primary").await.is_enabled().await.unwrap());
}

async fn key_can_be_renamed_deactivated_and_reactivated(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "grace").await;
    stack.create_key(browser, "<b>Bold</b>").await;
    stack.open_key(browser, "<b>Bold</b>").await;
    browser.press(".key-page", "Edit").await;
    browser.fill("#key-name", "Checkout").await;
    browser.press("dialog", "Save").await;
    browser.wait_for_text("h1", "Checkout").await;
    browser.press(".key-page", "Deactivate").await;
    browser.screenshot("deactivate").await;
    browser.press("dialog", "Deactivate").await;
    browser.wait_for_text(".badge", "Inactive").await;
    browser.press(".key-page", "Reactivate").await;
    browser.press("dialog", "Reactivate").await;
    browser.wait_for_text(".badge", "Active").await;
    browser.wait_for_text(".events li:nth-child(1)", "Reactivated").await;
    browser.wait_for_text(".events li:nth-child(3)", "Renamed").await;
    browser.screenshot("events").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

async fn store_outage_shows_warning_until_recovery(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "alan").await;
    stack.create_key(browser, "Production").await;
    stack.redis.freeze();
    browser.wait_for_text(".warning", "Showing the last known numbers.").await;
    assert_eq!(browser.count(".rows li").await, 1, "the last known keys stay visible");
    let warning = browser.text(".warning").await;
    let request_id = warning.rsplit_once(" Request ID: ").map(|(_, id)| id.len());
    assert_eq!(request_id, Some(16), "{warning}");
    browser.screenshot("store-outage").await;
    stack.redis.thaw();
    eventually_ok(WAIT_TIMEOUT, "the warning disappears", async || {
        let text = browser.eval("document.querySelector('.warning').textContent").await;
        if text == "" { Ok(()) } else { Err(text.to_string()) }
    })
    .await;
}
