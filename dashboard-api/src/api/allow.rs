//! Adds the `Allow` header to 405 responses.

use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};
use poem::{Endpoint, IntoResponse, Request, Response, Result};
use serde_json::Value;

/// Allowed methods by path template. Paths outside the OpenAPI document allow GET and HEAD.
#[derive(Clone)]
pub struct AllowedMethods(Arc<Vec<(String, HeaderValue)>>);

impl AllowedMethods {
    /// Collects the methods from the OpenAPI document.
    pub fn from_document(document: &Value) -> Self {
        let paths = document["paths"].as_object().into_iter().flatten();
        let paths = paths.filter_map(|(path, operations)| Some((path.clone(), allow_header(operations)?)));
        Self(Arc::new(paths.collect()))
    }

    /// Calls the endpoint. Adds the header if it responds with 405.
    pub async fn add_to_405(self, endpoint: Arc<impl Endpoint>, request: Request) -> Result<Response> {
        let path = request.uri().path().to_owned();
        let mut response = endpoint.call(request).await?.into_response();
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, self.allowed(&path));
        }
        Ok(response)
    }

    fn allowed(&self, path: &str) -> HeaderValue {
        let found = self.0.iter().find(|(template, _)| matches_template(template, path));
        found.map_or(HeaderValue::from_static("GET, HEAD"), |(_, allow)| allow.clone())
    }
}

fn allow_header(operations: &Value) -> Option<HeaderValue> {
    let methods = operations.as_object()?.keys().map(|method| method.to_ascii_uppercase());
    let methods = methods.map(|method| if method == "GET" { "GET, HEAD".to_owned() } else { method });
    let mut methods: Vec<_> = methods.collect();
    methods.sort_unstable();
    HeaderValue::from_str(&methods.join(", ")).ok()
}

/// Whether a path such as `/keys/0123` matches a template such as `/keys/{id}`.
fn matches_template(template: &str, path: &str) -> bool {
    let (template, path) = (template.split('/'), path.split('/'));
    template.clone().count() == path.clone().count()
        && template.zip(path).all(|(expected, actual)| expected == actual || expected.starts_with('{'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_methods_are_found_by_path_template() {
        let document = serde_json::json!({"paths": {
            "/api/v1/keys": {"get": {}, "post": {}},
            "/api/v1/keys/{id}": {"get": {}, "delete": {}},
        }});
        let methods = AllowedMethods::from_document(&document);
        assert_eq!(methods.allowed("/api/v1/keys"), "GET, HEAD, POST");
        assert_eq!(methods.allowed("/api/v1/keys/0123"), "DELETE, GET, HEAD");
        assert_eq!(methods.allowed("/swagger"), "GET, HEAD");
    }
}
