//! The JSON API: its operations, and the checks and headers of its requests.

mod account;
mod admin;
mod contact;
mod context;
mod csrf;
mod keys;
mod quota;

use std::collections::HashMap;
use std::sync::Arc;

use account::AccountApi;
use admin::AdminApi;
use contact::ContactApi;
use http::{HeaderValue, Method};
use keys::KeysApi;
use poem::endpoint::{BoxEndpoint, make_sync};
use poem::{EndpointExt, Response};
use poem_openapi::registry::{MetaApi, Registry};
use poem_openapi::{OpenApi, OpenApiService, Tags};
use quota::QuotaApi;
use serde_json::json;
use service_kit::error::INTERNAL_ERROR;
use service_kit::openapi::OpenApiDocument;
use service_kit::{ErrorBody, method_not_allowed};

use crate::error;

pub use context::Context;
pub use csrf::CsrfGuard;

pub use crate::error::respond;

pub const PREFIX: &str = "/api/v1";
/// The only operation that pages of other origins may call.
pub const QUOTA_PATH: &str = "/api/v1/quota";

/// Sections of the OpenAPI document.
#[derive(Tags)]
enum Tag {
    /// Sign-up, sign-in, sign-out, the account and the public settings.
    Account,
    /// API keys and their state, usage and events.
    Keys,
    /// What the holder of an API key can ask with it.
    Quota,
    /// All accounts and keys, for accounts with the role `admin`.
    Admin,
}

type Apis = (AccountApi, ContactApi, KeysApi, QuotaApi, AdminApi);

/// Returns the OpenAPI document as pretty-printed JSON.
pub fn document(context: &Arc<Context>) -> anyhow::Result<String> {
    let generated = serde_json::from_str(&service(context).spec())?;
    let mut document = OpenApiDocument::new(generated, &context.docs_url);
    document.0["components"]["schemas"]["CsrfToken"] = json!({
        "type": "string",
        "enum": [csrf::VALUE],
        "description": "Must be `1` in every request other than GET. Pages of other origins can't set this header.",
    });
    let header = json!({
        "name": "X-CSRF-Token",
        "in": "header",
        "required": true,
        "deprecated": false,
        "explode": true,
        "schema": { "$ref": "#/components/schemas/CsrfToken" },
    });
    for (_, operation) in document.operations().filter(|(method, _)| *method != "get") {
        match operation["parameters"].as_array_mut() {
            Some(parameters) => parameters.push(header.clone()),
            None => operation["parameters"] = json!([header]),
        }
    }
    error::add_examples(&mut document, &context.docs_url);
    let internal_error = ErrorBody::new("internal_error", INTERNAL_ERROR, &context.docs_url);
    document.0["components"]["schemas"]["ErrorResponse"]["example"] = json!(internal_error);
    document.0.sort_all_objects();
    Ok(document.json())
}

/// The operations, without middleware.
pub fn service(context: &Arc<Context>) -> OpenApiService<WithAllow<Apis>, ()> {
    let (account, contact) = (AccountApi(context.clone()), ContactApi(context.clone()));
    let (keys, quota) = (KeysApi(context.clone()), QuotaApi(context.clone()));
    let apis = (account, contact, keys, quota, AdminApi(context.clone()));
    OpenApiService::new(WithAllow(apis), "IP lookup dashboard", "1.1.0")
        .description(include_str!("api/description.md"))
        .server("/")
        .url_prefix(PREFIX)
}

/// Operations whose paths respond to other methods with 405 and a list of theirs.
pub struct WithAllow<T>(T);

impl<T: OpenApi> OpenApi for WithAllow<T> {
    fn meta() -> Vec<MetaApi> {
        T::meta()
    }

    fn register(registry: &mut Registry) {
        T::register(registry);
    }

    fn add_routes(self, paths: &mut HashMap<String, HashMap<Method, BoxEndpoint<'static>>>) {
        self.0.add_routes(paths);
        for operations in paths.values_mut() {
            let mut supported: Vec<_> = operations.keys().map(Method::to_string).collect();
            // poem responds to HEAD like to GET.
            supported.extend(operations.contains_key(&Method::GET).then(|| "HEAD".to_owned()));
            supported.sort_unstable();
            let allow = HeaderValue::try_from(supported.join(", ")).expect("methods are valid in a header");
            for method in METHODS.iter().filter(|method| !supported.iter().any(|name| name == *method)) {
                let allow = allow.clone();
                let rejected = make_sync(move |_| Err::<Response, _>(method_not_allowed(allow.clone())));
                operations.insert(method.parse().expect("a method"), rejected.boxed());
            }
        }
    }
}

const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];
