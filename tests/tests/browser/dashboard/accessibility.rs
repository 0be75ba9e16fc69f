//! axe-core finds no violation in any state of the dashboard, in the light and the dark theme, and every state fits a
//! phone.

use quota_client::wire::{NewKey, Scope, StateChange};
use serde_json::json;

use super::stack::Stack;
use crate::browser::{Appearance, Browser};

share_browser!(
    axe_finds_no_violation,
    Browser::start(),
    Stack::start_with(&["--burst-limit", "3", "--daily-limit", "10"], &[]),
    [
        axe_finds_no_violation_in_light_theme,
        axe_finds_no_violation_in_dark_theme_and_pages_fit_a_phone,
        hovered_primary_button_has_sufficient_contrast_in_both_themes,
        forced_colors_keep_the_quota_bar_visible
    ]
);

async fn axe_finds_no_violation_in_light_theme(browser: &Browser, stack: &Stack) {
    check_all_states(browser, stack, "ada", false).await;
}

async fn axe_finds_no_violation_in_dark_theme_and_pages_fit_a_phone(browser: &Browser, stack: &Stack) {
    browser.set_appearance(Appearance { dark: true, phone: true }).await;
    check_all_states(browser, stack, "grace", true).await;
}

async fn hovered_primary_button_has_sufficient_contrast_in_both_themes(browser: &Browser, stack: &Stack) {
    for dark in [false, true] {
        browser.set_appearance(Appearance { dark, phone: false }).await;
        browser.goto(&stack.dashboard_url).await;
        let button = browser.find(".primary").await;
        browser.driver.action_chain().move_to_element_center(&button).perform().await.unwrap();
        browser.wait_for_value("document.querySelector('.primary').matches(':hover')", true).await;
        browser.check_axe(if dark { "hovered, dark" } else { "hovered, light" }).await;
    }
}

async fn forced_colors_keep_the_quota_bar_visible(browser: &Browser, stack: &Stack) {
    browser.goto(&stack.dashboard_url).await;
    browser.wait_for_text("h1", "Sign in").await;
    stack.sign_up(browser, "linus").await;
    create_limited_key(stack, "linus").await;
    browser.wait_for_text(".badge.limited", "At limit").await;
    for theme in ["light", "dark"] {
        let features = json!([{"name": "forced-colors", "value": "active"}, {"name": "prefers-color-scheme", "value": theme}]);
        browser.devtools("Emulation.setEmulatedMedia", json!({"features": features})).await;
        browser.screenshot(&format!("forced-colors-{theme}")).await;
        let color = |selector: &str| {
            format!("getComputedStyle(document.querySelector('{selector}')).backgroundColor")
        };
        let (level, meter) = (color(".row .level"), color(".row .meter"));
        assert_eq!(browser.eval(&format!("{level} !== {meter}")).await, true, "{theme}");
        let size = "(({width, height}) => width > 20 && height >= 4)(document.querySelector('.row .level').getBoundingClientRect())";
        assert_eq!(browser.eval(size).await, true, "{theme}");
    }
}

async fn check_all_states(browser: &Browser, stack: &Stack, login: &str, phone: bool) {
    let check = async |state: &str| {
        browser.check_axe(state).await;
        if phone {
            browser.check_fits(360, state).await;
        }
    };
    browser.block_urls(&["*/app.js"]).await;
    browser.goto(&stack.dashboard_url).await;
    browser.find(".loading").await;
    check("loading").await;
    // The error about the blocked script is expected.
    browser.console_errors().await;
    browser.block_urls(&[]).await;
    browser.goto(&stack.dashboard_url).await;
    browser.wait_for_text("h1", "Sign in").await;
    check("sign-in").await;
    stack.sign_up(browser, login).await;
    browser.wait_for_text(".empty", "No keys yet").await;
    check("empty").await;
    browser.press(".title", "Create key").await;
    check("create").await;
    browser.fill("#key-name", "Production").await;
    browser.press("dialog", "Create key").await;
    let secret = browser.text("#secret").await;
    check("created").await;
    browser.press("dialog", "I have saved it").await;

    let url = format!("{}/api/v1/ip", stack.lookup_url);
    for _ in 0..4 {
        testkit::http::client().get(&url).bearer_auth(&secret).send().await.unwrap();
    }
    create_inactive_key(stack, login).await;
    create_limited_key(stack, login).await;
    browser.wait_for_text(".badge.paused", "Paused").await;
    browser.wait_for_text(".badge.inactive", "Inactive").await;
    browser.wait_for_text(".badge.limited", "At limit").await;
    browser.find(".month").await;
    check("keys").await;
    browser.click(".totals .inactive").await;
    browser.wait_for_value("document.querySelectorAll('.rows li').length", 1).await;
    check("filter").await;
    browser.click(".totals .inactive").await;
    stack.open_key(browser, "Production").await;
    browser.wait_for_text(".events", "Paused").await;
    browser.find(".days").await;
    check("key").await;
    browser.press(".key-page", "Edit").await;
    check("edit").await;
    browser.press("dialog", "Cancel").await;
    browser.press(".key-page", "Replace").await;
    check("replace").await;
    browser.click("[for=overlap-0]").await;
    browser.press("dialog", "Replace key").await;
    browser.find("#old-key").await;
    check("replaced").await;
    browser.press("dialog", "I have saved it").await;
    browser.driver.back().await.unwrap();
    browser.wait_for_text(".badge", "Expired").await;
    check("expired").await;
    browser.press(".key-page", "Delete").await;
    check("delete").await;
    browser.press("dialog", "Cancel").await;
    browser.click(".account").await;
    browser.click("dialog summary").await;
    check("account").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    browser.click("dialog .icon-button").await;
    browser.block_urls(&["*/api/v1/*"]).await;
    browser.press("header", "Sign out").await;
    browser.find(".toast.error").await;
    check("unreachable").await;
    if phone {
        // The page ends above the toast, so that it covers no button wherever the page is scrolled.
        let [page, toast] =
            ["#app", ".toast"].map(|it| format!("document.querySelector('{it}').getBoundingClientRect()"));
        assert_eq!(browser.eval(&format!("{page}.bottom <= {toast}.top")).await, true);
    }
}

async fn create_inactive_key(stack: &Stack, login: &str) {
    let quota = stack.quotas[0].client();
    let account = quota.find_account(login).await.unwrap().unwrap();
    let key = NewKey::new("Old laptop", Scope::Ip);
    let key = quota.create_key(&account.id, &key).await.unwrap().key;
    quota.change_state(&key.id, None, StateChange::Deactivate).await.unwrap();
}

/// Creates a key and uses up its daily quota.
async fn create_limited_key(stack: &Stack, login: &str) {
    let quota = stack.quotas[0].client();
    let account = quota.find_account(login).await.unwrap().unwrap();
    let key = NewKey { daily_limit: Some(1), ..NewKey::new("Import", Scope::Ip) };
    let secret = quota.create_key(&account.id, &key).await.unwrap().secret;
    let request = testkit::http::client().get(format!("{}/api/v1/ip", stack.lookup_url));
    assert_eq!(request.bearer_auth(&secret).send().await.unwrap().status(), 200);
}
