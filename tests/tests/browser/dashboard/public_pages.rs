//! The pages of lookup-svc: Swagger UI and the documentation. The browser logs each resource that their security
//! policies block, and every such message fails the test.

use quota_client::wire::Scope;

use super::stack::Stack;
use crate::browser::{Appearance, Browser, WAIT_TIMEOUT};

share_browser!(
    public_pages_work,
    Browser::start(),
    Stack::start(),
    [swagger_ui_sends_key_as_header_or_parameter, error_link_scrolls_to_its_section_in_docs]
);

async fn swagger_ui_sends_key_as_header_or_parameter(browser: &Browser, stack: &Stack) {
    let key = stack.quotas[0].key_with_scope(Scope::Geo).await;
    let (dialog, operation) = (".modal-ux", ".opblock:has([data-path='/api/v1/ip'])");
    for (scheme, field) in [("bearer", "#auth-bearer-value"), ("key", "#api_key_value")] {
        // Leaves the page first: going to a URL that differs only in its fragment would not reload the page.
        browser.goto("about:blank").await;
        browser.goto(&format!("{}/swagger", stack.lookup_url)).await;
        browser.wait_for_text(".swagger-ui .info", "1.1.0").await;
        browser.click(&format!("{operation} .opblock-summary-control")).await;
        run(browser, operation, "401").await;
        browser.click(".scheme-container .authorize").await;
        browser.fill(&format!("{dialog} {field}"), &key.secret).await;
        browser.press(&format!("{dialog} .auth-container:has({field})"), "Authorize").await;
        browser.wait_for_text(dialog, "Logout").await;
        browser.press(dialog, "Close").await;
        run(browser, operation, "200").await;
        browser.wait_for_text(&format!("{operation} .live-responses-table"), "\"ip\": \"127.0.0.1\"").await;
        browser.screenshot(&format!("swagger-{scheme}")).await;
    }
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

/// Sends the operation's request and waits for a response with this status.
async fn run(browser: &Browser, operation: &str, status: &str) {
    browser.press(operation, "Execute").await;
    browser
        .wait_for_text(&format!("{operation} .live-responses-table .response .response-col_status"), status)
        .await;
}

async fn error_link_scrolls_to_its_section_in_docs(browser: &Browser, stack: &Stack) {
    for appearance in [Appearance::default(), Appearance { dark: true, phone: true }] {
        browser.set_appearance(appearance).await;
        // A page that is open already would not scroll.
        browser.goto("about:blank").await;
        let response = testkit::lookup::JsonResponse::fetch(
            testkit::http::client().get(format!("{}/api/v1/ip", stack.lookup_url)),
        );
        let link = response.await.body["docs"].as_str().unwrap().to_owned();
        let code = link.rsplit('#').next().unwrap().to_owned();
        browser.goto(&format!("{}/docs#{code}", stack.lookup_url)).await;
        browser.wait_for_text(&format!("#{code}"), &code).await;
        let top = format!("document.getElementById('{code}').getBoundingClientRect().top");
        let visible = format!("{top} >= 0 && {top} < innerHeight");
        let scrolled = async || browser.eval(&visible).await.as_bool().filter(|visible| *visible);
        testkit::wait::eventually(WAIT_TIMEOUT, "the section is visible", scrolled).await;
        let overflows = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
        assert_eq!(browser.eval(overflows).await, false, "the page does not scroll horizontally");
        browser.screenshot(if appearance.phone { "docs-phone" } else { "docs" }).await;
        assert_eq!(browser.console_errors().await, Vec::<String>::new());
    }
}
