//! The pages: there, self-contained, guarded, and with a section for each error.

use reqwest::Method;

use crate::rig::{Answer, Rig};

#[tokio::test]
async fn the_root_leads_to_the_documentation() {
    let rig = Rig::start().await;
    let answer = rig.get("/").await;
    assert_eq!((answer.status, answer.header("location")), (307, Some("/docs")));
}

#[tokio::test]
async fn the_documentation_has_a_section_for_each_error() {
    let rig = Rig::start().await;
    let page = rig.get("/docs").await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    for code in [
        "missing_api_key",
        "invalid_api_key",
        "inactive_api_key",
        "invalid_scope",
        "rate_limit_exceeded",
        "internal_error",
        "not_found",
        "method_not_allowed",
        "bad_request",
        "request_timeout",
        "payload_too_large",
        "headers_too_large",
        "enterprise",
    ] {
        assert!(page.text.contains(&format!("id=\"{code}\"")), "{code}");
    }
    for field in lookup_svc::fields::FIELDS {
        assert!(page.text.contains(&format!("<code>{}</code>", field.name)), "{}", field.name);
    }
    assert!(page.text.contains("https://ip.example/api/v1/ip"), "examples use the public address");
    assert!(!page.text.contains("{{"), "every placeholder is filled");
}

#[tokio::test]
async fn html_pages_load_nothing_from_elsewhere_and_are_never_framed() {
    let rig = Rig::start().await;
    for path in ["/docs", "/swagger"] {
        let page = rig.get(path).await;
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        for outside in ["src=\"http", "<link rel=\"stylesheet\"", "@import"] {
            assert!(!page.text.contains(outside), "{path} has {outside}");
        }
    }
    let swagger = rig.get("/swagger").await;
    assert!(swagger.header("content-security-policy").unwrap().contains("connect-src 'self'"));
    assert!(swagger.text.contains(r#""url": "/""#), "try-it-out asks this server");
}

#[tokio::test]
async fn a_page_is_sent_once_and_compressed_to_those_who_can() {
    let rig = Rig::start().await;
    let plain = rig.get("/swagger").await;
    let tag = plain.header("etag").unwrap();
    let again = Answer::of(rig.request(Method::GET, "/swagger").header("if-none-match", tag)).await;
    assert_eq!((again.status, &*again.text), (304, ""));
    let packed = rig.request(Method::GET, "/swagger").header("accept-encoding", "br, gzip");
    let packed = packed.send().await.unwrap();
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    assert!(packed.bytes().await.unwrap().len() * 2 < plain.text.len());
    let head = Answer::of(rig.request(Method::HEAD, "/docs")).await;
    assert_eq!((head.status, &*head.text), (200, ""));
}

#[tokio::test]
async fn the_document_is_served_in_both_forms() {
    let rig = Rig::start().await;
    let json = rig.get("/openapi.json").await;
    assert_eq!(json.header("content-type"), Some("application/json"));
    assert_eq!(json.json()["servers"][0]["url"], "https://ip.example");
    let yaml = rig.get("/openapi.yaml").await;
    assert!(yaml.text.contains("version: 1.1.0"), "{}", yaml.text);
    assert_eq!(yaml.text.matches("allowEmptyValue: true").count(), 2, "{}", yaml.text);
}
