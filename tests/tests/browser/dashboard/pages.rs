//! The dashboard page of an account with 30 days of usage, in the light and in the dark theme. Also the dashboard's
//! Swagger page.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quota_client::wire::{
    DayUsage, ExportedAccount, ExportedKey, ImportRequest, KeyState, NewKey, Scope, StoredAccount,
};
use serde_json::json;
use thirtyfour::{Key, TypingData};

use super::stack::Stack;
use crate::browser::{Appearance, Browser};

const MS_PER_DAY: i64 = 86_400_000;

share_browser!(
    pages_show_usage_themes_and_documents,
    Browser::start(),
    Stack::start_with(&[], &["--attribution", "IP Geolocation by DB-IP=https://db-ip.com"]),
    [chart_shows_30_days_of_usage, dark_theme_is_applied, swagger_page_loads_without_internet]
);

async fn chart_shows_30_days_of_usage(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "ada@example.org").await;
    import(stack, "ada@example.org").await;
    browser.wait_for_text(".key-count", "4 of 10 keys").await;
    browser.find(".row:nth-child(4) .month").await;
    // What needs attention is first.
    let order = "[...document.querySelectorAll('.rows li')].map(row => row.innerText.split('\\n')[0])";
    let expected = ["Nightly import", "Checkout fraud check", "Production website", "Old laptop"];
    assert_eq!(browser.eval(order).await, json!(expected));
    browser.wait_for_text(".row:nth-child(1) .last-used", "today").await;
    let last = browser.text(".row:nth-child(4) .last-used").await;
    assert!(!last.contains("today") && last.ends_with(|c: char| c.is_ascii_digit()), "a day: {last}");
    browser.wait_for_text(".totals", "At limit").await;
    browser.wait_for_text(".bottom", "IP Geolocation by DB-IP").await;
    browser.screenshot("busy").await;
    stack.open_key(browser, "Checkout fraud check").await;
    browser.wait_for_text(".badge", "At limit").await;
    browser.wait_for_text(".today .hint", "Daily limit reached").await;
    browser.click(".back").await;
    stack.open_key(browser, "Nightly import").await;
    browser.wait_for_text(".pause", "2 hours ago").await;
    browser.click(".back").await;
    stack.open_key(browser, "Production website").await;
    browser.wait_for_text(".today-text", &format!("{} of 10,000", thousands(used(0, 0)))).await;
    assert_eq!(browser.count(".bar").await, 30);
    let total: u32 = (0..30).map(|ago| used(0, ago)).sum();
    let label = browser.find(".month").await.attr("aria-label").await.unwrap().unwrap();
    assert!(label.replace(',', "").contains(&format!("{total} in total")), "{label}");
    browser.wait_for_text(".axis", "4,000").await;

    // The value of a day, by keyboard, pointer and touch.
    let wait_for_day = async |ago: u32| {
        let value = format!(": {} requests", thousands(used(0, ago)));
        browser.wait_for_text("figcaption", &value).await;
        let read = browser.find(".days").await.attr("aria-valuetext").await.unwrap().unwrap();
        assert!(read.ends_with(&value), "what a screen reader says: {read}");
    };
    wait_for_day(0).await;
    browser.find(".days").await.focus().await.unwrap();
    browser.type_keys(TypingData::from(Key::Left) + Key::Left).await;
    wait_for_day(2).await;
    browser.type_keys(Key::Home).await;
    wait_for_day(29).await;
    let point = "(() => { const box = document.querySelector('.days').getBoundingClientRect(); \
                 return [box.left + box.width * 10.5 / 30, box.top + 20, box.left + box.width * 20.5 / 30]; })()";
    let point = browser.eval(point).await;
    let [x, y, touched] = [0, 1, 2].map(|i: usize| point[i].as_f64().unwrap() as i64);
    browser.driver.action_chain().move_to(x, y).perform().await.unwrap();
    wait_for_day(19).await;
    let touch = |kind: &str, points: serde_json::Value| json!({"type": kind, "touchPoints": points});
    let at = json!([{"x": touched, "y": y}]);
    browser.devtools("Input.dispatchTouchEvent", touch("touchStart", at)).await;
    browser.devtools("Input.dispatchTouchEvent", touch("touchEnd", json!([]))).await;
    wait_for_day(9).await;
    browser.screenshot("key").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

async fn dark_theme_is_applied(browser: &Browser, stack: &Stack) {
    browser.set_appearance(Appearance { dark: true, phone: false }).await;
    browser.goto(&stack.dashboard_url).await;
    browser.wait_for_text("h1", "Sign in").await;
    browser.screenshot("dark-sign-in").await;
    stack.sign_up(browser, "grace@example.org").await;
    import(stack, "grace@example.org").await;
    browser.find(".row:nth-child(4) .month").await;
    browser.screenshot("dark-busy").await;
    let background = browser.eval("getComputedStyle(document.body).backgroundColor").await;
    assert_eq!(background, "rgb(13, 16, 21)");
}

async fn swagger_page_loads_without_internet(browser: &Browser, stack: &Stack) {
    browser.goto(&format!("{}/swagger", stack.dashboard_url)).await;
    browser.wait_for_text(".swagger-ui .info", "IP lookup dashboard").await;
    browser.wait_for_text(".swagger-ui", "/api/v1/keys/{id}/resume").await;
    browser.screenshot("swagger").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

/// Deterministic fake usage of a key on a day.
fn used(key: u32, days_ago: u32) -> u32 {
    match key {
        0 => 1_200 + (days_ago * 977 + 311) % 2_900,
        1 => {
            if days_ago == 0 {
                10_000
            } else {
                4_000 + (days_ago * 1_733) % 5_500
            }
        }
        2 => (days_ago * 571) % 800 + 40,
        _ => {
            if days_ago > 18 {
                150 + (days_ago * 37) % 90
            } else {
                0
            }
        }
    }
}

/// Imports four keys with usage into the account.
async fn import(stack: &Stack, login: &str) {
    let (id, days) = id_and_days(stack, login).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis() as i64;
    let hours_ago = |hours: i64| now - hours * 3_600_000 - 60_000;
    let definitions = [
        ("Production website", Scope::Full, KeyState::Active, hours_ago(900)),
        ("Checkout fraud check", Scope::Geo, KeyState::Active, hours_ago(700)),
        ("Nightly import", Scope::Geo, KeyState::Paused, hours_ago(2)),
        ("Old laptop", Scope::Ip, KeyState::Inactive, hours_ago(432)),
    ];
    let keys = definitions.iter().zip(0..).map(|((name, scope, state, since), i)| ExportedKey {
        // In the account's shard.
        sha256: format!("{}{i:02x}{}", &id[..30], "0".repeat(32)),
        hint: format!("ipl_Ab{i}d…wx{i}z"),
        settings: NewKey::new(name, *scope).settings,
        state: *state,
        state_since: *since,
        created_at: now - (40 - i64::from(i)) * MS_PER_DAY,
        daily_limit: None,
        successor: None,
        usage: usage(i, &days),
    });
    let account = StoredAccount::new(login.to_owned(), None, now);
    let account = ExportedAccount { account, keys: keys.collect() };
    let report = stack.quotas[0].client().import(&ImportRequest { accounts: vec![account] }).await.unwrap();
    assert_eq!(report.keys_created, 4, "{report:?}");
}

/// The account's ID, and the last 31 days in the store's format, today first. Reads them from the usage of a temporary key.
async fn id_and_days(stack: &Stack, login: &str) -> (String, Vec<String>) {
    let quota = stack.quotas[0].client();
    let account = quota.find_account(login).await.unwrap().expect("the account exists");
    let key = NewKey::new("probe", Scope::Ip);
    let id = quota.create_key(&account.id, &key).await.unwrap().key.id;
    let days = quota.usage(&id, None).await.unwrap().days;
    quota.delete_key(&id, None).await.unwrap();
    (account.id, days.into_iter().rev().map(|day| day.day).collect())
}

fn usage(key: u32, days: &[String]) -> Vec<DayUsage> {
    let days = days.iter().zip(0..).map(|(day, ago)| DayUsage { day: day.clone(), requests: used(key, ago) });
    days.filter(|day| day.requests > 0).collect()
}

fn thousands(number: u32) -> String {
    if number < 1_000 { number.to_string() } else { format!("{},{:03}", number / 1_000, number % 1_000) }
}
