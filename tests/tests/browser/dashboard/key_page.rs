//! What keys in production need: expiry, origins, replacement, examples, and a list of ten keys at a glance.

use std::process::Command;

use e2e::documents::blocks_of;
use quota_client::wire::{KeySettings, NewKey, Scope};
use serde_json::{Value, json};
use testkit::http;

use super::stack::Stack;
use crate::browser::Browser;

share_browser!(
    keys_are_ready_for_production,
    Browser::start(),
    Stack::start(),
    [
        key_gets_expiry_and_origins_and_loses_them,
        replaced_key_stops_and_the_new_one_works,
        tiles_filter_keys_and_requests_of_a_deleted_key_stay_counted,
        ten_keys_fit_a_laptop_and_a_phone,
        examples_work_as_shown,
        restricted_key_works_on_its_own_web_page_only
    ]
);

/// Creates keys through quota-svc and returns their secrets.
async fn create_keys(stack: &Stack, login: &str, keys: Vec<NewKey>) -> Vec<String> {
    let quota = stack.quotas[0].client();
    let account = quota.find_account(login).await.unwrap().unwrap();
    let mut secrets = Vec::new();
    for key in keys {
        secrets.push(quota.create_key(&account.id, &key).await.unwrap().secret);
    }
    secrets
}

/// Status of a lookup with this key.
async fn lookup(stack: &Stack, secret: &str) -> u16 {
    let request = http::client().get(format!("{}/api/v1/ip", stack.lookup_url)).bearer_auth(secret);
    request.send().await.unwrap().status().as_u16()
}

async fn key_gets_expiry_and_origins_and_loses_them(browser: &Browser, stack: &Stack) {
    // Typing into a date field depends on the language of the browser.
    let set_day = async |day: &str| {
        let script = format!("document.querySelector('#key-expiry').value = '{day}'");
        browser.driver.execute(script, vec![]).await.unwrap();
    };
    stack.sign_up(browser, "ada").await;
    browser.press(".title", "Create key").await;
    browser.fill("#key-name", "Web").await;
    browser.click("dialog summary").await;
    browser.wait_for_text("#key-origins-hint", "not programs, which can send any origin").await;
    set_day("2099-12-30").await;
    browser.fill("#key-origins", "https://www.example.org/path").await;
    browser.press("dialog", "Create key").await;
    browser.wait_for_text("dialog .problem", "each a scheme, a host and possibly a port").await;
    browser.fill("#key-origins", "https://www.example.org\nHTTPS://Shop.example.org").await;
    browser.press("dialog", "Create key").await;
    browser.press("dialog", "I have saved it").await;
    browser.wait_for_text(".rows .expiry", "Dec 30, 2099").await;
    stack.open_key(browser, "Web").await;
    browser.wait_for_text(".settings", "Dec 30, 2099").await;
    browser.wait_for_text(".settings", "https://shop.example.org, https://www.example.org").await;

    browser.press(".key-page", "Edit").await;
    set_day("2020-01-01").await;
    browser.press("dialog", "Save").await;
    browser.wait_for_text("dialog .problem", "must be in the future").await;
    set_day("").await;
    browser.fill("#key-origins", "").await;
    browser.press("dialog", "Save").await;
    browser.wait_for_text(".settings", "Never").await;
    browser.wait_for_text(".settings", "All web pages and programs").await;
    browser.wait_for_text(".events li:nth-child(1)", "Expiry changed").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

async fn replaced_key_stops_and_the_new_one_works(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "grace").await;
    let (old, _) = stack.create_key(browser, "Web").await;
    stack.open_key(browser, "Web").await;
    browser.press(".key-page", "Replace").await;
    assert_eq!(browser.eval("document.querySelector('[name=overlap]:checked').value").await, "86400");
    browser.wait_for_value("document.activeElement.id", "overlap-86400").await;
    browser.press("dialog", "Replace key").await;
    browser.wait_for_text("#old-key", "works until").await;
    let new = browser.text("#secret").await;
    let before = browser.eval("location.hash").await;
    browser.press("dialog", "I have saved it").await;
    browser.wait_for_focus("H1 Web").await;
    browser.wait_for_value(&format!("location.hash !== {before}"), true).await;
    assert_eq!((lookup(stack, &old).await, lookup(stack, &new).await), (200, 200));

    // This time without an overlap. The older old key is deleted.
    browser.press(".key-page", "Replace").await;
    browser.click("[for=overlap-0]").await;
    browser.press("dialog", "Replace key").await;
    browser.wait_for_text("#old-key", "no longer works").await;
    let newest = browser.text("#secret").await;
    browser.press("dialog", "I have saved it").await;
    browser.wait_gone("dialog").await;
    let statuses = (lookup(stack, &old).await, lookup(stack, &new).await, lookup(stack, &newest).await);
    assert_eq!(statuses, (401, 403, 200));
    browser.click(".back").await;
    browser.click(".totals .expired").await;
    browser.wait_for_value("document.querySelectorAll('.rows li').length", 1).await;
    browser.wait_for_text(".rows .badge", "Expired").await;
    browser.click(".rows a").await;
    browser.wait_for_text(".badge", "Expired").await;
    browser.wait_for_value("document.querySelectorAll('.pause:not([hidden])').length", 0).await;
    let shown_buttons = "[...document.querySelectorAll('.actions button')].filter((b) => !b.hidden).map((b) => b.innerText).join()";
    assert_eq!(browser.eval(shown_buttons).await, "Edit,Deactivate,Delete");
    // Without its successor, it is a key of its own.
    browser.click(".facts a").await;
    browser.wait_for_text(".badge", "Active").await;
    browser.press(".key-page", "Delete").await;
    browser.press("dialog", "Delete key").await;
    browser.wait_for_text(".key-count", "1 of 10 keys").await;
    browser.click(".rows a").await;
    browser.wait_for_text(".pause:not([hidden])", "Replace it, or edit its expiry.").await;
    browser.press(".pause", "Replace key").await;
    // An overlap would not make an expired key work.
    browser.wait_for_focus("BUTTON Replace key").await;
    assert_eq!(browser.count("#overlap-0").await, 0);
    browser.press("dialog", "Replace key").await;
    browser.press("dialog", "I have saved it").await;
    browser.click(".back").await;
    // Of the two, the filter still shows the expired one.
    browser.wait_for_text(".key-count", "1 of 10 keys").await;
    browser.wait_for_text(".totals .active", "1").await;
    browser.wait_for_value("document.querySelectorAll('.rows li').length", 1).await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

async fn tiles_filter_keys_and_requests_of_a_deleted_key_stay_counted(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "alan").await;
    let (first, _) = stack.create_key(browser, "First").await;
    let (second, _) = stack.create_key(browser, "Second").await;
    for secret in [&first, &first, &second] {
        assert_eq!(lookup(stack, secret).await, 200);
    }
    browser.wait_for_text(".totals p", "3").await;
    stack.open_key(browser, "First").await;
    browser.press(".key-page", "Delete").await;
    browser.press("dialog", "Delete key").await;
    browser.wait_for_text(".key-count", "1 of 10 keys").await;
    browser.wait_for_text(".totals p", "3").await;

    browser.click(".totals .inactive").await;
    browser.wait_for_text(".empty", "No key is in this state").await;
    browser.wait_for_value("document.querySelector('.totals .inactive').ariaPressed", "true").await;
    browser.wait_for_value("document.querySelector('#announcements').textContent", "0 keys shown").await;
    browser.press(".empty", "Show all keys").await;
    browser.wait_for_focus("A Second").await;
    browser.click(".totals .active").await;
    browser.wait_for_value("document.querySelector('#announcements').textContent", "1 key shown").await;
    browser.click(".totals .active").await;
    browser.wait_for_value("document.querySelector('.totals .active').ariaPressed", "false").await;
}

async fn ten_keys_fit_a_laptop_and_a_phone(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "edsger").await;
    let name = |i| format!("Key {i} with a name of the maximum length, which is 64 characters");
    let keys: Vec<_> = (0..10).map(|i| NewKey::new(&name(i), Scope::Geo)).collect();
    create_keys(stack, "edsger", keys).await;
    let laptop = json!({"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": false});
    browser.devtools("Emulation.setDeviceMetricsOverride", laptop).await;
    browser.find(".row:nth-child(10) .month").await;
    let heights = "[innerHeight, document.documentElement.scrollHeight]";
    assert_eq!(browser.eval(heights).await, json!([800, 800]), "the page scrolls");
    browser.screenshot("ten-keys").await;
    browser.set_screen(360, 740).await;
    browser.check_fits(360, "ten-keys").await;
}

async fn examples_work_as_shown(browser: &Browser, stack: &Stack) {
    stack.sign_up(browser, "barbara").await;
    let (secret, _) = stack.create_key(browser, "Examples").await;
    stack.open_key(browser, "Examples").await;
    let mut printed = Vec::new();
    for (i, shell) in
        [&["sh", "-c"][..], &["node", "--input-type=module", "-e"], &["python3", "-c"]].iter().enumerate()
    {
        let code = browser.eval(&format!("document.querySelector('#example-{i}').textContent")).await;
        let code = code.as_str().unwrap().replace("YOUR_KEY", &secret);
        let output =
            Command::new(shell[0]).args(&shell[1..]).arg(code).env("no_proxy", "*").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        printed.push(String::from_utf8(output.stdout).unwrap());
    }
    assert!(printed.iter().all(|text| text.contains("127.0.0.1")), "{printed:?}");
    let go = browser.eval("document.querySelector('#example-3').textContent").await;
    assert!(go.as_str().unwrap().contains(&format!("\"{}/api/v1/ip\"", stack.lookup_url)), "{go}");
}

async fn restricted_key_works_on_its_own_web_page_only(browser: &Browser, stack: &Stack) {
    let own = http::serve(b"own page".to_vec()).await;
    let other = http::serve(b"page of someone else".to_vec()).await;
    stack.sign_up(browser, "tony").await;
    let restricted = KeySettings { allowed_origins: vec![own.clone()], ..KeySettings::new("Web", Scope::Ip) };
    let restricted = NewKey { settings: restricted, daily_limit: None };
    let keys = vec![restricted, NewKey::new("Programs", Scope::Ip)];
    let [restricted, unrestricted]: [String; 2] = create_keys(stack, "tony", keys).await.try_into().unwrap();
    let lookup = format!("{}/api/v1/ip", stack.lookup_url);
    let quota = format!("{}/api/v1/quota", stack.dashboard_url);
    // Status and reason, as a script on the open page sees them.
    let fetch = async |url: &str, key: &str| -> Value {
        let script = "const [url, key, done] = arguments; fetch(url, {headers: {Authorization: `Bearer ${key}`}}) \
                      .then(r => done([r.status, r.headers.get('X-Key-Reason')]), e => done(String(e)));";
        browser.driver.execute_async(script, vec![json!(url), json!(key)]).await.unwrap().json().clone()
    };
    browser.goto(&own).await;
    let [guide] = blocks_of("docs/guides/keys-in-web-pages.md", "js").try_into().unwrap();
    let guide = guide.replace("https://ip.example.org", &stack.lookup_url).replace("YOUR_KEY", &restricted);
    let twice = "const [url, done] = arguments; visitorLocation().then(visitorLocation).then(found => \
                 done([found.ip, performance.getEntriesByName(url).length]));";
    let found = browser.driver.execute_async(guide + twice, vec![json!(lookup)]).await.unwrap();
    assert_eq!(found.json(), &json!(["127.0.0.1", 1]), "the second time from the cache");
    assert_eq!(fetch(&lookup, &restricted).await, json!([200, null]));
    assert_eq!(fetch(&quota, &restricted).await, json!([200, null]));
    browser.goto(&other).await;
    assert_eq!(fetch(&lookup, &restricted).await, json!([403, "origin"]));
    assert_eq!(fetch(&quota, &restricted).await[0], 403);
    assert_eq!(fetch(&lookup, &unrestricted).await, json!([200, null]));
    assert_eq!(fetch(&quota, &unrestricted).await, json!([200, null]));
}
