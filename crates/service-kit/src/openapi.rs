//! Completes the OpenAPI documents that poem-openapi generates: examples of responses, operations that need no
//! authentication, license and contact.

use serde_json::{Map, Value, json};

use crate::error::ErrorBody;

/// An OpenAPI document that can be changed. Its keys keep their order: the workspace enables serde_json's
/// `preserve_order`.
#[derive(Clone, Debug)]
pub struct OpenApiDocument(pub Value);

/// An example of a response body.
#[derive(Clone, Debug)]
pub struct Example<'a> {
    /// Name of the example, unique for its value.
    pub name: &'a str,
    /// Status of the response.
    pub status: u16,
    /// IDs of the operations that can respond with it. Empty: all operations that document the status.
    pub operations: &'a [&'a str],
    /// The body.
    pub value: Value,
}

impl<'a> Example<'a> {
    /// An example of an error, named after its code.
    pub fn error(status: u16, operations: &'a [&'a str], code: &'a str, message: &str, docs: &str) -> Self {
        Self { name: code, status, operations, value: json!(ErrorBody::new(code, message, docs)) }
    }
}

impl OpenApiDocument {
    /// Adds the license, and whom users ask: the operator, whose documentation is at `docs_url`. Operations without a
    /// security requirement get `security: []`: linters take a missing field for an oversight.
    pub fn new(document: Value, docs_url: &str) -> Self {
        let mut document = Self(document);
        document.0["info"]["contact"] = json!({ "name": "The operator of this service", "url": docs_url });
        document.0["info"]["license"] =
            json!({ "name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0" });
        for (_, operation) in document.operations() {
            if operation["security"].is_null() {
                operation["security"] = json!([]);
            }
        }
        document
    }

    /// All operations with their methods, in lowercase.
    pub fn operations(&mut self) -> impl Iterator<Item = (&String, &mut Value)> {
        let paths = self.0["paths"].as_object_mut().into_iter().flat_map(Map::values_mut);
        paths.filter_map(Value::as_object_mut).flatten()
    }

    /// Adds examples to the responses that they belong to. Each is defined once, in `components`. An example without
    /// a response is left out.
    pub fn add_examples(&mut self, examples: Vec<Example<'_>>) {
        for Example { name, status, operations, value } in examples {
            let body = format!("/responses/{status}/content/application~1json");
            let mut used = false;
            for (_, operation) in self.operations() {
                let id = operation["operationId"].as_str().unwrap_or_default();
                let responds = operations.is_empty() || operations.contains(&id);
                if let Some(body) = operation.pointer_mut(&body).filter(|_| responds) {
                    body["examples"][name] = json!({ "$ref": format!("#/components/examples/{name}") });
                    used = true;
                }
            }
            if used {
                self.0["components"]["examples"][name] = json!({ "value": value });
            }
        }
    }

    /// The document as pretty-printed JSON.
    pub fn json(&self) -> String {
        format!("{:#}\n", self.0)
    }

    /// The document as YAML.
    pub fn yaml(&self) -> String {
        serde_yaml::to_string(&self.0).expect("a JSON value can be written as YAML")
    }
}

#[cfg(test)]
mod tests {
    use poem_openapi::{ApiResponse, OpenApi, OpenApiService};

    use super::*;
    use crate::SerdeJson;

    struct Api;

    #[derive(ApiResponse)]
    #[expect(dead_code, reason = "only its description is used")]
    enum Failure {
        /// Not found.
        #[oai(status = 404)]
        NotFound(SerdeJson<ErrorBody>),
    }

    #[OpenApi]
    impl Api {
        #[oai(path = "/a", method = "get", operation_id = "a")]
        async fn a(&self) -> Result<SerdeJson<u32>, Failure> {
            Ok(SerdeJson(1))
        }

        #[oai(path = "/b", method = "get", operation_id = "b")]
        async fn b(&self) -> Result<SerdeJson<u32>, Failure> {
            Ok(SerdeJson(1))
        }
    }

    fn document() -> OpenApiDocument {
        let generated = OpenApiService::new(Api, "t", "1").spec();
        OpenApiDocument::new(serde_json::from_str(&generated).expect("JSON"), "/docs")
    }

    fn parsed(document: &OpenApiDocument) -> serde_json::Value {
        serde_json::from_str(&document.json()).expect("JSON")
    }

    #[test]
    fn open_operations_have_an_empty_list_of_requirements() {
        let document = parsed(&document());
        for path in ["/a", "/b"] {
            assert_eq!(document["paths"][path]["get"]["security"], serde_json::json!([]), "{path}");
        }
    }

    #[test]
    fn example_is_defined_once_and_shown_by_its_operations() {
        let mut document = document();
        document.add_examples(vec![
            Example::error(404, &["b"], "gone", "It is gone.", "/docs"),
            Example::error(409, &[], "unused", "No operation has this status.", "/docs"),
        ]);
        let document = parsed(&document);
        let shown = |path: &str| {
            document["paths"][path]["get"]["responses"]["404"]["content"]["application/json"]["examples"]
                .clone()
        };
        assert_eq!(shown("/a"), serde_json::Value::Null);
        assert_eq!(shown("/b"), serde_json::json!({"gone": {"$ref": "#/components/examples/gone"}}));
        let expected = serde_json::json!({"gone": {"value":
            {"error": "gone", "message": "It is gone.", "docs": "/docs#gone"}}});
        assert_eq!(document["components"]["examples"], expected);
    }

    #[test]
    fn keys_keep_their_order_in_json_and_yaml() {
        let document = document();
        let (json, yaml) = (document.json(), document.yaml());
        let position = |text: &str, key: &str| text.find(key).expect(key);
        assert!(position(&json, "\"openapi\"") < position(&json, "\"info\""), "{json}");
        assert!(position(&yaml, "openapi:") < position(&yaml, "info:"), "{yaml}");
    }
}
