//! The committed OpenAPI document matches the one that the binary prints and serves.

use std::process::Command;

use testkit::process::binary;

use crate::harness::Harness;

#[test]
fn committed_document_is_current() {
    let printed = Command::new(binary("dashboard-api")).arg("openapi").output().unwrap();
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/dashboard-api.json");
    let committed = std::fs::read_to_string(committed).unwrap_or_default();
    assert!(
        String::from_utf8_lossy(&printed.stdout) == committed,
        "openapi/dashboard-api.json is out of date; run: cargo run -p dashboard-api -- openapi > openapi/dashboard-api.json"
    );
}

#[tokio::test]
async fn document_and_swagger_ui_are_served() {
    let harness = Harness::start().await;
    let served = testkit::http::client().get(format!("{}/openapi.json", harness.url)).send().await.unwrap();
    let served: serde_json::Value = served.json().await.unwrap();
    assert_eq!(served["info"]["version"], serde_json::json!("1.1.0"));
    let scheme = &served["components"]["securitySchemes"]["session"];
    let description = scheme["description"].as_str().unwrap();
    assert!(description.contains("`http://localhost`, it is named `ipl_session`"), "{description}");
    let text = harness
        .browser()
        .http
        .get(format!("{}/swagger", harness.url))
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(text.contains("SwaggerUIBundle({") && text.contains("resumeKey"));
    assert!(
        !text.contains("src=\"http") && !text.contains("<link rel=\"stylesheet\""),
        "Swagger UI must not load external resources"
    );
    assert!(
        text.contains("<a href=\"/\" aria-current=\"page\">Dashboard</a>"),
        "the page has the shared header"
    );
}
