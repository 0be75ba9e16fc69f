//! `SerdeJson` in an OpenAPI service.

use poem::{Endpoint, EndpointExt};
use poem_openapi::{ApiResponse, Object, OpenApi, OpenApiService};
use serde::{Deserialize, Serialize};
use service_kit::{BodyLimit, ErrorBody, Kit, RequestTelemetry, SerdeJson, catch_all};

use crate::harness::{DOCS, RawResponse, TestServer, args, errors};

#[derive(Object, Serialize, Deserialize)]
struct Double {
    number: u32,
}

#[derive(ApiResponse)]
enum Doubled {
    #[oai(status = 200)]
    Ok(SerdeJson<Double>),
    #[oai(status = 409)]
    TooBig(SerdeJson<ErrorBody>),
}

struct Api;

#[OpenApi]
impl Api {
    #[oai(path = "/double", method = "post", operation_id = "double")]
    async fn double(&self, body: SerdeJson<Double>) -> Doubled {
        match body.0.number.checked_mul(2) {
            Some(number) => Doubled::Ok(SerdeJson(Double { number })),
            None => Doubled::TooBig(SerdeJson(ErrorBody::new("too_big", "Too big.", DOCS))),
        }
    }

    #[oai(path = "/plain", method = "get", operation_id = "plain")]
    async fn plain(&self) -> SerdeJson<Double> {
        SerdeJson(Double { number: 1 })
    }
}

fn service() -> OpenApiService<Api, ()> {
    OpenApiService::new(Api, "test", "1")
}

fn endpoint() -> impl Endpoint {
    service().with(BodyLimit::default()).with(catch_all(errors()))
}

async fn post(body: &str, content_type: &str) -> RawResponse {
    let server = TestServer::start(&args(), endpoint()).await;
    let mut client = server.connect().await;
    let length = body.len();
    let head = format!(
        "POST /double HTTP/1.1\r\nHost: t\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    client.send(head + body).await;
    client.read_response().await
}

#[tokio::test]
async fn json_request_gets_json_response() {
    let response = post(r#"{"number":21}"#, "application/json").await;
    assert_eq!((response.status, response.body.as_str()), (200, "{\"number\":42}\n"));
    assert_eq!(response.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn response_enum_keeps_its_status_and_body() {
    let response = post(r#"{"number":4294967295}"#, "application/json").await;
    let body = r#"{"error":"too_big","message":"Too big.","docs":"https://docs.example#too_big"}"#;
    assert_eq!((response.status, response.body.trim_end()), (409, body));
}

#[tokio::test]
async fn invalid_json_gets_400_with_position() {
    let response = post(r#"{"number":"x"}"#, "application/json").await;
    assert_eq!((response.status, response.json()["error"].as_str()), (400, Some("bad_request")));
    assert!(response.json()["message"].as_str().expect("message").contains("line 1 column 13"));
}

#[tokio::test]
async fn other_content_type_gets_415() {
    let response = post("number=1", "application/x-www-form-urlencoded").await;
    assert_eq!((response.status, response.json()["error"].as_str()), (415, Some("unsupported_media_type")));
}

#[test]
fn openapi_document_contains_the_schemas() {
    let document = service().spec();
    assert!(document.contains("#/components/schemas/Double"), "{document}");
    assert!(document.contains("#/components/schemas/ErrorResponse"), "{document}");
}

#[tokio::test]
async fn metrics_are_labeled_with_the_operation_id() {
    let kit = Kit::detached(&args());
    let endpoint = endpoint().with(RequestTelemetry::new(&kit.telemetry, "test"));
    let server = TestServer::start(&args(), endpoint).await;
    assert_eq!(server.connect().await.get("/plain").await.body, "{\"number\":1}\n");
    let text = kit.telemetry.prometheus_text();
    assert!(text.contains(r#"operation="plain""#), "{text}");
}
