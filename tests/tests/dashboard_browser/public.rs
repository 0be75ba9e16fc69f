//! lookup-svc's own pages: the API tried out with a key, and its documentation. Whatever the browser refuses to run,
//! load or draw by their policies is a complaint.

use quota_client::wire::Scope;

use crate::browser::{Browser, Look, SOON};
use crate::stack::Stack;

#[tokio::test]
async fn the_api_can_be_tried_out_with_a_key_as_either_credential() {
    let Some(browser) = Browser::start(Look::default()).await else { return };
    let stack = Stack::start().await;
    let key = stack.quotas[0].key_of(Scope::Geo).await;
    let (dialog, operation) = (".modal-ux", ".opblock:has([data-path='/api/v1/ip'])");
    for (credential, field) in [("bearer", "#auth-bearer-value"), ("key", "#api_key_value")] {
        // Another page first: the same one with another fragment would not be loaded anew.
        browser.goto("about:blank").await;
        browser.goto(&format!("{}/swagger", stack.lookup_url)).await;
        browser.sees(".swagger-ui .info", "1.1.0").await;
        browser.click(&format!("{operation} .opblock-summary-control")).await;
        run(&browser, operation, "401").await;
        browser.click(".scheme-container .authorize").await;
        browser.fill(&format!("{dialog} {field}"), &key.secret).await;
        browser.press(&format!("{dialog} .auth-container:has({field})"), "Authorize").await;
        browser.sees(dialog, "Logout").await;
        browser.press(dialog, "Close").await;
        run(&browser, operation, "200").await;
        browser.sees(&format!("{operation} .live-responses-table"), "\"ip\": \"127.0.0.1\"").await;
        browser.shot(&format!("swagger-{credential}")).await;
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

/// Sends the operation's request and waits for an answer with this status.
async fn run(browser: &Browser, operation: &str, status: &str) {
    browser.press(operation, "Execute").await;
    browser.sees(&format!("{operation} .live-responses-table .response .response-col_status"), status).await;
}

#[tokio::test]
async fn the_link_in_an_error_leads_to_its_place_in_the_documentation() {
    for look in [Look::default(), Look { dark: true, phone: true }] {
        let Some(browser) = Browser::start(look).await else { return };
        let stack = Stack::start().await;
        browser.goto(&stack.lookup_url).await;
        browser.sees("h1", "IP").await;
        assert_eq!(browser.eval("location.pathname").await, "/docs");
        let answer =
            e2e::lookup::Answer::of(e2e::http::client().get(format!("{}/api/v1/ip", stack.lookup_url)));
        let link = answer.await.body["docs"].as_str().unwrap().to_owned();
        let code = link.rsplit('#').next().unwrap().to_owned();
        browser.goto(&format!("{}/docs#{code}", stack.lookup_url)).await;
        browser.sees(&format!("#{code}"), &code).await;
        let top = format!("document.getElementById('{code}').getBoundingClientRect().top");
        let reached = format!("{top} >= 0 && {top} < innerHeight");
        let look_there = async || browser.eval(&reached).await.as_bool().filter(|there| *there);
        e2e::wait::eventually(SOON, "the page is at the error", look_there).await;
        let wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
        assert_eq!(browser.eval(wide).await, false, "nothing is cut off");
        browser.shot(if look.phone { "docs-phone" } else { "docs" }).await;
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    }
}
