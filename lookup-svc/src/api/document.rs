//! The operations of the API, and the OpenAPI document that describes them.

use std::collections::HashMap;

use geo::{Field, Type};
use http::Method;
use poem::endpoint::BoxEndpoint;
use poem_openapi::auth::{ApiKey, Bearer};
use poem_openapi::registry::{
    MetaApi, MetaHeader, MetaMediaType, MetaOperation, MetaOperationParam, MetaParamIn, MetaPath,
    MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry,
};
use poem_openapi::types::Type as _;
use poem_openapi::{ApiExtractor, OpenApi, OpenApiService, SecurityScheme, Tags};
use quota_client::wire::{Limits, Scope};
use serde_json::Value;
use service_kit::ErrorBody;
use service_kit::openapi::{Example, OpenApiDocument};

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
    tag: Group,
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
        tag: Group::Lookup,
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
        tag: Group::Lookup,
        summary: "CORS preflight",
        description: "Needs no key. Does not count against any quota.",
        responses: &[(204, PREFLIGHT)],
    },
    ApiOperation {
        method: Method::GET,
        path: "/api/v1/ip/demo",
        id: Operation::Demo.as_str(),
        lookup: Some(Operation::Demo),
        tag: Group::Demo,
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
        tag: Group::Demo,
        summary: "CORS preflight of the demo",
        description: "Does not count against any quota.",
        responses: &[(204, PREFLIGHT)],
    },
];

const INTERNAL_ERROR: &str = "`internal_error`: a problem on the server. Retry with backoff.";
const PREFLIGHT: &str = "Cross-origin `GET` is allowed.";

const SUCCESS_SCHEMA: &str = "IpResponse";

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

/// Describes [`OPERATIONS`] to poem-openapi. `IETF`: with the headers of the IETF draft.
struct Described<const IETF: bool>;

impl<const IETF: bool> OpenApi for Described<IETF> {
    fn meta() -> Vec<MetaApi> {
        let paths = OPERATIONS.chunk_by(|a, b| a.path == b.path).map(|operations| MetaPath {
            path: operations[0].path.to_owned(),
            operations: operations.iter().map(|operation| operation.describe(IETF)).collect(),
        });
        vec![MetaApi { paths: paths.collect() }]
    }

    fn register(registry: &mut Registry) {
        OPERATIONS.iter().for_each(|operation| operation.tag.register(registry));
        BearerKey::register(registry);
        QueryKey::register(registry);
        ErrorBody::register(registry);
        registry.schemas.insert(SUCCESS_SCHEMA.to_owned(), success_schema());
    }

    /// None: [`Api`](super::Api) dispatches the requests.
    fn add_routes(self, _: &mut HashMap<String, HashMap<Method, BoxEndpoint<'static>>>) {}
}

/// The OpenAPI document. `server` is the URL of the API in it. `limits` are stated if they are known. `ietf`: whether the
/// service also sends the headers of the IETF draft.
pub fn document(server: &str, urls: &PublicUrls, limits: Option<Limits>, ietf: bool) -> OpenApiDocument {
    let generated = match ietf {
        true => generate(Described::<true>, server, limits),
        false => generate(Described::<false>, server, limits),
    };
    let generated = serde_json::from_str(&generated).expect("poem-openapi generates valid JSON");
    let mut document = OpenApiDocument::new(generated, &urls.docs);
    for (_, operation) in document.operations() {
        for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
            // An empty value counts as absent. poem-openapi can't describe that.
            parameter["allowEmptyValue"] = true.into();
        }
    }
    document.add_examples(examples(urls, limits));
    document
}

fn generate(api: impl OpenApi, server: &str, limits: Option<Limits>) -> String {
    let service = OpenApiService::new(api, "IP Lookup API", VERSION);
    service.description(format!("{DESCRIPTION}\n\n{}", limit_text(limits))).server(server).spec()
}

impl ApiOperation {
    fn describe(&self, ietf: bool) -> MetaOperation {
        let needs_key = self.lookup == Some(Operation::Lookup);
        let responses =
            self.responses.iter().map(|(status, description)| response(*status, description, ietf));
        MetaOperation {
            method: self.method.clone(),
            tags: vec![self.tag.name()],
            summary: Some(self.summary),
            description: Some(self.description),
            external_docs: None,
            params: if needs_key { parameters() } else { vec![] },
            request: None,
            responses: MetaResponses { responses: responses.collect() },
            deprecated: false,
            security: match needs_key {
                true => ["bearer", "key"].map(|scheme| HashMap::from([(scheme, vec![])])).into(),
                false => vec![],
            },
            operation_id: Some(self.id),
            code_samples: vec![],
        }
    }
}

fn parameters() -> Vec<MetaOperationParam> {
    let parameter = |name: &str, schema, description: &str| MetaOperationParam {
        name: name.to_owned(),
        schema: inline(schema),
        in_type: MetaParamIn::Query,
        description: Some(description.to_owned()),
        required: false,
        deprecated: false,
        explode: true,
        style: None,
    };
    vec![
        parameter(
            "key",
            MetaSchema::new("string"),
            "API key, if you can't set headers. A Bearer token in the `Authorization` header takes precedence.",
        ),
        parameter(
            "scope",
            one_of(Scope::ALL.iter().map(|scope| scope.as_str())),
            "Narrows the key's scope for this request. A scope broader than the key's is ignored.",
        ),
    ]
}

fn inline(schema: MetaSchema) -> MetaSchemaRef {
    MetaSchemaRef::Inline(Box::new(schema))
}

/// The schema of one of these texts.
fn one_of(texts: impl Iterator<Item = &'static str>) -> MetaSchema {
    MetaSchema { enum_items: texts.map(Value::from).collect(), ..MetaSchema::new("string") }
}

fn response(status: u16, description: &'static str, ietf: bool) -> MetaResponse {
    let schema = match status {
        204 => None,
        200 => Some(SUCCESS_SCHEMA.to_owned()),
        _ => Some(ErrorBody::name().into_owned()),
    };
    let content = schema.into_iter().map(|name| MetaMediaType {
        content_type: "application/json",
        schema: MetaSchemaRef::Reference(name),
    });
    MetaResponse {
        description,
        status: Some(status),
        status_range: None,
        content: content.collect(),
        headers: headers(status, ietf),
    }
}

/// The headers of responses with this status. Only those with numbers are always sent; the others are additions to the
/// contract.
fn headers(status: u16, ietf: bool) -> Vec<MetaHeader> {
    let header = |name: &str, description: &str, schema: MetaSchema| MetaHeader {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        required: schema.ty == "integer",
        deprecated: false,
        schema: inline(schema),
    };
    let number = || MetaSchema::new_with_format("integer", "int64");
    let text = |example: &str| MetaSchema { example: Some(example.into()), ..MetaSchema::new("string") };
    let mut headers = match status {
        200 => vec![
            header("X-RateLimit-Limit", "Requests allowed per day (UTC).", number()),
            header("X-RateLimit-Remaining", "Requests left today.", number()),
            header(
                "X-RateLimit-Reset",
                "Time of the next reset, midnight UTC: Unix time in seconds.",
                number(),
            ),
        ],
        204 => return vec![],
        401 => vec![header("WWW-Authenticate", "How to send the key.", text("Bearer"))],
        403 => vec![header(
            "X-Key-Reason",
            "Why the key can't be used. `deactivated`: its owner or the operator has deactivated it. `expired`: its time is over. `origin`: it is for other web pages. `suspended`: the operator has suspended its account.",
            one_of(
                ApiError::examples(Limits::default()).iter().filter_map(|(_, _, error)| error.key_reason()),
            ),
        )],
        429 => vec![
            header("Retry-After", "Seconds to wait before the next request.", number()),
            header("X-RateLimit-Limit", "The limit that was exceeded.", number()),
            header("X-RateLimit-Remaining", "Requests left within that limit.", number()),
            header("X-RateLimit-Reset", "Time at which the limit resets: Unix time in seconds.", number()),
            header(
                "X-RateLimit-Reason",
                "`burst`: this request exceeded the burst limit and paused the key. `paused`: the key was paused before. `daily`: the key's daily quota is used up. `demo`: the demo's shared quota is used up.",
                one_of(Reason::ALL.iter().map(|reason| reason.as_str())),
            ),
        ],
        _ => vec![],
    };
    headers.push(header(
        "X-Request-Id",
        "ID of this request. The log of the service has it next to an error.",
        text("5f2c1d9e8b7a4c3d9e0f1a2b3c4d5e6f"),
    ));
    if ietf && matches!(status, 200 | 429) {
        headers.push(header(
            "RateLimit",
            "The limit that applies, with the requests left (`r`) and the seconds until it resets (`t`). Format of draft-ietf-httpapi-ratelimit-headers-11.",
            text("\"daily\";r=9876;t=3600"),
        ));
        headers.push(header(
            "RateLimit-Policy",
            "The limit that applies, with its number of requests (`q`) and its window in seconds (`w`). Format of draft-ietf-httpapi-ratelimit-headers-11.",
            text("\"daily\";q=10000;w=86400"),
        ));
    }
    headers
}

fn success_schema() -> MetaSchema {
    MetaSchema {
        description: Some(
            "Details about the caller. Fields without data are null; fields outside the scope are absent. `status` is always present.",
        ),
        required: vec![STATUS],
        properties: fields::all().map(|field| (field.name, inline(property(field)))).collect(),
        ..MetaSchema::new("object")
    }
}

fn property(field: &Field) -> MetaSchema {
    let is_status = field.name == STATUS;
    MetaSchema {
        format: match field.ty {
            Type::Integer => Some("int64"),
            Type::Number => Some("double"),
            Type::String | Type::Boolean => None,
        },
        description: Some(field.description),
        nullable: !is_status,
        enum_items: if is_status { vec!["success".into()] } else { vec![] },
        example: serde_json::from_str(field.example).ok().filter(|example: &Value| !example.is_null()),
        ..MetaSchema::new(field.ty.as_str())
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
