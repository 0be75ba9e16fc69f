//! The operations of the API, and the OpenAPI document that describes them.

use geo::{Field, Type};
use http::Method;
use quota_client::wire::{Limits, Scope};
use serde_json::{Map, Value, json};
use service_kit::openapi::{Example, OpenApiDocument, error_schema};

use super::error::{ApiError, Reason};
use crate::fields::{self, FieldSet, STATUS};
use crate::metrics::Operation;
use crate::public_urls::PublicUrls;
use crate::quota_status::grouped;

/// Version of the API, not of the program.
const VERSION: &str = "1.1.0";

const DESCRIPTION: &str = "Returns the caller's IP address, location, network and connection details as JSON. \
The key's scope (`ip`, `geo`, `full`) decides which fields are returned. \
Client addresses and responses are not stored or logged.";

/// An operation. [`Api`](super::Api) dispatches to it, and the OpenAPI document describes it.
pub(super) struct ApiOperation {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) id: &'static str,
    /// What is charged and looked up. `None` for a CORS preflight.
    pub(super) lookup: Option<Operation>,
    tag: &'static str,
    summary: &'static str,
    description: &'static str,
    /// The statuses of the responses, with descriptions.
    responses: &'static [(u16, &'static str)],
}

/// All operations.
pub(super) static OPERATIONS: [ApiOperation; 4] = [
    ApiOperation {
        method: Method::GET,
        path: "/api/v1/ip",
        id: Operation::Lookup.as_str(),
        lookup: Some(Operation::Lookup),
        tag: "Lookup",
        summary: "Look up the caller",
        description: "Returns the caller's IP address, location, network and connection details as JSON. The key's scope\n\
            limits the fields. Fields outside the scope are absent; fields without data are null.",
        responses: &[
            (
                200,
                "Details about the caller. The key's scope selects the fields; a narrower `scope` parameter selects fewer.",
            ),
            (
                400,
                "`invalid_scope`: `scope` is not `ip`, `geo` or `full`. The request does not count against your quota.",
            ),
            (401, "`missing_api_key`: no key was sent. `invalid_api_key`: the key does not exist."),
            (
                403,
                "`inactive_api_key`: the key is deactivated, has expired, or may not be used by this web page.",
            ),
            (
                429,
                "`rate_limit_exceeded`: the daily quota is used up (the body then has the field `enterprise`), or the key exceeded the burst limit and is paused until its owner resumes it.",
            ),
            (500, INTERNAL_ERROR),
        ],
    },
    ApiOperation {
        method: Method::OPTIONS,
        path: "/api/v1/ip",
        id: "preflight_ip",
        lookup: None,
        tag: "Lookup",
        summary: "CORS preflight",
        description: "Needs no key. Does not count against any quota.",
        responses: &[(204, PREFLIGHT)],
    },
    ApiOperation {
        method: Method::GET,
        path: "/api/v1/ip/demo",
        id: Operation::Demo.as_str(),
        lookup: Some(Operation::Demo),
        tag: "Demo",
        summary: "Look up the caller without a key",
        description: "Returns the fields of the scope `geo`, plus `http_protocol`, `tls_version`, `rtt` and `colo`.\n\
            All callers without a key share one daily quota. For trying the API, not for production.",
        responses: &[
            (
                200,
                "Details about the caller: the fields of the scope `geo`, plus `http_protocol`, `tls_version`, `rtt` and `colo`.",
            ),
            (
                429,
                "`rate_limit_exceeded`: the shared demo quota is used up (the body has the field `signup`).",
            ),
            (500, INTERNAL_ERROR),
        ],
    },
    ApiOperation {
        method: Method::OPTIONS,
        path: "/api/v1/ip/demo",
        id: "preflight_demo",
        lookup: None,
        tag: "Demo",
        summary: "CORS preflight of the demo",
        description: "Does not count against any quota.",
        responses: &[(204, PREFLIGHT)],
    },
];

const INTERNAL_ERROR: &str = "`internal_error`: a problem on the server. Retry with backoff.";
const PREFLIGHT: &str = "Cross-origin `GET` is allowed.";

/// The OpenAPI document. `server` is the URL of the API in it. `limits` are stated if they are known. `ietf`: whether the
/// service also sends the headers of the IETF draft.
pub fn document(server: &str, urls: &PublicUrls, limits: Option<Limits>, ietf: bool) -> OpenApiDocument {
    let mut paths = json!({});
    for operation in &OPERATIONS {
        let method = operation.method.as_str().to_lowercase();
        paths[operation.path][method] = operation.describe(ietf);
    }
    let document = json!({
        "openapi": "3.0.0",
        "info": {
            "title": "IP Lookup API",
            "description": format!("{DESCRIPTION}\n\n{}", limit_text(limits)),
            "version": VERSION,
        },
        "servers": [{ "url": server }],
        "tags": [
            { "name": "Demo", "description": "Lookups without a key, to try the API." },
            { "name": "Lookup", "description": "Lookups with an API key." },
        ],
        "paths": paths,
        "components": {
            "schemas": { "ErrorResponse": error_schema(), "IpResponse": success_schema() },
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "description": "API key in the `Authorization` header.",
                    "scheme": "bearer",
                },
                "key": {
                    "type": "apiKey",
                    "description": "API key in the query string, if you can't set headers. A Bearer token in the `Authorization` header takes precedence.",
                    "name": "key",
                    "in": "query",
                },
            },
        },
    });
    let mut document = OpenApiDocument::new(document, &urls.docs);
    document.add_examples(examples(urls, limits));
    document
}

impl ApiOperation {
    fn describe(&self, ietf: bool) -> Value {
        let needs_key = self.lookup == Some(Operation::Lookup);
        let mut operation =
            json!({ "tags": [self.tag], "summary": self.summary, "description": self.description });
        if needs_key {
            operation["parameters"] = parameters();
        }
        for (status, description) in self.responses {
            operation["responses"][status.to_string()] = response(*status, description, ietf);
        }
        if needs_key {
            operation["security"] = json!([{ "bearer": [] }, { "key": [] }]);
        }
        operation["operationId"] = self.id.into();
        operation
    }
}

fn parameters() -> Value {
    let scopes: Vec<_> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
    let parameter = |name: &str, schema: Value, description: &str| {
        json!({
            "name": name,
            "schema": schema,
            "in": "query",
            "description": description,
            "required": false,
            "deprecated": false,
            "explode": true,
            // An empty value counts as absent.
            "allowEmptyValue": true,
        })
    };
    json!([
        parameter(
            "key",
            json!({ "type": "string" }),
            "API key, if you can't set headers. A Bearer token in the `Authorization` header takes precedence.",
        ),
        parameter(
            "scope",
            json!({ "type": "string", "enum": scopes }),
            "Narrows the key's scope for this request. A scope broader than the key's is ignored.",
        ),
    ])
}

fn response(status: u16, description: &str, ietf: bool) -> Value {
    let schema = match status {
        204 => return json!({ "description": description }),
        200 => "#/components/schemas/IpResponse",
        _ => "#/components/schemas/ErrorResponse",
    };
    json!({
        "description": description,
        "content": { "application/json": { "schema": { "$ref": schema } } },
        "headers": headers(status, ietf),
    })
}

/// The headers of responses with this status. Only those with numbers are always sent; the others are additions to the
/// contract.
fn headers(status: u16, ietf: bool) -> Value {
    let number = |description: &str| {
        let schema = json!({ "type": "integer", "format": "int64" });
        json!({ "description": description, "required": true, "deprecated": false, "schema": schema })
    };
    let text = |description: &str, example: &str| {
        let schema = json!({ "type": "string", "example": example });
        json!({ "description": description, "deprecated": false, "schema": schema })
    };
    let one_of = |description: &str, texts: Vec<&str>| {
        let schema = json!({ "type": "string", "enum": texts });
        json!({ "description": description, "deprecated": false, "schema": schema })
    };
    let mut headers = match status {
        200 => json!({
            "X-RateLimit-Limit": number("Requests allowed per day (UTC)."),
            "X-RateLimit-Remaining": number("Requests left today."),
            "X-RateLimit-Reset": number("Time of the next reset, midnight UTC: Unix time in seconds."),
        }),
        401 => json!({ "WWW-Authenticate": text("How to send the key.", "Bearer") }),
        403 => json!({
            "X-Key-Reason": one_of(
                "Why the key can't be used. `deactivated`: its owner or the operator has deactivated it. `expired`: its time is over. `origin`: it is for other web pages. `suspended`: the operator has suspended its account.",
                ApiError::examples(Limits::default()).iter().filter_map(|(_, _, error)| error.key_reason()).collect(),
            ),
        }),
        429 => json!({
            "Retry-After": number("Seconds to wait before the next request."),
            "X-RateLimit-Limit": number("The limit that was exceeded."),
            "X-RateLimit-Remaining": number("Requests left within that limit."),
            "X-RateLimit-Reset": number("Time at which the limit resets: Unix time in seconds."),
            "X-RateLimit-Reason": one_of(
                "`burst`: this request exceeded the burst limit and paused the key. `paused`: the key was paused before. `daily`: the key's daily quota is used up. `demo`: the demo's shared quota is used up.",
                Reason::ALL.iter().map(|reason| reason.as_str()).collect(),
            ),
        }),
        _ => json!({}),
    };
    headers["X-Request-Id"] = text(
        "ID of this request. The log of the service has it next to an error.",
        "5f2c1d9e8b7a4c3d9e0f1a2b3c4d5e6f",
    );
    if ietf && matches!(status, 200 | 429) {
        headers["RateLimit"] = text(
            "The limit that applies, with the requests left (`r`) and the seconds until it resets (`t`). Format of draft-ietf-httpapi-ratelimit-headers-11.",
            "\"daily\";r=9876;t=3600",
        );
        headers["RateLimit-Policy"] = text(
            "The limit that applies, with its number of requests (`q`) and its window in seconds (`w`). Format of draft-ietf-httpapi-ratelimit-headers-11.",
            "\"daily\";q=10000;w=86400",
        );
    }
    headers
}

fn success_schema() -> Value {
    let properties: Map<_, _> = fields::all().map(|field| (field.name.to_owned(), property(field))).collect();
    json!({
        "type": "object",
        "description": "Details about the caller. Fields without data are null; fields outside the scope are absent. `status` is always present.",
        "required": [STATUS],
        "properties": properties,
    })
}

fn property(field: &Field) -> Value {
    let mut property = json!({ "type": field.ty.as_str() });
    match field.ty {
        Type::Integer => property["format"] = "int64".into(),
        Type::Number => property["format"] = "double".into(),
        Type::String | Type::Boolean => {}
    }
    property["description"] = field.description.into();
    match field.name {
        STATUS => property["enum"] = json!(["success"]),
        _ => property["nullable"] = true.into(),
    }
    let example = serde_json::from_str(field.example).unwrap_or(Value::Null);
    if !example.is_null() {
        property["example"] = example;
    }
    property
}

fn limit_text(limits: Option<Limits>) -> String {
    let Some(Limits { daily, burst, demo }) = limits else {
        return "`X-RateLimit-Limit` shows the limit that applies.".to_owned();
    };
    format!(
        "Limits of this service: {} requests per day and key, unless its operator has set another limit for the key; {} \
         requests per key within 60 seconds; {} demo requests per day, shared by all callers.",
        grouped(daily),
        grouped(burst),
        grouped(demo),
    )
}

/// Bodies that the API really responds with.
fn examples(urls: &PublicUrls, limits: Option<Limits>) -> Vec<Example<'static>> {
    let example = |name, operation, status, body: &[u8]| Example {
        name,
        status,
        operations: match operation {
            Operation::Lookup => const { &[Operation::Lookup.as_str()] },
            Operation::Demo => const { &[Operation::Demo.as_str()] },
        },
        value: serde_json::from_slice(body).expect("the bodies of the API are valid JSON"),
    };
    let successes = [
        ("full", Operation::Lookup, FieldSet::Scope(Scope::Full)),
        ("geo", Operation::Lookup, FieldSet::Scope(Scope::Geo)),
        ("ip", Operation::Lookup, FieldSet::Scope(Scope::Ip)),
        ("demo", Operation::Demo, FieldSet::Demo),
    ];
    let successes =
        successes.map(|(name, operation, fields)| example(name, operation, 200, fields.example().as_bytes()));
    let errors =
        ApiError::examples(limits.unwrap_or_default()).into_iter().map(|(name, operation, error)| {
            let (status, body) = error.status_and_body(operation, urls);
            example(name, operation, status.as_u16(), &body)
        });
    successes.into_iter().chain(errors).collect()
}
