//! Security headers, `Allow`, cookies and the Origin check.

use reqwest::Method;
use serde_json::json;
use testkit::http;

use crate::harness::{Harness, PASSWORD, read};

#[tokio::test]
async fn every_response_has_security_headers() {
    let harness = Harness::start().await;
    let ada = harness.sign_up("ada").await;
    let page = ada.http.get(&harness.url);
    let swagger = ada.http.get(format!("{}/swagger", harness.url));
    let not_found = ada.http.get(format!("{}/no/such/path", harness.url));
    let wrong_method = ada
        .http
        .patch(format!("{}/api/v1/keys", harness.url))
        .header("X-CSRF-Token", "1")
        .header("Origin", &harness.url);
    let no_csrf_headers = ada.request(Method::DELETE, "/session");
    let cases = [
        (page, 200),
        (swagger, 200),
        (not_found, 404),
        (wrong_method, 405),
        (no_csrf_headers, 403),
        (ada.request(Method::GET, "/keys"), 200),
    ];
    for (i, (request, status)) in cases.into_iter().enumerate() {
        let page = i == 0;
        let response = read(request).await;
        assert_eq!(response.status, status);
        let header = |name: &str| response.headers[name].to_str().unwrap().to_owned();
        assert_eq!(header("cache-control"), if page { "no-cache" } else { "no-store" });
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "no-referrer");
        let policy = header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none';") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        let others = policy.replace(" http://localhost:8080/geo-data.json;", ";");
        assert!(!policy.contains("unsafe") && !others.contains("http"), "{policy}");
        if status >= 400 {
            let docs = response.body["docs"].as_str().unwrap();
            assert_eq!(docs, format!("http://localhost:8080/docs#{}", response.code()));
        }
    }
}

#[tokio::test]
async fn wrong_method_gets_405_with_allow_header() {
    let harness = Harness::start().await;
    let browser = harness.browser();
    let response = read(browser.change(Method::PUT, "/keys/0123")).await;
    assert_eq!(response.status_and_code(), "405 method_not_allowed");
    assert_eq!(response.headers["allow"], "DELETE, GET, HEAD, PATCH");
}

/// The last `Set-Cookie` header: the session cookie. The known-browser cookie comes before it.
fn session_cookie(headers: &reqwest::header::HeaderMap) -> &str {
    headers.get_all("set-cookie").iter().next_back().unwrap().to_str().unwrap()
}

#[tokio::test]
async fn session_cookie_is_secure_unless_insecure_cookies_is_set() {
    let harness = Harness::start().await;
    let insecure = harness.browser().post("/account", json!({"login": "ada", "password": PASSWORD})).await;
    let insecure = session_cookie(&insecure.headers);
    assert!(
        insecure.starts_with("ipl_session=")
            && insecure.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200")
    );

    let key = harness.dir.path().join("session.key");
    let args =
        ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--quota-url", harness.quota.url()];
    let args = [args.as_slice(), &["--session-key-file", key.to_str().unwrap()]].concat();
    let mut secure = testkit::process::Service::spawn("dashboard-api", &args, &[]);
    let url = format!("http://{}", secure.listen_addr("dashboard").await);
    let body = json!({"login": "ada", "password": PASSWORD});
    let request = http::client()
        .post(format!("{url}/api/v1/session"))
        .header("Origin", &url)
        .header("X-CSRF-Token", "1");
    let response = read(request.json(&body)).await;
    let cookie = session_cookie(&response.headers);
    assert!(
        cookie.starts_with("__Host-ipl_session=") && cookie.ends_with("; Max-Age=43200; Secure"),
        "{cookie}"
    );
}

#[tokio::test]
async fn origin_of_public_url_is_accepted() {
    let harness = Harness::start_with(&["--public-url", "https://keys.example/"]).await;
    let body = json!({"login": "ada", "password": PASSWORD});
    let sign_in_from = async |origin: &str| {
        let request = harness.browser().request(Method::POST, "/session").header("X-CSRF-Token", "1");
        read(request.header("Origin", origin).json(&body)).await.status_and_code()
    };
    assert_eq!(sign_in_from("https://keys.example").await, "401 invalid_credentials");
    assert_eq!(sign_in_from(&harness.url).await, "401 invalid_credentials");
    assert_eq!(sign_in_from("http://keys.example").await, "403 csrf_refused");
    assert_eq!(sign_in_from("null").await, "403 csrf_refused");
}

#[tokio::test]
async fn other_hosts_get_421_and_https_gets_hsts_if_the_public_url_is_set() {
    let harness = Harness::start_with(&["--public-url", "https://keys.example/"]).await;
    let request = |path: &str| http::client().get(format!("{}{path}", harness.url));
    for path in ["/", "/api/v1/settings", "/swagger", "/no/such/path"] {
        let rejected = read(request(path).header("Host", "evil.example")).await;
        assert_eq!(rejected.status_and_code(), "421 wrong_host", "{path}");
        assert_eq!(rejected.headers["x-content-type-options"], "nosniff");
        for host in ["keys.example", "keys.example:443", "localhost:8081", "127.0.0.1"] {
            let response = read(request(path).header("Host", host)).await;
            assert_ne!(response.status, 421, "{host}{path}");
            assert_eq!(response.headers["strict-transport-security"], "max-age=31536000");
        }
    }
    let plain = Harness::start_with(&["--public-url", "http://keys.example"]).await;
    let response = read(http::client().get(&plain.url)).await;
    assert!(response.headers.get("strict-transport-security").is_none());
}

#[tokio::test]
async fn every_host_is_accepted_without_a_public_url() {
    let harness = Harness::start().await;
    let response = read(http::client().get(&harness.url).header("Host", "any.example")).await;
    assert_eq!(response.status, 200);
    assert!(response.headers.get("strict-transport-security").is_none());
}
