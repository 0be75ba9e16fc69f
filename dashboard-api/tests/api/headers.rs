//! What every answer carries, whichever it is.

use e2e::http;
use reqwest::Method;
use serde_json::json;

use crate::rig::{PASSWORD, Rig, read};

#[tokio::test]
async fn every_answer_is_guarded() {
    let rig = Rig::start().await;
    let ada = rig.sign_up("ada").await;
    let page = ada.http.get(&rig.url);
    let swagger = ada.http.get(format!("{}/swagger", rig.url));
    let nowhere = ada.http.get(format!("{}/no/such/path", rig.url));
    let method = ada
        .http
        .patch(format!("{}/api/v1/keys", rig.url))
        .header("X-CSRF-Token", "1")
        .header("Origin", &rig.url);
    let csrf = ada.request(Method::DELETE, "/session");
    let cases = [
        (page, 200),
        (swagger, 200),
        (nowhere, 404),
        (method, 405),
        (csrf, 403),
        (ada.request(Method::GET, "/keys"), 200),
    ];
    for (request, status) in cases {
        let answer = read(request).await;
        assert_eq!(answer.status, status);
        let header = |name: &str| answer.headers[name].to_str().unwrap().to_owned();
        assert_eq!(header("cache-control"), "no-store");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "no-referrer");
        let policy = header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none';") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        if status >= 400 {
            let docs = answer.body["docs"].as_str().unwrap();
            assert_eq!(docs, format!("http://localhost:8080/docs#{}", answer.code()));
        }
    }
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_ones() {
    let rig = Rig::start().await;
    let visitor = rig.visitor();
    let answer = read(visitor.change(Method::PATCH, "/keys/0123")).await;
    assert_eq!(answer.told(), "405 method_not_allowed");
    assert_eq!(answer.headers["allow"], "DELETE, GET, HEAD");
}

#[tokio::test]
async fn cookies_are_secure_unless_asked_otherwise() {
    let rig = Rig::start().await;
    let plain = rig.visitor().post("/account", json!({"login": "ada", "password": PASSWORD})).await;
    let plain = plain.headers["set-cookie"].to_str().unwrap();
    assert!(
        plain.starts_with("ipl_session=")
            && plain.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200")
    );

    let key = rig.folder.path().join("session.key");
    let args = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--quota-url", rig.quota.url()];
    let args = [args.as_slice(), &["--session-key-file", key.to_str().unwrap()]].concat();
    let mut secure = e2e::process::Service::spawn("dashboard-api", &args, &[]);
    let url = format!("http://{}", secure.listening("dashboard").await);
    let body = json!({"login": "ada", "password": PASSWORD});
    let request = http::client()
        .post(format!("{url}/api/v1/session"))
        .header("Origin", &url)
        .header("X-CSRF-Token", "1");
    let cookie = read(request.json(&body)).await.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(
        cookie.starts_with("__Host-ipl_session=") && cookie.ends_with("; Max-Age=43200; Secure"),
        "{cookie}"
    );
}

#[tokio::test]
async fn a_proxys_public_address_counts_as_ours() {
    let rig = Rig::start_with(&["--public-url", "https://keys.example/"]).await;
    let body = json!({"login": "ada", "password": PASSWORD});
    let from = async |origin: &str| {
        let request = rig.visitor().request(Method::POST, "/session").header("X-CSRF-Token", "1");
        read(request.header("Origin", origin).json(&body)).await.told()
    };
    assert_eq!(from("https://keys.example").await, "401 invalid_credentials");
    assert_eq!(from(&rig.url).await, "401 invalid_credentials");
    assert_eq!(from("http://keys.example").await, "403 csrf_refused");
    assert_eq!(from("null").await, "403 csrf_refused");
}
