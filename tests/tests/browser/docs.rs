//! The documentation page and Swagger UI in a real browser: search, copying, keyboard access, themes and small screens.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::json;
use testkit::lookup::Stack;
use testkit::wait::{eventually, eventually_ok};
use thirtyfour::Key;

use crate::browser::{Appearance, Browser, WAIT_TIMEOUT};

/// The visible headings of sections.
const HEADINGS: &str =
    "[...document.querySelectorAll('main h2')].filter(h => !h.hidden).map(h => h.textContent)";

async fn start() -> Stack {
    let flags = ["--daily-limit", "2500", "--burst-limit", "40", "--demo-limit", "70"];
    let stack = Stack::start(&flags, &[]).await;
    eventually(WAIT_TIMEOUT, "lookup-svc knows the limits", async || {
        let page = stack.lookup.get("/docs").send().await.ok()?.text().await.ok()?;
        page.contains("2,500 requests per day per key").then_some(())
    })
    .await;
    stack
}

async fn open_docs(browser: &Browser, stack: &Stack, appearance: Appearance) {
    browser.set_appearance(appearance).await;
    browser.goto(&format!("{}/docs", stack.lookup.url())).await;
}

async fn wait_for(browser: &Browser, expression: &str, expected: serde_json::Value) {
    eventually_ok(WAIT_TIMEOUT, format!("{expression} is {expected}"), async || {
        let value = browser.eval(expression).await;
        if value == expected { Ok(()) } else { Err(value.to_string()) }
    })
    .await;
}

share_browser!(
    docs_and_swagger_ui_work,
    Browser::start(),
    start(),
    [
        limits_of_quota_svc_are_shown,
        search_shows_only_sections_with_all_words,
        copy_button_copies_the_code_and_says_so,
        only_scrollable_blocks_can_be_focused,
        axe_finds_no_violation_in_docs,
        docs_fit_a_width_of_320_pixels,
        swagger_ui_follows_the_theme
    ]
);

async fn limits_of_quota_svc_are_shown(browser: &Browser, stack: &Stack) {
    open_docs(browser, stack, Appearance::default()).await;
    let text = browser.text("main").await;
    for limit in [
        "2,500 requests per day per key",
        "40 requests within 60 seconds per key",
        "70 requests per day, shared by all callers",
        "more than 40 requests within 60 seconds. The key is paused",
    ] {
        assert!(text.contains(limit), "{limit}");
    }
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

async fn search_shows_only_sections_with_all_words(browser: &Browser, stack: &Stack) {
    open_docs(browser, stack, Appearance::default()).await;
    let all = browser.eval(HEADINGS).await;
    assert!(all.as_array().unwrap().len() > 10, "{all}");
    // The key that focuses the field must not be typed into it.
    browser.find("body").await.send_keys("/").await.unwrap();
    wait_for(browser, "document.activeElement.id + document.activeElement.value", json!("query")).await;
    browser.fill("#query", "CSRF origin").await;
    wait_for(browser, HEADINGS, json!(["Errors"])).await;
    browser.wait_for_text("#found", "1 section found.").await;
    let rows =
        "[...document.querySelectorAll('main tbody tr')].filter(r => r.checkVisibility()).map(r => r.id)";
    assert_eq!(browser.eval(rows).await, json!(["csrf_refused"]));
    let links =
        "[...document.querySelectorAll('nav a[href^=\"#\"]')].filter(a => !a.hidden).map(a => a.hash)";
    assert_eq!(browser.eval(links).await, json!(["#dashboard-errors"]));
    let buttons = "[...document.querySelectorAll('.copy')].filter(b => b.checkVisibility()).length";
    assert_eq!(browser.eval(buttons).await, 0, "the buttons of hidden blocks are hidden");
    browser.screenshot("docs-search").await;

    browser.fill("#query", "xyzzy").await;
    browser.wait_for_text("#found", "Nothing found.").await;
    browser.find("#query").await.send_keys(Key::Escape).await.unwrap();
    wait_for(browser, HEADINGS, all.clone()).await;

    browser.fill("#query", "CSRF").await;
    browser.wait_for_text("#found", "1 section found.").await;
    browser.driver.execute("location.hash = '#limits'", vec![]).await.unwrap();
    wait_for(browser, HEADINGS, all).await;
    assert_eq!(browser.eval("document.getElementById('query').value").await, "");
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

async fn copy_button_copies_the_code_and_says_so(browser: &Browser, stack: &Stack) {
    open_docs(browser, stack, Appearance::default()).await;
    browser.click("button[aria-label='Copy: Request without a key']").await;
    browser.wait_for_text("button[aria-label='Copy: Request without a key']", "Copied").await;
    wait_for(
        browser,
        "document.querySelector('.sr-only[role=status]').textContent",
        json!("Copied: Request without a key"),
    )
    .await;
    browser.find("#query").await.send_keys(Key::Control + "v").await.unwrap();
    let copied = json!("curl http://localhost:8080/api/v1/ip/demo");
    wait_for(browser, "document.getElementById('query').value", copied).await;
    let names = "[...document.querySelectorAll('.copy')].map(b => b.getAttribute('aria-label'))";
    let names = browser.eval(names).await;
    let names: Vec<_> = names.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(names.len(), unique.len(), "{names:?}");
    assert!(names.len() >= 11 && !names.iter().any(|name| name.contains("undefined")), "{names:?}");
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

async fn only_scrollable_blocks_can_be_focused(browser: &Browser, stack: &Stack) {
    for phone in [false, true] {
        open_docs(browser, stack, Appearance { dark: false, phone }).await;
        for language in ["curl", "python", "javascript", "go", "rust", "php"] {
            browser
                .driver
                .execute(format!("document.getElementById('example-{language}').open = true"), vec![])
                .await
                .unwrap();
            let wrong = "[...document.querySelectorAll('main pre, main .wide')].filter(e => e.checkVisibility()).filter(e => \
                 (e.scrollWidth > e.clientWidth) !== (e.tabIndex === 0 && e.getAttribute('role') === 'region' && \
                 !!e.getAttribute('aria-label'))).map(e => e.outerHTML)";
            wait_for(browser, wrong, json!([])).await;
        }
        let focusable = "document.querySelectorAll('main [role=region][tabindex=\"0\"]').length";
        let count = browser.eval(focusable).await.as_u64().unwrap();
        assert!(if phone { count > 3 } else { count < 8 }, "{count}");
    }
}

async fn axe_finds_no_violation_in_docs(browser: &Browser, stack: &Stack) {
    for appearance in [Appearance::default(), Appearance { dark: true, phone: true }] {
        open_docs(browser, stack, appearance).await;
        let theme = if appearance.dark { "dark" } else { "light" };
        browser.screenshot(&format!("docs-{theme}")).await;
        for state in [
            "",
            "document.getElementById('example-go').open = true",
            "document.getElementById('query').value = 'key'; search()",
        ] {
            browser.driver.execute(state, vec![]).await.unwrap();
            browser.check_axe(&format!("{theme}: {state}")).await;
        }
    }
}

async fn docs_fit_a_width_of_320_pixels(browser: &Browser, stack: &Stack) {
    open_docs(browser, stack, Appearance::default()).await;
    browser.set_screen(320, 900).await;
    browser.goto(&format!("{}/docs#examples", stack.lookup.url())).await;
    browser.screenshot("docs-320").await;
    let width = browser.eval("[innerWidth, document.documentElement.scrollWidth]").await;
    assert_eq!(width, json!([320, 320]));
    // No button covers the code.
    let covering = "[...document.querySelectorAll('.copy')].filter(b => b.checkVisibility()).filter(b => \
         b.getBoundingClientRect().bottom > b.previousElementSibling.getBoundingClientRect().top + 12).length";
    assert_eq!(browser.eval(covering).await, 0);
}

async fn swagger_ui_follows_the_theme(browser: &Browser, stack: &Stack) {
    for (dark, background) in [(false, 255), (true, 26)] {
        open_docs(browser, stack, Appearance { dark, phone: false }).await;
        browser.goto(&format!("{}/swagger", stack.lookup.url())).await;
        browser.wait_for_text(".swagger-ui .info", "2,500 requests per day and key").await;
        browser.screenshot(if dark { "swagger-dark" } else { "swagger-light" }).await;
        let filter = browser.eval("getComputedStyle(document.documentElement).filter").await;
        assert_eq!(filter != "none", dark, "{filter}");
        // A pixel of a screenshot shows what the filter makes of the background.
        let image = browser.driver.screenshot_as_png_base64().await.unwrap();
        let script = "const [image, done] = arguments; const i = new Image(); i.onload = () => { const c = \
             document.createElement('canvas').getContext('2d'); c.drawImage(i, -2, -400); done(c.getImageData(0, 0, 1, 1).data[0]); }; \
             i.src = 'data:image/png;base64,' + image;";
        let shade = browser.driver.execute_async(script, vec![json!(image)]).await.unwrap();
        let shade = shade.json().as_i64().unwrap();
        assert!((shade - background).abs() < 12, "{shade}");

        // The dialog stays in the visible part of a scrolled page.
        browser
            .driver
            .execute("document.querySelector('.opblock-summary-control').click()", vec![])
            .await
            .unwrap();
        browser.find(".opblock-body").await;
        browser
            .driver
            .execute("document.querySelector('.authorize').click(); scrollTo(0, 400)", vec![])
            .await
            .unwrap();
        browser.find(".modal-ux").await;
        let top = browser.eval("document.querySelector('.modal-ux').getBoundingClientRect().top").await;
        assert!(top.as_f64().is_some_and(|top| (0.0..900.0).contains(&top)), "{top}");
        browser.screenshot(if dark { "swagger-dark-dialog" } else { "swagger-light-dialog" }).await;
        assert_eq!(browser.console_errors().await, Vec::<String>::new());
    }
}
