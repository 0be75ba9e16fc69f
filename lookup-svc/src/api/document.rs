//! What the OpenAPI document says about answers: statuses, headers and the two schemas.

use std::collections::HashMap;

use http::Method;
use poem::endpoint::BoxEndpoint;
use poem_openapi::registry::{
    MetaApi, MetaHeader, MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry,
};
use poem_openapi::types::Type as _;
use poem_openapi::{LicenseObject, OpenApi, OpenApiService};
use serde_json::Value;
use service_kit::ErrorBody;

use super::Api;
use crate::fields::{FIELDS, Field, STATUS, Type};

/// The version of the interface (SPEC, section 9), not of the program.
const VERSION: &str = "1.1.0";

const DESCRIPTION: &str = "Tells a client its own IP address, place, network operator and connection facts as JSON. \
What an answer contains depends on the scope of the API key: `ip`, `geo` or `full`. \
Queried addresses and response data are not stored.";

type Header = (&'static str, &'static str);

const DAY_NUMBERS: [Header; 3] = [
    ("X-RateLimit-Limit", "The daily limit."),
    ("X-RateLimit-Remaining", "Requests left today."),
    ("X-RateLimit-Reset", "Unix timestamp of the next reset at midnight UTC."),
];

const LIMIT_NUMBERS: [Header; 4] = [
    ("Retry-After", "Seconds to wait."),
    ("X-RateLimit-Limit", "The limit that was exceeded."),
    ("X-RateLimit-Remaining", "Requests left of it."),
    ("X-RateLimit-Reset", "Unix timestamp at which it starts anew."),
];

enum Content {
    Nothing,
    Success,
    Error,
}

/// One status of an operation.
pub(super) struct Described {
    status: u16,
    words: &'static str,
    content: Content,
    headers: &'static [Header],
}

const fn error(status: u16, words: &'static str) -> Described {
    Described { status, words, content: Content::Error, headers: &[] }
}

const FAILURE: Described = error(500, "`internal_error`: an unexpected failure; the client may retry.");

impl Described {
    pub(super) const LOOKUP: [Self; 6] = [
        Self {
            status: 200,
            words: "The metadata of the client, its fields limited by the effective scope.",
            content: Content::Success,
            headers: &DAY_NUMBERS,
        },
        error(400, "`invalid_scope`: `scope` is none of `ip`, `geo`, `full`. Nothing is charged."),
        error(401, "`missing_api_key`: no key was sent. `invalid_api_key`: the key does not exist."),
        error(403, "`inactive_api_key`: the key has been deactivated."),
        Self {
            headers: &LIMIT_NUMBERS,
            ..error(
                429,
                "`rate_limit_exceeded`: the daily quota is used up (the body has `enterprise`), or the burst limit was exceeded and the key is paused until its owner resumes it.",
            )
        },
        FAILURE,
    ];

    pub(super) const DEMO: [Self; 3] = [
        Self {
            status: 200,
            words: "The metadata of the client: the fields of the scope `geo` and `http_protocol`, `tls_version`, `rtt`, `colo`.",
            content: Content::Success,
            headers: &DAY_NUMBERS,
        },
        Self {
            headers: &LIMIT_NUMBERS,
            ..error(429, "`rate_limit_exceeded`: the shared demo quota is used up (the body has `signup`).")
        },
        FAILURE,
    ];

    pub(super) const PREFLIGHT: [Self; 1] =
        [Self { status: 204, words: "The preflight's answer.", content: Content::Nothing, headers: &[] }];
}

/// An operation's statuses for the document.
pub(super) fn responses(described: &[Described]) -> MetaResponses {
    let response = |one: &Described| MetaResponse {
        description: one.words,
        status: Some(one.status),
        status_range: None,
        content: match one.content {
            Content::Nothing => vec![],
            Content::Success => vec![json(SUCCESS)],
            Content::Error => vec![json(&ErrorBody::name())],
        },
        headers: one.headers.iter().map(header).collect(),
    };
    MetaResponses { responses: described.iter().map(response).collect() }
}

const SUCCESS: &str = "IpResponse";

fn json(schema: &str) -> MetaMediaType {
    MetaMediaType { content_type: "application/json", schema: MetaSchemaRef::Reference(schema.to_owned()) }
}

fn header((name, words): &Header) -> MetaHeader {
    MetaHeader {
        name: (*name).to_owned(),
        description: Some((*words).to_owned()),
        required: true,
        deprecated: false,
        schema: MetaSchemaRef::Inline(Box::new(MetaSchema::new_with_format("integer", "int64"))),
    }
}

/// Both schemas.
pub(super) fn register(registry: &mut Registry) {
    registry.create_schema::<crate::body::Body<'_>, _>(SUCCESS.to_owned(), |_| success());
    ErrorBody::register(registry);
}

fn success() -> MetaSchema {
    MetaSchema {
        description: Some(
            "What is known about the client. Every field but `status` is null where the data is unavailable and absent where the scope does not include it.",
        ),
        required: vec![STATUS],
        properties: FIELDS.iter().map(|field| (field.name, property(field))).collect(),
        ..MetaSchema::new("object")
    }
}

fn property(field: &Field) -> MetaSchemaRef {
    let is_status = field.name == STATUS;
    MetaSchemaRef::Inline(Box::new(MetaSchema {
        format: format(field.ty),
        description: Some(field.meaning),
        nullable: !is_status,
        enum_items: if is_status { vec!["success".into()] } else { vec![] },
        example: serde_json::from_str(field.example).ok().filter(|example: &Value| !example.is_null()),
        ..MetaSchema::new(field.ty.name())
    }))
}

fn format(ty: Type) -> Option<&'static str> {
    match ty {
        Type::Integer => Some("int64"),
        Type::Number => Some("double"),
        Type::String | Type::Boolean => None,
    }
}

/// The API's description without its state: what the document needs.
struct Contract;

impl OpenApi for Contract {
    fn meta() -> Vec<MetaApi> {
        Api::meta()
    }

    fn register(registry: &mut Registry) {
        <Api as OpenApi>::register(registry);
    }

    fn add_routes(self, _routes: &mut HashMap<String, HashMap<Method, BoxEndpoint<'static>>>) {}
}

/// The OpenAPI document, for an API that is found at one address.
pub struct Document(OpenApiService<Contract, ()>);

impl Document {
    /// The document of the API at `base_url`.
    pub fn new(base_url: &str) -> Self {
        let license = LicenseObject::new("Apache-2.0").url("https://www.apache.org/licenses/LICENSE-2.0");
        Self(
            OpenApiService::new(Contract, "IP Lookup API", VERSION)
                .description(DESCRIPTION)
                .license(license)
                .server(base_url),
        )
    }

    /// As JSON; the same at every run.
    pub fn json(&self) -> String {
        allow_empty(&self.0.spec(), r#""in": "query","#, r#""allowEmptyValue": true,"#)
    }

    /// As YAML.
    pub fn yaml(&self) -> String {
        allow_empty(&self.0.spec_yaml(), "in: query", "allowEmptyValue: true")
    }

    /// The framework's Swagger UI, whole in one page.
    pub fn swagger_ui(&self) -> String {
        self.0.swagger_ui_html()
    }
}

/// An empty parameter counts as not given, which poem-openapi has no way to say: it is written in
/// behind the place of each parameter (the security scheme has one too, but nothing follows it).
fn allow_empty(document: &str, place: &str, permission: &str) -> String {
    let mut written = String::with_capacity(document.len() + 128);
    let mut lines = document.lines().peekable();
    while let Some(line) = lines.next() {
        written.extend([line, "\n"]);
        let is_parameter = lines.peek().is_some_and(|next| next.contains("description"));
        if let (true, Some(indent)) = (is_parameter, line.strip_suffix(place)) {
            written.extend([indent, permission, "\n"]);
        }
    }
    written
}
