//! A JSON payload that serde reads and writes directly, without an intermediate `serde_json::Value`.

use poem::{IntoResponse, Request, RequestBody, Response, Result};
use poem_openapi::{
    ApiResponse,
    error::ParseRequestPayloadError,
    payload::{ParsePayload, Payload},
    registry::{MetaMediaType, MetaResponse, MetaResponses, MetaSchemaRef, Registry},
    types::Type,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::body::DEFAULT_BODY_LIMIT;

const CONTENT_TYPE: &str = "application/json";

/// A JSON payload with the schema of `T`, parsed and serialized by serde.
///
/// poem-openapi's `Json` builds a `serde_json::Value` for every request and response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SerdeJson<T>(pub T);

impl<T: Type> Payload for SerdeJson<T> {
    const CONTENT_TYPE: &'static str = CONTENT_TYPE;

    fn check_content_type(content_type: &str) -> bool {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case(CONTENT_TYPE)
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

    /// Reads at most [`DEFAULT_BODY_LIMIT`] bytes, even within a larger [`BodyLimit`](crate::BodyLimit).
    async fn from_request(_: &Request, body: &mut RequestBody) -> Result<Self> {
        let bytes = body.take()?.into_bytes_limit(DEFAULT_BODY_LIMIT).await?;
        let value = serde_json::from_slice(&bytes);
        Ok(Self(value.map_err(|error| ParseRequestPayloadError { reason: error.to_string() })?))
    }
}

poem_openapi::impl_apirequest_for_payload!(SerdeJson<T>, T: Type + DeserializeOwned);

impl<T: Serialize + Send> IntoResponse for SerdeJson<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(mut bytes) => {
                // So that the prompt of a shell starts on its own line.
                bytes.push(b'\n');
                Response::builder().content_type(CONTENT_TYPE).body(bytes)
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
