//! Checks the committed OpenAPI document against the generated one.

#[tokio::test]
async fn committed_document_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/quota-svc.json");
    let committed = std::fs::read_to_string(path).expect("openapi/quota-svc.json exists");
    let generated = quota_svc::app::document().expect("the document is generated");
    assert!(
        committed == generated,
        "openapi/quota-svc.json is out of date; run: cargo run -p quota-svc -- openapi > openapi/quota-svc.json"
    );
}

#[tokio::test]
async fn operations_have_ids_and_the_common_error_body() {
    let document: serde_json::Value = serde_json::from_str(&quota_svc::app::document().unwrap()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let operations: Vec<_> = paths.values().flat_map(|path| path.as_object().unwrap().values()).collect();
    assert_eq!(operations.len(), 31);
    for operation in operations {
        assert!(operation["operationId"].is_string(), "{operation}");
        for (status, response) in operation["responses"].as_object().unwrap() {
            if !status.starts_with('2') {
                let schema = &response["content"]["application/json"]["schema"]["$ref"];
                assert_eq!(schema, "#/components/schemas/ErrorResponse", "{status}");
            }
        }
    }
}
