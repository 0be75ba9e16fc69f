//! The home page in a real browser: both addresses, the demo, without JavaScript, on small screens, and accessibility.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use crate::browser::{Appearance, Browser, WAIT_TIMEOUT};
use serde_json::json;
use tempfile::{NamedTempFile, TempDir};
use testkit::mmdb::sample;
use testkit::ports::ReservedPort;
use testkit::process::Service;
use testkit::quota::{Quota, StoreChoice};
use testkit::wait::eventually;

const V4_HOST: &str = "ipv4.ip.example";
const V6_HOST: &str = "ipv6.ip.example";
const NO_V6_HOST: &str = "--host-resolver-rules=MAP ip.example 127.0.0.1,MAP ipv6.ip.example ~NOTFOUND";
const HOSTS: &str = "--host-resolver-rules=MAP ip.example 127.0.0.1,MAP ipv4.ip.example 127.0.0.1,\
                     MAP ipv6.ip.example [::1],MAP evil.example 127.0.0.1";

/// lookup-svc with a home page that also has an IPv4-only and an IPv6-only host name, and its quota-svc.
struct Site {
    /// URL of the home page. The browser maps its host name to 127.0.0.1.
    url: String,
    port: u16,
    quota: Quota,
    lookup: Service,
    _port: ReservedPort,
    _sample: NamedTempFile,
    _dir: TempDir,
}

impl Site {
    async fn start(demo_limit: &str) -> Self {
        Self::start_with(demo_limit, &[]).await
    }

    /// Starts lookup-svc with more flags.
    async fn start_with(demo_limit: &str, more: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = StoreChoice::File(dir.path().join("store"));
        let quota = Quota::start_with(store, &["--demo-limit", demo_limit]).await;
        quota.wait_ready(Duration::from_secs(20)).await;
        let reserved = ReservedPort::new();
        let port = reserved.number();
        let url = format!("http://ip.example:{port}");
        let sample = sample::file();
        let listen = format!("[::]:{port}");
        let flags = ["--listen", &listen, "--admin-listen", "127.0.0.1:0", "--quota-url", quota.url()];
        let hosts = ["--base-url", &url, "--ipv4-host", V4_HOST, "--ipv6-host", V6_HOST];
        let geo = ["--geo-db", sample.path().to_str().unwrap(), "--trusted-proxies", "127.0.0.1,::1"];
        // A busy machine must not turn a 200 into a 500.
        let timeouts = ["--quota-deadline", "10s", "--request-timeout", "12s"];
        let flags = [&flags[..], &hosts, &geo, &timeouts, more].concat();
        let mut lookup = Service::spawn("lookup-svc", &flags, &[]);
        lookup.listen_addr("lookup").await;
        Self { url, port, quota, lookup, _port: reserved, _sample: sample, _dir: dir }
    }

    async fn open(&self, browser: &Browser) {
        browser.goto(&format!("{}/", self.url)).await;
        browser.wait_for_text("h1", "Your IP address").await;
    }
}

/// Makes the browser send `client` as the client address, as a trusted proxy would.
async fn set_client(browser: &Browser, client: &str) {
    browser.devtools("Network.enable", json!({})).await;
    browser.devtools("Network.setExtraHTTPHeaders", json!({"headers": {"X-Forwarded-For": client}})).await;
}

/// Checks that an element, which appears below the others, is visible without scrolling.
async fn check_in_view(browser: &Browser, id: &str) {
    let bottom = format!("document.getElementById('{id}').getBoundingClientRect().bottom <= innerHeight");
    assert_eq!(browser.eval(&bottom).await, true, "{id}");
}

share_browser!(
    home_page_shows_addresses_and_is_accessible,
    Browser::start_with(&[HOSTS]),
    Site::start("20"),
    [
        page_shows_both_addresses_and_other_origins_cannot_read_it,
        page_without_javascript_has_everything_but_buttons,
        page_fits_320_pixels_and_axe_finds_no_violation,
        tab_key_reaches_main_controls_and_copy_button_copies
    ]
);

async fn page_shows_both_addresses_and_other_origins_cannot_read_it(browser: &Browser, site: &Site) {
    site.open(browser).await;
    assert_eq!(browser.text("#own").await, "127.0.0.1");
    browser.wait_for_text("#other", "::1").await;
    browser.wait_for_text(".location", "127.0.0.1 is a loopback address").await;
    browser.screenshot("home-both").await;
    // At the IPv6 host, the page shows the IPv6 address as the visitor's own and the IPv4 address as the other one.
    browser.goto(&format!("http://{V6_HOST}:{}/", site.port)).await;
    browser.wait_for_text("#own", "::1").await;
    browser.wait_for_text("#other", "127.0.0.1").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());

    // A page of another origin, here one without a content security policy, gets the demo but not the home page.
    browser.goto(&format!("http://evil.example:{}/robots.txt", site.port)).await;
    let read = |path: &str| {
        format!(
            "const done = arguments[0]; fetch('{}{path}').then(r => done(r.status), () => done('blocked'));",
            site.url
        )
    };
    for (path, want) in [("/", json!("blocked")), ("/api/v1/ip/demo", json!(200))] {
        let result = browser.driver.execute_async(read(path), vec![]).await.unwrap();
        assert_eq!(result.json(), &want, "{path}");
    }
}

#[tokio::test]
async fn missing_ipv6_used_up_demo_and_failed_requests_are_explained() {
    let Some(browser) = Browser::start_with(&[NO_V6_HOST]).await else { return };
    let mut site = Site::start("2").await;
    set_client(&browser, "216.160.83.7").await;
    site.open(&browser).await;
    browser.wait_for_text(".addresses", "you seem to have no IPv6 connection").await;
    browser.wait_for_text(".place", "San Francisco, United States").await;
    browser.find("circle.dot").await;
    browser.check_axe("no IPv6").await;
    for left in ["1 of 2 demo requests left", "0 of 2 demo requests left"] {
        browser.click("#try").await;
        browser.wait_for_text("#quota", left).await;
        browser.wait_for_text("#json", "\"ip\": \"216.160.83.7\"").await;
    }
    check_in_view(&browser, "result").await;
    browser.check_axe("response").await;
    browser.screenshot("home").await;
    browser.click("#try").await;
    browser.wait_for_text("#problem", "Today's demo quota of 2 requests is used up. It resets at ").await;
    browser.wait_for_text("#problem a", "Create a key").await;
    assert_eq!(browser.eval("document.activeElement.id").await, "try", "the focus stays");
    check_in_view(&browser, "problem").await;
    browser.check_axe("demo used up").await;
    browser.screenshot("home-used-up").await;

    site.quota.service.kill();
    browser.click("#try").await;
    browser.wait_for_text("#problem", "The request failed: ").await;
    site.lookup.kill();
    browser.click("#try").await;
    browser.wait_for_text("#problem", "The service could not be reached").await;
}

#[tokio::test]
async fn demo_response_without_headers_shows_no_quota() {
    let Some(browser) = Browser::start_with(&[HOSTS]).await else { return };
    let site = Site::start("1").await;
    site.open(&browser).await;
    // Like a proxy that removes all headers.
    let strip = "(() => { const all = fetch; window.fetch = async (...request) => { const response = await all(...request); \
                 return new Response(await response.text(), { status: response.status }); }; })()";
    browser.eval(strip).await;
    browser.click("#try").await;
    browser.wait_for_text("#json", "\"ip\": \"127.0.0.1\"").await;
    assert_eq!(browser.eval("document.getElementById('quota').textContent").await, "", "nothing is known");
    browser.click("#try").await;
    browser.wait_for_text("#problem", "Today's demo quota is used up. Create a key").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

async fn page_without_javascript_has_everything_but_buttons(browser: &Browser, site: &Site) {
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
    set_client(browser, "216.160.83.7").await;
    site.open(browser).await;
    assert_eq!(browser.text("#own").await, "216.160.83.7");
    for (css, text) in [
        (".place", "US San Francisco, United States"),
        (".location", "America/Los_Angeles"),
        (".column", "AS64497"),
        ("#curl-demo", "/api/v1/ip/demo"),
        (".try", "Open the demo response"),
    ] {
        browser.wait_for_text(css, text).await;
    }
    let shown = "[...document.querySelectorAll('button')].filter(button => button.offsetParent).length";
    assert_eq!(browser.eval(shown).await, 0);
    browser.screenshot("home-without-script").await;
    browser.click(".addresses a").await;
    browser.wait_for_text("#own", "216.160.83.7").await;
    assert_eq!(browser.eval("location.hostname").await, V6_HOST);
    browser.driver.back().await.unwrap();
    browser.click(".try noscript a").await;
    browser.wait_for_text("body", "\"city\":\"San Francisco\"").await;
}

async fn page_fits_320_pixels_and_axe_finds_no_violation(browser: &Browser, site: &Site) {
    for dark in [false, true] {
        browser.set_appearance(Appearance { dark, phone: false }).await;
        for client in ["127.0.0.1", "2a02:cf40:ffff:ffff:ffff:ffff:ffff:ffff", "89.160.20.9"] {
            browser.set_screen(320, 740).await;
            set_client(browser, client).await;
            site.open(browser).await;
            assert_eq!(browser.text("#own").await, client);
            browser.wait_gone("[data-url] a").await;
            browser.click("#try").await;
            browser.find("#json").await;
            let state = format!("home-{}-{}", if dark { "dark" } else { "light" }, client.replace(':', "-"));
            browser.check_fits(320, &state).await;
            browser.check_axe(&state).await;
        }
        browser.devtools("Emulation.clearDeviceMetricsOverride", json!({})).await;
        site.open(browser).await;
        browser.check_axe("wide").await;
        browser.screenshot(if dark { "home-dark" } else { "home-light" }).await;
    }
}

async fn tab_key_reaches_main_controls_and_copy_button_copies(browser: &Browser, site: &Site) {
    site.open(browser).await;
    browser.wait_for_text("#other", "::1").await;
    let body = browser.find("body").await;
    let mut reached = Vec::new();
    let controls =
        browser.eval("[...document.querySelectorAll('a, button')].filter(e => e.offsetParent).length").await;
    for _ in 0..controls.as_u64().unwrap() {
        body.send_keys(thirtyfour::Key::Tab + "").await.unwrap();
        let focused = browser
            .eval("(e => e.getAttribute('aria-label') ?? e.textContent)(document.activeElement)")
            .await;
        reached.push(focused.as_str().unwrap().trim().to_owned());
    }
    for name in [
        "Docs",
        "Dashboard",
        "Copy IPv4 address",
        "Copy IPv6 address",
        "Copy as curl, with your key",
        "Try the API",
    ] {
        assert!(reached.iter().any(|reached| reached == name), "{name} is not in {reached:?}");
    }
    // Over plain HTTP, browsers have no clipboard: the text is selected instead.
    browser.click("[data-copy=own]").await;
    let selected = async || {
        let text = browser.eval("getSelection().toString()").await;
        (text == "127.0.0.1").then_some(())
    };
    eventually(WAIT_TIMEOUT, "the address is selected", selected).await;
    browser.wait_for_text("#toast", "to copy").await;
}
