//! The pages of admins, and what a suspended owner sees.

use quota_client::wire::{AccountAction, AccountChange, NewAccount, NewKey, Scope};
use thirtyfour::{Key, TypingData};

use super::stack::Stack;
use crate::browser::{Appearance, Browser};

share_browser!(
    admin_manages_accounts,
    Browser::start(),
    Stack::start(),
    [admin_suspends_and_restores_with_the_keyboard, admin_pages_have_no_violation_and_fit_a_phone]
);

/// Signs up as an admin, and creates the account of an owner with a key. Returns the owner's ID and key.
async fn prepare(browser: &Browser, stack: &Stack, admin: &str, owner: &str) -> (String, String) {
    let quota = stack.quotas[0].client();
    stack.sign_up(browser, admin).await;
    let admin = quota.find_account(admin).await.unwrap().unwrap().id;
    quota.change_account(&admin, &AccountChange::new(AccountAction::MakeAdmin)).await.unwrap();
    let new = NewAccount { login: owner.to_owned(), credential: None };
    let account = quota.create_account(&new).await.unwrap().id;
    let secret = quota.create_key(&account, &NewKey::new("Production", Scope::Full)).await.unwrap().secret;
    browser.driver.refresh().await.unwrap();
    (account, secret)
}

async fn status(stack: &Stack, secret: &str) -> u16 {
    let request = testkit::http::client().get(format!("{}/api/v1/ip", stack.lookup_url));
    request.bearer_auth(secret).send().await.unwrap().status().as_u16()
}

async fn admin_suspends_and_restores_with_the_keyboard(browser: &Browser, stack: &Stack) {
    let (account, secret) = prepare(browser, stack, "root@example.org", "grace@example.org").await;
    assert_eq!(status(stack, &secret).await, 200);
    let link = browser.find("header a[href='#/admin']").await;
    link.send_keys(TypingData::from(Key::Enter)).await.unwrap();
    browser.wait_for_focus("H1 Admin").await;
    browser.wait_for_text(".settings", "built").await;
    browser.press(".count", "Count").await;
    browser.wait_for_text(".settings", "1 active, 0 paused, 0 inactive; 1 requests today").await;
    browser.fill("#find", "nobody@example.org").await;
    browser.type_keys(Key::Enter).await;
    browser.wait_for_text("main", "No such account.").await;
    browser.fill("#find", "GRACE@example.org").await;
    browser.type_keys(Key::Enter).await;
    browser.wait_for_value("document.querySelectorAll('.account-row').length", 1).await;
    let row = browser.find(".account-row a").await;
    row.send_keys(TypingData::from(Key::Enter)).await.unwrap();
    browser.wait_for_focus("H1 grace@example.org").await;
    browser.press(".actions", "Suspend").await;
    browser.wait_for_focus("INPUT ").await;
    browser.type_keys("Too many complaints").await;
    browser.type_keys(Key::Enter).await;
    browser.wait_for_text(".pause", "Too many complaints").await;
    assert_eq!(status(stack, &secret).await, 403);
    browser.wait_for_text(".events", "By admin root@example.org").await;
    browser.press(".actions", "Restore").await;
    browser.press("dialog", "Restore").await;
    browser.wait_gone(".pause").await;
    let allowed = async || (status(stack, &secret).await == 200).then_some(());
    testkit::wait::eventually(testkit::lookup::WAIT_TIMEOUT, "the key works again", allowed).await;
    browser.click(".account-row a").await;
    browser.press(".actions", "Set daily limit").await;
    browser.fill("#limit", "7").await;
    browser.press("dialog", "Save").await;
    browser.wait_for_text(".today-text", "of 7").await;
    browser.goto(&format!("{}/#/admin/accounts/{account}", stack.dashboard_url)).await;
    browser.press(".actions", "Reset password").await;
    browser.press("dialog", "Create the link").await;
    browser.wait_for_text("#password-link", "/#set-password=").await;
    browser.click("dialog .icon-button").await;
    browser.press(".actions", "Delete").await;
    browser.fill("#delete-login", "somebody else").await;
    browser.press("dialog", "Delete account").await;
    browser.wait_for_text("dialog .problem", "not the login").await;
    browser.fill("#delete-login", "grace@example.org").await;
    browser.press("dialog", "Delete account").await;
    browser.wait_for_focus("H1 Admin").await;
    assert_eq!(status(stack, &secret).await, 401);
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

async fn admin_pages_have_no_violation_and_fit_a_phone(browser: &Browser, stack: &Stack) {
    let (account, _) = prepare(browser, stack, "admin-with-a-long-name@example.org", "linus").await;
    let quota = stack.quotas[0].client();
    let reason = Some("Too many complaints about automated requests".to_owned());
    let change = AccountChange { action: AccountAction::Suspend, reason };
    quota.change_account(&account, &change).await.unwrap();
    let key = quota.keys(&account).await.unwrap().keys[0].id.clone();
    for (dark, phone) in [(false, false), (true, true)] {
        browser.set_appearance(Appearance { dark, phone }).await;
        for (path, heading) in [
            ("admin", "Admin".to_owned()),
            (&*format!("admin/accounts/{account}"), "linus".to_owned()),
            (&*format!("admin/keys/{key}"), "Production".to_owned()),
        ] {
            browser.goto(&format!("{}/#/{path}", stack.dashboard_url)).await;
            browser.wait_for_text("h1", &heading).await;
            if path == "admin" {
                browser.wait_for_text(".settings", "built").await;
                browser.find(".account-row").await;
            }
            browser.check_axe(path).await;
            let name = format!("admin-{}", heading.to_lowercase());
            match phone {
                true => browser.check_fits(360, &name).await,
                false => browser.screenshot(&name).await,
            }
        }
    }
    let own = quota.find_account("admin-with-a-long-name@example.org").await.unwrap().unwrap().id;
    quota.change_account(&own, &change).await.unwrap();
    browser.goto(&format!("{}/?reload#/", stack.dashboard_url)).await;
    browser.wait_for_text(".pause", "Your account was suspended").await;
    browser.check_axe("suspended").await;
    browser.check_fits(360, "suspended").await;
    browser.press(".title", "Create key").await;
    browser.fill("#key-name", "x").await;
    browser.press("dialog", "Create key").await;
    browser.wait_for_text("dialog .problem", "Your account is suspended").await;
}
