//! The JSON API: its operations, and the checks and headers of its requests.

mod account;
mod admin;
mod contact;
mod context;
mod csrf;
mod keys;
mod quota;

use std::sync::Arc;

use account::AccountApi;
use admin::AdminApi;
use contact::ContactApi;
use keys::KeysApi;
use poem_openapi::{OpenApiService, Tags};
use quota::QuotaApi;
use serde_json::json;
use service_kit::error::INTERNAL_ERROR;
use service_kit::openapi::{self, OpenApiDocument};

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

type Service = OpenApiService<(AccountApi, ContactApi, KeysApi, QuotaApi, AdminApi), ()>;

/// Returns the OpenAPI document as pretty-printed JSON.
pub fn document(context: &Arc<Context>) -> anyhow::Result<String> {
    let mut document = OpenApiDocument::new(&service(context));
    let description =
        "Must be `1` in every request other than GET. Pages of other origins can't set this header.";
    let schema = json!({ "type": "string", "enum": [csrf::VALUE], "description": description });
    document.require_for_changes("X-CSRF-Token", "CsrfToken", &schema);
    error::add_examples(&mut document, &context.docs_url);
    document.set_default_error("internal_error", INTERNAL_ERROR, &context.docs_url);
    Ok(service_kit::json::sorted(&document.json())?)
}

/// The operations, without middleware.
pub fn service(context: &Arc<Context>) -> Service {
    let (account, contact) = (AccountApi(context.clone()), ContactApi(context.clone()));
    let (keys, quota) = (KeysApi(context.clone()), QuotaApi(context.clone()));
    let apis = (account, contact, keys, quota, AdminApi(context.clone()));
    OpenApiService::new(apis, "IP lookup dashboard", "1.1.0")
        .description(include_str!("api/description.md"))
        .contact(openapi::contact(Some(&context.docs_url)))
        .license(openapi::license())
        .server("/")
        .url_prefix(PREFIX)
}
