//! The OpenAPI document: the operations with their statuses, headers, schemas and examples.

use geo::{Field, Type};
use poem::{IntoResponse, Response};
use poem_openapi::auth::{ApiKey, Bearer};
use poem_openapi::param::Query;
use poem_openapi::registry::{
    MetaHeader, MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry,
};
use poem_openapi::types::Type as _;
use poem_openapi::{ApiResponse, OpenApi, OpenApiService, SecurityScheme, Tags};
use quota_client::wire::{Limits, Scope};
use serde_json::{Value, json};
use service_kit::ErrorBody;
use service_kit::openapi::{self, Example, Mapping, OpenApiDocument};

use super::error::{ApiError, ErrorBodies};
use super::rate_limit::Reason;
use crate::fields::{self, FieldSet, STATUS};
use crate::metrics::Operation;
use crate::public_urls::PublicUrls;
use crate::quota_status::grouped;

/// Version of the API, not of the program.
const VERSION: &str = "1.1.0";

const DESCRIPTION: &str = "Returns the caller's IP address, location, network and connection details as JSON. \
The key's scope (`ip`, `geo`, `full`) decides which fields are returned. \
Client addresses and responses are not stored or logged.";

/// Name, description and value of a response header.
type Header = (&'static str, &'static str, HeaderValue);

#[derive(Clone, Copy)]
enum HeaderValue {
    /// A number that is always sent.
    Integer,
    /// One of these texts. Optional: an addition to the contract.
    OneOf(fn() -> Vec<&'static str>),
    /// A text such as this one. Optional, too.
    Text(&'static str),
}

/// The header that all responses but those of preflights have.
const REQUEST_ID: Header = (
    "X-Request-Id",
    "ID of this request. The log of the service has it next to an error.",
    HeaderValue::Text("5f2c1d9e8b7a4c3d9e0f1a2b3c4d5e6f"),
);

const UNAUTHORIZED_HEADERS: [Header; 1] =
    [("WWW-Authenticate", "How to send the key.", HeaderValue::Text("Bearer"))];

const SUCCESS_HEADERS: [Header; 3] = [
    ("X-RateLimit-Limit", "Requests allowed per day (UTC).", HeaderValue::Integer),
    ("X-RateLimit-Remaining", "Requests left today.", HeaderValue::Integer),
    (
        "X-RateLimit-Reset",
        "Time of the next reset, midnight UTC: Unix time in seconds.",
        HeaderValue::Integer,
    ),
];

const TOO_MANY_REQUESTS_HEADERS: [Header; 5] = [
    ("Retry-After", "Seconds to wait before the next request.", HeaderValue::Integer),
    ("X-RateLimit-Limit", "The limit that was exceeded.", HeaderValue::Integer),
    ("X-RateLimit-Remaining", "Requests left within that limit.", HeaderValue::Integer),
    ("X-RateLimit-Reset", "Time at which the limit resets: Unix time in seconds.", HeaderValue::Integer),
    (
        "X-RateLimit-Reason",
        "`burst`: this request exceeded the burst limit and paused the key. `paused`: the key was paused before. `daily`: the key's daily quota is used up. `demo`: the demo's shared quota is used up.",
        HeaderValue::OneOf(|| Reason::ALL.iter().map(|reason| reason.as_str()).collect()),
    ),
];

const FORBIDDEN_HEADERS: [Header; 1] = [(
    "X-Key-Reason",
    "Why the key can't be used. `deactivated`: its owner or the operator has deactivated it. `expired`: its time is over. `origin`: it is for other web pages. `suspended`: the operator has suspended its account.",
    HeaderValue::OneOf(|| {
        let examples = ApiError::examples(Limits::default());
        examples.iter().filter_map(|(_, _, error)| error.key_reason()).collect()
    }),
)];

/// The headers of the IETF draft: name, description and example.
const DRAFT_HEADERS: [[&str; 3]; 2] = [
    [
        "RateLimit",
        "The limit that applies, with the requests left (`r`) and the seconds until it resets (`t`). Format of draft-ietf-httpapi-ratelimit-headers-11.",
        "\"daily\";r=9876;t=3600",
    ],
    [
        "RateLimit-Policy",
        "The limit that applies, with its number of requests (`q`) and its window in seconds (`w`). Format of draft-ietf-httpapi-ratelimit-headers-11.",
        "\"daily\";q=10000;w=86400",
    ],
];

enum Content {
    Empty,
    Success,
    Error,
}

/// The description of one status of an operation.
struct ResponseDoc {
    status: u16,
    description: &'static str,
    content: Content,
    headers: &'static [Header],
}

const fn error(status: u16, description: &'static str) -> ResponseDoc {
    ResponseDoc { status, description, content: Content::Error, headers: &[] }
}

const INTERNAL_ERROR: ResponseDoc =
    error(500, "`internal_error`: a problem on the server. Retry with backoff.");

impl ResponseDoc {
    const LOOKUP: [Self; 6] = [
        Self {
            status: 200,
            description: "Details about the caller. The key's scope selects the fields; a narrower `scope` parameter selects fewer.",
            content: Content::Success,
            headers: &SUCCESS_HEADERS,
        },
        error(
            400,
            "`invalid_scope`: `scope` is not `ip`, `geo` or `full`. The request does not count against your quota.",
        ),
        Self {
            headers: &UNAUTHORIZED_HEADERS,
            ..error(401, "`missing_api_key`: no key was sent. `invalid_api_key`: the key does not exist.")
        },
        Self {
            headers: &FORBIDDEN_HEADERS,
            ..error(
                403,
                "`inactive_api_key`: the key is deactivated, has expired, or may not be used by this web page.",
            )
        },
        Self {
            headers: &TOO_MANY_REQUESTS_HEADERS,
            ..error(
                429,
                "`rate_limit_exceeded`: the daily quota is used up (the body then has the field `enterprise`), or the key exceeded the burst limit and is paused until its owner resumes it.",
            )
        },
        INTERNAL_ERROR,
    ];

    const DEMO: [Self; 3] = [
        Self {
            status: 200,
            description: "Details about the caller: the fields of the scope `geo`, plus `http_protocol`, `tls_version`, `rtt` and `colo`.",
            content: Content::Success,
            headers: &SUCCESS_HEADERS,
        },
        Self {
            headers: &TOO_MANY_REQUESTS_HEADERS,
            ..error(
                429,
                "`rate_limit_exceeded`: the shared demo quota is used up (the body has the field `signup`).",
            )
        },
        INTERNAL_ERROR,
    ];

    const PREFLIGHT: [Self; 1] = [Self {
        status: 204,
        description: "Cross-origin `GET` is allowed.",
        content: Content::Empty,
        headers: &[],
    }];
}

/// The responses of an operation, as poem-openapi needs them.
fn responses(docs: &[ResponseDoc]) -> MetaResponses {
    let response = |doc: &ResponseDoc| MetaResponse {
        description: doc.description,
        status: Some(doc.status),
        status_range: None,
        content: match doc.content {
            Content::Empty => vec![],
            Content::Success => vec![media_type(SUCCESS_SCHEMA)],
            Content::Error => vec![media_type(&ErrorBody::name())],
        },
        headers: doc
            .headers
            .iter()
            .chain(Some(&REQUEST_ID).filter(|_| !matches!(doc.content, Content::Empty)))
            .map(header)
            .collect(),
    };
    MetaResponses { responses: docs.iter().map(response).collect() }
}

const SUCCESS_SCHEMA: &str = "IpResponse";

fn media_type(schema: &str) -> MetaMediaType {
    MetaMediaType { content_type: "application/json", schema: MetaSchemaRef::Reference(schema.to_owned()) }
}

fn header((name, description, value): &Header) -> MetaHeader {
    let (required, schema) = match value {
        HeaderValue::Integer => (true, MetaSchema::new_with_format("integer", "int64")),
        HeaderValue::OneOf(texts) => {
            let enum_items = texts().into_iter().map(Value::from).collect();
            (false, MetaSchema { enum_items, ..MetaSchema::new("string") })
        }
        HeaderValue::Text(example) => {
            (false, MetaSchema { example: Some((*example).into()), ..MetaSchema::new("string") })
        }
    };
    MetaHeader {
        name: (*name).to_owned(),
        description: Some((*description).to_owned()),
        required,
        deprecated: false,
        schema: MetaSchemaRef::Inline(Box::new(schema)),
    }
}

fn success() -> MetaSchema {
    MetaSchema {
        description: Some(
            "Details about the caller. Fields without data are null; fields outside the scope are absent. `status` is always present.",
        ),
        required: vec![STATUS],
        properties: fields::all().map(|field| (field.name, property(field))).collect(),
        ..MetaSchema::new("object")
    }
}

fn property(field: &Field) -> MetaSchemaRef {
    let is_status = field.name == STATUS;
    MetaSchemaRef::Inline(Box::new(MetaSchema {
        format: format(field.ty),
        description: Some(field.description),
        nullable: !is_status,
        enum_items: if is_status { vec!["success".into()] } else { vec![] },
        example: serde_json::from_str(field.example).ok().filter(|example: &Value| !example.is_null()),
        ..MetaSchema::new(field.ty.as_str())
    }))
}

fn format(ty: Type) -> Option<&'static str> {
    match ty {
        Type::Integer => Some("int64"),
        Type::Number => Some("double"),
        Type::String | Type::Boolean => None,
    }
}

/// Describes the operations. Only for the document: [`Api`](super::Api) handles the requests.
struct Operations;

#[derive(Tags)]
enum Group {
    /// Lookups with an API key.
    Lookup,
    /// Lookups without a key, to try the API.
    Demo,
}

/// API key in the `Authorization` header.
#[derive(SecurityScheme)]
#[oai(ty = "bearer", rename = "bearer")]
struct BearerKey(#[expect(dead_code, reason = "only described")] Bearer);

/// API key in the query string, if you can't set headers. A Bearer token in the `Authorization` header takes precedence.
#[derive(SecurityScheme)]
#[oai(ty = "api_key", rename = "key", key_in = "query", key_name = "key")]
struct QueryKey(#[expect(dead_code, reason = "only described")] ApiKey);

#[derive(SecurityScheme)]
#[expect(dead_code, reason = "only described")]
enum Key {
    Bearer(BearerKey),
    Query(QueryKey),
}

#[OpenApi]
impl Operations {
    /// Look up the caller
    ///
    /// Returns the caller's IP address, location, network and connection details as JSON. The key's scope
    /// limits the fields. Fields outside the scope are absent; fields without data are null.
    #[oai(path = "/api/v1/ip", method = "get", operation_id = "get_ip", tag = "Group::Lookup")]
    async fn get_ip(
        &self,
        _authorization: Key,
        /// API key, if you can't set headers. A Bearer token in the `Authorization` header takes precedence.
        #[oai(name = "key")]
        _key: Query<Option<String>>,
        /// Narrows the key's scope for this request. A scope broader than the key's is ignored.
        #[oai(name = "scope")]
        _scope: Query<Option<String>>,
    ) -> LookupResponse {
        LookupResponse
    }

    /// CORS preflight
    ///
    /// Needs no key. Does not count against any quota.
    #[oai(path = "/api/v1/ip", method = "options", operation_id = "preflight_ip", tag = "Group::Lookup")]
    async fn preflight_ip(&self) -> PreflightResponse {
        PreflightResponse
    }

    /// Look up the caller without a key
    ///
    /// Returns the fields of the scope `geo`, plus `http_protocol`, `tls_version`, `rtt` and `colo`.
    /// All callers without a key share one daily quota. For trying the API, not for production.
    #[oai(path = "/api/v1/ip/demo", method = "get", operation_id = "get_demo", tag = "Group::Demo")]
    async fn get_demo(&self) -> DemoResponse {
        DemoResponse
    }

    /// CORS preflight of the demo
    ///
    /// Does not count against any quota.
    #[oai(path = "/api/v1/ip/demo", method = "options", operation_id = "preflight_demo", tag = "Group::Demo")]
    async fn preflight_demo(&self) -> PreflightResponse {
        PreflightResponse
    }
}

macro_rules! described_response {
    ($name:ident, $docs:expr) => {
        struct $name;

        impl IntoResponse for $name {
            fn into_response(self) -> Response {
                Response::default()
            }
        }

        impl ApiResponse for $name {
            fn meta() -> MetaResponses {
                responses(&$docs)
            }

            fn register(registry: &mut Registry) {
                registry.create_schema::<FieldSet, _>(SUCCESS_SCHEMA.to_owned(), |_| success());
                ErrorBody::register(registry);
            }
        }
    };
}

described_response!(LookupResponse, ResponseDoc::LOOKUP);
described_response!(DemoResponse, ResponseDoc::DEMO);
described_response!(PreflightResponse, ResponseDoc::PREFLIGHT);

/// The OpenAPI document of the API.
pub struct Document(OpenApiDocument);

impl Document {
    /// `server` is the URL of the API in the document. `limits` are stated if they are known. `ietf`: whether the service
    /// also sends the headers of the IETF draft.
    pub fn new(server: &str, urls: &PublicUrls, limits: Option<Limits>, ietf: bool) -> Self {
        let service = OpenApiService::new(Operations, "IP Lookup API", VERSION)
            .description(format!("{DESCRIPTION}\n\n{}", limit_text(limits)))
            .contact(openapi::contact(Some(&urls.docs)))
            .license(openapi::license())
            .server(server);
        let mut document = OpenApiDocument::new(&service);
        document.for_each_operation(|_, operation| {
            describe_parameters(operation);
            if ietf {
                add_draft_headers(operation);
            }
        });
        document.add_examples(examples(urls, limits));
        Self(document)
    }

    /// The document as JSON. The text is deterministic, so that a test can compare it with the committed file.
    pub fn json(&self) -> String {
        self.0.json()
    }

    pub fn yaml(&self) -> String {
        self.0.yaml()
    }
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

/// Adds what poem-openapi can't describe: an empty query parameter counts as absent, and `scope` is one of three values.
fn describe_parameters(operation: &mut Mapping) {
    let parameters = operation.get_mut("parameters").and_then(openapi::Value::as_sequence_mut);
    for parameter in parameters.into_iter().flatten().filter_map(openapi::Value::as_mapping_mut) {
        parameter.insert("allowEmptyValue".into(), true.into());
        let is_scope = parameter.get("name").and_then(openapi::Value::as_str) == Some("scope");
        let schema = parameter.get_mut("schema").and_then(openapi::Value::as_mapping_mut);
        if let Some(schema) = schema.filter(|_| is_scope) {
            let names: Vec<_> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
            schema.insert("enum".into(), names.into());
        }
    }
}

/// Adds the headers of the draft to the responses that have headers about limits. They are an addition that clients must
/// not rely on.
fn add_draft_headers(operation: &mut Mapping) {
    let responses = operation.get_mut("responses").and_then(openapi::Value::as_mapping_mut);
    let headers = responses.into_iter().flat_map(Mapping::values_mut).filter_map(|response| {
        let headers = response.get_mut("headers").and_then(openapi::Value::as_mapping_mut);
        headers.filter(|headers| headers.contains_key("X-RateLimit-Limit"))
    });
    for headers in headers {
        headers.extend(DRAFT_HEADERS.map(|[name, description, example]| {
            let header = json!({
                "description": description,
                "required": false,
                "schema": {"type": "string", "example": example},
            });
            (name.into(), openapi::to_value(&header))
        }));
    }
}

/// Bodies that the API really responds with.
fn examples(urls: &PublicUrls, limits: Option<Limits>) -> Vec<Example<'static>> {
    let example = |name, operation, status, body: &[u8]| Example {
        name,
        status,
        operations: match operation {
            Operation::Lookup => &["get_ip"],
            Operation::Demo => &["get_demo"],
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
    let bodies = ErrorBodies::new(urls);
    let errors =
        ApiError::examples(limits.unwrap_or_default()).into_iter().map(|(name, operation, error)| {
            let (status, body) = bodies.status_and_body(operation, &error);
            example(name, operation, status.as_u16(), &body)
        });
    successes.into_iter().chain(errors).collect()
}
