//! Completes the OpenAPI documents that poem-openapi generates: examples of responses, operations that need no
//! authentication, license and contact.

use poem_openapi::types::Type as _;
use poem_openapi::{ContactObject, LicenseObject, OpenApi, OpenApiService, Webhook};
use serde_json::json;
pub use serde_yaml::{Mapping, Value};

use crate::error::ErrorBody;

/// An OpenAPI document that can be changed. Its keys keep their order, which serde_json's `Value` would not.
#[derive(Clone, Debug)]
pub struct OpenApiDocument(Value);

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
        Self { name: code, status, operations, value: to_value(&ErrorBody::new(code, message, docs)) }
    }
}

/// The license of all documents.
pub fn license() -> LicenseObject {
    LicenseObject::new("Apache-2.0").url("https://www.apache.org/licenses/LICENSE-2.0")
}

/// Whom users of an API ask: its operator, whose documentation is at `docs_url`.
pub fn contact(docs_url: Option<&str>) -> ContactObject {
    let contact = ContactObject::new().name("The operator of this service");
    match docs_url {
        Some(url) => contact.url(url),
        None => contact,
    }
}

impl OpenApiDocument {
    /// Generates the document of a service. Operations without a security requirement get `security: []`: linters take
    /// a missing field for an oversight.
    pub fn new<T: OpenApi, W: Webhook>(service: &OpenApiService<T, W>) -> Self {
        let document = serde_json::from_str(&service.spec()).expect("poem-openapi generates valid JSON");
        let mut document = Self(document);
        document.for_each_operation(|_, operation| {
            operation.entry("security".into()).or_insert_with(|| Value::Sequence(Vec::new()));
        });
        document
    }

    /// Changes every operation. `change` gets its method, too, in lowercase.
    pub fn for_each_operation(&mut self, mut change: impl FnMut(&str, &mut Mapping)) {
        let paths = self.0.get_mut("paths").and_then(Value::as_mapping_mut);
        let paths = paths.into_iter().flat_map(Mapping::values_mut).filter_map(Value::as_mapping_mut);
        for (method, operation) in paths.flat_map(Mapping::iter_mut) {
            change(method.as_str().unwrap_or_default(), as_mapping(operation));
        }
    }

    /// Adds examples to the responses that they belong to. Each is defined once, in `components`. An example without
    /// a response is left out.
    pub fn add_examples(&mut self, examples: Vec<Example<'_>>) {
        for example in examples {
            let path = format!("#/components/examples/{}", example.name);
            let reference = Value::from(Mapping::from_iter([("$ref".into(), path.into())]));
            let mut used = false;
            self.for_each_operation(|_, operation| {
                let id = operation.get("operationId").and_then(Value::as_str).unwrap_or_default();
                if !example.operations.is_empty() && !example.operations.contains(&id) {
                    return;
                }
                if let Some(body) = json_body(operation, example.status) {
                    let examples = child(body, "examples");
                    examples.insert(example.name.into(), reference.clone());
                    used = true;
                }
            });
            if used {
                let value: Mapping = [("value".into(), example.value)].into_iter().collect();
                let components = child(self.root(), "components");
                child(components, "examples").insert(example.name.into(), value.into());
            }
        }
    }

    /// Sets the example of error bodies, for the responses that have no other.
    pub fn set_default_error(&mut self, code: &str, message: &str, docs: &str) {
        let schemas = child(child(self.root(), "components"), "schemas");
        let example = to_value(&ErrorBody::new(code, message, docs));
        child(schemas, &ErrorBody::name()).insert("example".into(), example);
    }

    /// Adds a security scheme to all operations.
    pub fn require_for_all(&mut self, name: &str, scheme: Value) {
        let schemes = child(child(self.root(), "components"), "securitySchemes");
        schemes.insert(name.into(), scheme);
        let required: Mapping = [(name.into(), Value::Sequence(Vec::new()))].into_iter().collect();
        let requirements = vec![Value::from(required)];
        self.for_each_operation(|_, operation| {
            operation.insert("security".into(), requirements.clone().into());
        });
    }

    /// Adds a required header to all operations other than GET. `schema` describes its value.
    pub fn require_for_changes(&mut self, header: &str, schema_name: &str, schema: &serde_json::Value) {
        let schemas = child(child(self.root(), "components"), "schemas");
        schemas.insert(schema_name.into(), to_value(schema));
        let reference = json!({ "$ref": format!("#/components/schemas/{schema_name}") });
        let header = to_value(&json!({
            "name": header, "in": "header", "required": true, "deprecated": false, "explode": true, "schema": reference,
        }));
        self.for_each_operation(|method, operation| {
            if method != "get" {
                let parameters = operation.entry("parameters".into()).or_insert(Value::Sequence(Vec::new()));
                parameters.as_sequence_mut().expect("a list").push(header.clone());
            }
        });
    }

    /// The document as pretty-printed JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(&self.0).expect("keys are strings") + "\n"
    }

    /// The document as YAML.
    pub fn yaml(&self) -> String {
        serde_yaml::to_string(&self.0).expect("a YAML value can be written as YAML")
    }

    fn root(&mut self) -> &mut Mapping {
        as_mapping(&mut self.0)
    }
}

/// Converts a value, such as an example.
pub fn to_value(value: &impl serde::Serialize) -> Value {
    serde_yaml::to_value(value).expect("the value has only keys that are strings")
}

/// The JSON body of an operation's response with this status.
fn json_body(operation: &mut Mapping, status: u16) -> Option<&mut Mapping> {
    let response = operation.get_mut("responses")?.get_mut(status.to_string())?;
    response.get_mut("content")?.get_mut("application/json")?.as_mapping_mut()
}

/// The object at `key`, which is created if it does not exist.
fn child<'v>(parent: &'v mut Mapping, key: &str) -> &'v mut Mapping {
    as_mapping(parent.entry(key.into()).or_insert_with(|| Mapping::new().into()))
}

/// The value as an object. Anything else is replaced by an empty one.
fn as_mapping(value: &mut Value) -> &mut Mapping {
    if !value.is_mapping() {
        *value = Mapping::new().into();
    }
    value.as_mapping_mut().expect("the value is a mapping")
}

#[cfg(test)]
mod tests {
    use poem_openapi::ApiResponse;

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
        OpenApiDocument::new(&OpenApiService::new(Api, "t", "1").license(license()).contact(contact(None)))
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
    fn error_schema_has_a_default_example() {
        let mut document = document();
        document.set_default_error("internal_error", "Retry.", "/docs");
        let example = &parsed(&document)["components"]["schemas"]["ErrorResponse"]["example"];
        assert_eq!(example["docs"], "/docs#internal_error");
    }

    #[test]
    fn scheme_is_required_by_every_operation() {
        let mut document = document();
        document.require_for_all("token", to_value(&serde_json::json!({"type": "http"})));
        let document = parsed(&document);
        for path in ["/a", "/b"] {
            let security = &document["paths"][path]["get"]["security"];
            assert_eq!(*security, serde_json::json!([{"token": []}]), "{path}");
        }
        assert_eq!(document["components"]["securitySchemes"]["token"]["type"], "http");
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
