//! The pages: content, security headers, caching and compression.

use quota_client::wire::Limits;
use reqwest::Method;
use service_kit::csp_hash;
use testkit::lookup::WAIT_TIMEOUT;
use testkit::wait::eventually;

use super::harness::{Harness, TestResponse};

#[tokio::test]
async fn docs_describe_every_error_and_field() {
    let harness = Harness::start().await;
    let page = harness.get("/docs").await;
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
        "https_required",
        "wrong_host",
        "enterprise",
    ] {
        assert!(page.text.contains(&format!("id=\"{code}\"")), "{code}");
    }
    for field in lookup_svc::fields::all() {
        assert!(page.text.contains(&format!("<code>{}</code>", field.name)), "{}", field.name);
    }
    assert!(page.text.contains("https://ip.example/api/v1/ip"), "examples use the public URL");
    assert!(!page.text.contains("{{"), "every placeholder is replaced");
}

#[tokio::test]
async fn docs_state_the_date_and_the_limits_of_the_network_lists() {
    let harness = Harness::start().await;
    let page = harness.get("/docs").await;
    let date = format!("The built-in lists are dated {};", geo::asn::built_in_date());
    assert!(page.text.contains(&date), "{date}");
    assert!(page.text.contains("<code>proxy</code> by network is a lower bound"));
}

#[tokio::test]
async fn docs_state_the_age_and_source_of_the_built_in_data() {
    let harness = Harness::start().await;
    let page = harness.get("/docs").await;
    assert!(page.text.contains("<p>Only the built-in country data is in use"), "{}", page.text);
    let (_, age) = page.text.split_once("It is dated ").expect("date and age");
    assert!(age.split_once(" old.").is_some_and(|(age, _)| age.len() < 30), "{}", &age[..60]);
    assert!(page.text.contains("<a href=\"https://www.nro.net\">") && page.text.contains("CC BY 4.0"));

    let sample = testkit::mmdb::sample::file();
    let harness = Harness::start_with(|config| config.geo.geo_db = vec![sample.path().to_owned()]).await;
    let page = harness.get("/docs").await;
    assert!(page.text.contains("Where no other database has the country of an address"), "{}", page.text);
    assert!(!page.text.contains("Only the built-in"), "{}", page.text);
}

#[tokio::test]
async fn html_pages_load_nothing_external_and_forbid_framing() {
    let harness = Harness::start().await;
    for path in ["/docs", "/swagger", "/"] {
        let page = harness.get(path).await;
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("unsafe"), "{policy}");
        // The home page may connect to the API under each of its host names.
        let policy = policy.replace(" https://ip.example;", ";");
        assert!(!policy.contains("http"), "{policy}");
        assert_eq!(page.header("x-frame-options"), Some("DENY"));
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        for external in ["src=\"http", "<link rel=\"stylesheet\"", "@import"] {
            assert!(!page.text.contains(external), "{path} has {external}");
        }
    }
    let swagger = harness.get("/swagger").await;
    assert!(swagger.header("content-security-policy").unwrap().contains("connect-src 'self'"));
    assert!(swagger.text.contains(r#""url": "/""#), "\"Try it out\" calls this server");
}

#[tokio::test]
async fn page_supports_etag_gzip_and_head() {
    // Without limits, which would change the page once they are known.
    let harness = Harness::start_with_limits(None).await;
    let plain = harness.get("/swagger").await;
    let tag = plain.header("etag").unwrap();
    let again =
        TestResponse::send(harness.request(Method::GET, "/swagger").header("if-none-match", tag)).await;
    assert_eq!((again.status, &*again.text), (304, ""));
    let gzipped = harness.request(Method::GET, "/swagger").header("accept-encoding", "br, gzip");
    let gzipped = gzipped.send().await.unwrap();
    assert_eq!(gzipped.headers()["content-encoding"], "gzip");
    assert!(gzipped.bytes().await.unwrap().len() * 2 < plain.text.len());
    let head = TestResponse::send(harness.request(Method::HEAD, "/docs")).await;
    assert_eq!((head.status, &*head.text), (200, ""));
}

#[tokio::test]
async fn openapi_document_is_served_as_json_and_yaml() {
    let harness = Harness::start().await;
    let json = harness.get("/openapi.json").await;
    assert_eq!(json.header("content-type"), Some("application/json"));
    assert_eq!(json.json()["servers"][0]["url"], "https://ip.example");
    let yaml = harness.get("/openapi.yaml").await;
    assert!(yaml.text.contains("version: 1.1.0"), "{}", yaml.text);
    assert_eq!(yaml.text.matches("allowEmptyValue: true").count(), 2, "{}", yaml.text);
}

#[tokio::test]
async fn pages_state_the_limits_of_quota_svc() {
    let harness = Harness::start_with_limits(Some(Limits { daily: 2_500, burst: 40, demo: 70 })).await;
    let docs = eventually(WAIT_TIMEOUT, "/docs has the limits", async || {
        let docs = harness.get("/docs").await.text;
        docs.contains("2,500 requests per day per key").then_some(docs)
    })
    .await;
    for text in ["40 requests within 60 seconds per key", "70 requests per day, shared by all callers"] {
        assert!(docs.contains(text), "{text}");
    }
    assert!(docs.contains("more than 40 requests within 60 seconds. The key is paused"));
    for default in ["10,000", "300 requests", "1,000"] {
        assert!(!docs.contains(default), "{default}");
    }
    for path in ["/openapi.json", "/openapi.yaml", "/swagger"] {
        let page = harness.get(path).await;
        assert!(page.text.contains("2,500 requests per day and key"), "{path}");
    }
}

#[tokio::test]
async fn pages_without_known_limits_name_the_header() {
    let harness = Harness::start_with_limits(None).await;
    let docs = harness.get("/docs").await.text;
    assert!(docs.contains("per day and key: see <code>X-RateLimit-Limit</code>"), "{docs}");
    assert!(!docs.contains("10,000 requests per day"), "{docs}");
    assert!(harness.get("/openapi.json").await.text.contains("shows the limit that applies"));
}

#[tokio::test]
async fn pages_name_only_the_headers_about_limits_that_are_sent() {
    for ietf in [false, true] {
        let harness = Harness::start_with(|config| config.ratelimit_headers = ietf).await;
        let docs = harness.get("/docs").await.text;
        assert!(!docs.contains("{{"), "every placeholder is replaced");
        assert!(docs.contains("<code>X-RateLimit-Limit</code>"), "{docs}");
        assert_eq!(docs.contains("<code>RateLimit-Policy</code>"), ietf, "{docs}");
        for path in ["/openapi.json", "/openapi.yaml", "/swagger"] {
            let page = harness.get(path).await.text;
            assert!(page.contains("X-RateLimit-Remaining"), "{path}");
            assert_eq!(page.contains("RateLimit-Policy"), ietf, "{path}");
        }
    }
}

#[tokio::test]
async fn docs_policy_allows_only_the_own_script_and_style() {
    let harness = Harness::start().await;
    let page = harness.get("/docs").await;
    let policy = page.header("content-security-policy").unwrap();
    for tag in ["style", "script"] {
        let (_, rest) = page.text.split_once(&format!("<{tag}>")).unwrap();
        let (content, rest) = rest.split_once(&format!("</{tag}>")).unwrap();
        assert!(policy.contains(&format!("{tag}-src {};", csp_hash(content))), "{tag}: {policy}");
        assert!(!rest.contains(&format!("<{tag}")), "only one {tag}");
    }
    assert!(page.text.contains("<div id=\"search\" hidden>"), "hidden without JavaScript, which it needs");
}
