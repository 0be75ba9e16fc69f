//! The committed OpenAPI document is the one this version generates.

#[tokio::test]
async fn the_committed_document_is_the_generated_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/quota-svc.json");
    let committed = std::fs::read_to_string(path).expect("openapi/quota-svc.json is committed");
    let generated = quota_svc::app::document().expect("the document can be made");
    assert!(
        committed == generated,
        "openapi/quota-svc.json is out of date; run: cargo run -p quota-svc -- openapi > openapi/quota-svc.json"
    );
}

#[tokio::test]
async fn every_operation_has_an_id_and_every_error_the_common_body() {
    let document: serde_json::Value = serde_json::from_str(&quota_svc::app::document().unwrap()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let operations: Vec<_> = paths.values().flat_map(|path| path.as_object().unwrap().values()).collect();
    assert_eq!(operations.len(), 23);
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
