//! JSON: a payload that serde reads and writes directly, without an intermediate `serde_json::Value`; sorted keys.

use http::{HeaderValue, header};
use poem::{IntoResponse, Request, RequestBody, Response, Result};
use poem_openapi::{
    ApiResponse,
    error::ParseRequestPayloadError,
    payload::{ParsePayload, Payload},
    registry::{MetaMediaType, MetaResponse, MetaResponses, MetaSchemaRef, Registry},
    types::Type,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::body;

const CONTENT_TYPE: &str = "application/json";

/// Pretty-prints JSON with its keys sorted, so that their order is the same whether or not a dependency enables
/// serde_json's `preserve_order`.
pub fn sorted(json: &str) -> serde_json::Result<String> {
    let mut value: serde_json::Value = serde_json::from_str(json)?;
    value.sort_all_objects();
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

/// A JSON payload with the schema of `T`, parsed and serialized by serde.
///
/// poem-openapi's `Json` builds a `serde_json::Value` for every request and response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SerdeJson<T>(pub T);

impl<T: Type> Payload for SerdeJson<T> {
    const CONTENT_TYPE: &'static str = CONTENT_TYPE;

    fn check_content_type(content_type: &str) -> bool {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/json")
    }

    fn schema_ref() -> MetaSchemaRef {
        T::schema_ref()
    }

    fn register(registry: &mut Registry) {
        T::register(registry);
    }
}

impl<T: Type + DeserializeOwned> ParsePayload for SerdeJson<T> {
    const IS_REQUIRED: bool = T::IS_REQUIRED;

    async fn from_request(request: &Request, body: &mut RequestBody) -> Result<Self> {
        let bytes = body::read_body(request, body.take()?).await?;
        parse(&bytes).map(Self)
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    // Validates UTF-8 once for the whole body; `from_slice` validates each string separately. For invalid UTF-8,
    // `from_slice` is called only to get its error message.
    let result = match std::str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(bytes),
    };
    result.map_err(|error| {
        let reason = error.to_string();
        ParseRequestPayloadError { reason }.into()
    })
}

poem_openapi::impl_apirequest_for_payload!(SerdeJson<T>, T: Type + DeserializeOwned);

impl<T: Serialize + Send> IntoResponse for SerdeJson<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(mut bytes) => {
                // So that the prompt of a shell starts on its own line.
                bytes.push(b'\n');
                let mut response = Response::builder().body(bytes);
                let value = HeaderValue::from_static(CONTENT_TYPE);
                response.headers_mut().insert(header::CONTENT_TYPE, value);
                response
            }
            Err(error) => {
                tracing::error!(%error, "could not serialize a response as JSON");
                http::StatusCode::INTERNAL_SERVER_ERROR.into()
            }
        }
    }
}

impl<T: Type + Serialize> ApiResponse for SerdeJson<T> {
    fn meta() -> MetaResponses {
        MetaResponses {
            responses: vec![MetaResponse {
                description: "Success.",
                status: Some(200),
                status_range: None,
                content: vec![MetaMediaType { content_type: CONTENT_TYPE, schema: T::schema_ref() }],
                headers: vec![],
            }],
        }
    }

    fn register(registry: &mut Registry) {
        T::register(registry);
    }
}
