//! The public API: two lookups, which are charged, and their CORS preflights, which are not.

mod document;
mod error;
mod examples;
mod headers;
mod rate_limit;
mod request_key;
mod response;
mod scope;

use std::sync::Arc;

use api_key::ApiKey;
use http_server::LogThrottle;
use poem::error::MethodNotAllowedError;
use poem::{Endpoint, Request, Response};
use poem_openapi::{OpenApi, OperationId, Tags};
use quota_client::ChargeError;
use quota_client::wire::Scope;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::caller::Caller;
use crate::fields::FieldSet;
use crate::lookup::{Allowed, Denial, Lookup};
use crate::metrics::{Operation, RequestCounters, RequestOutcome};

use error::ApiError;
use request_key::{KeyParam, RawRequest, RequestKey};
use response::{DemoResponse, LookupResponse, PreflightResponse};
use scope::{RequestedScope, ScopeParam};

pub use document::Document;
pub use response::Responses;

/// The operations of the API.
#[derive(Clone)]
pub struct Api {
    pub lookup: Arc<Lookup>,
    pub responses: Responses,
    pub counters: Arc<RequestCounters>,
    /// Throttles the warnings about a quota-svc outage.
    pub outage_log: Arc<LogThrottle>,
}

/// The path of the operation `get_ip`.
pub const GET_IP_PATH: &str = "/api/v1/ip";
const GET_IP: &str = "get_ip";

/// The operation `get_ip` as an endpoint. The future of poem-openapi's endpoint contains several copies of the request, so
/// each move of that future copies them all.
pub struct GetIp(pub Api);

impl Endpoint for GetIp {
    type Output = Response;

    #[expect(clippy::manual_async_fn, reason = "an `async fn` would hold a second copy of the request")]
    fn call(&self, request: Request) -> impl Future<Output = poem::Result<Response>> + Send {
        async move {
            let (headers, query) = (request.headers(), request.uri().query());
            let (key, scope) = (RequestKey::find(headers, query), ScopeParam::find(query));
            let mut response = self.0.get_ip(RawRequest(&request), key, KeyParam, scope).await.0;
            response.set_data(OperationId(GET_IP));
            Ok(response)
        }
    }
}

#[derive(Tags)]
enum Group {
    /// Lookups with an API key.
    Lookup,
    /// Lookups without a key, to try the API.
    Demo,
}

#[OpenApi]
impl Api {
    /// Look up the caller
    ///
    /// Returns the caller's IP address, location, network and connection details as JSON. The key's scope
    /// limits the fields. Fields outside the scope are absent; fields without data are null.
    #[oai(path = "/api/v1/ip", method = "get", operation_id = "get_ip", tag = "Group::Lookup")]
    async fn get_ip(
        &self,
        request: RawRequest<'_>,
        request_key: RequestKey<'_>,
        /// API key, if you can't set headers. A Bearer token in the `Authorization` header takes precedence.
        #[oai(name = "key")]
        _key: KeyParam,
        /// Narrows the key's scope for this request. A scope broader than the key's is ignored.
        scope: ScopeParam,
    ) -> LookupResponse {
        LookupResponse(match self.authorize(&request_key, scope.0).await {
            Ok((allowed, scope)) => {
                self.record(Operation::Lookup, RequestOutcome::Success, Some(scope));
                self.success_response(&allowed, FieldSet::Scope(scope), &request)
            }
            Err(error) => self.error_response(Operation::Lookup, &error),
        })
    }

    /// CORS preflight
    ///
    /// Needs no key. Does not count against any quota.
    #[oai(path = "/api/v1/ip", method = "options", operation_id = "preflight_ip", tag = "Group::Lookup")]
    async fn preflight_ip(&self) -> PreflightResponse {
        PreflightResponse(self.responses.preflight())
    }

    /// Look up the caller without a key
    ///
    /// Returns the fields of the scope `geo`, plus `http_protocol`, `tls_version`, `rtt` and `colo`.
    /// All callers without a key share one daily quota. For trying the API, not for production.
    #[oai(path = "/api/v1/ip/demo", method = "get", operation_id = "get_demo", tag = "Group::Demo")]
    async fn get_demo(&self, request: RawRequest<'_>) -> DemoResponse {
        DemoResponse(match self.lookup.charge_demo().await {
            Ok(allowed) => {
                self.record(Operation::Demo, RequestOutcome::Success, None);
                self.success_response(&allowed, FieldSet::Demo, &request)
            }
            Err(denial) => self.error_response(Operation::Demo, &ApiError::Denied(denial)),
        })
    }

    /// CORS preflight of the demo
    ///
    /// Does not count against any quota.
    #[oai(path = "/api/v1/ip/demo", method = "options", operation_id = "preflight_demo", tag = "Group::Demo")]
    async fn preflight_demo(&self) -> PreflightResponse {
        PreflightResponse(self.responses.preflight())
    }

    // Without the next two methods, poem would handle HEAD like GET, and the request would be charged.
    #[oai(path = "/api/v1/ip", method = "head", hidden)]
    async fn no_head_ip(&self) -> poem::Result<()> {
        Err(MethodNotAllowedError.into())
    }

    #[oai(path = "/api/v1/ip/demo", method = "head", hidden)]
    async fn no_head_demo(&self) -> poem::Result<()> {
        Err(MethodNotAllowedError.into())
    }
}

impl Api {
    /// Checks, in this order, that a key is present, that the scope is valid and that the key is well-formed. Then
    /// charges the key. Returns the scope of the response: the requested scope or the key's, whichever is narrower.
    async fn authorize(
        &self,
        key: &RequestKey<'_>,
        requested: RequestedScope,
    ) -> Result<(Allowed, Scope), ApiError> {
        let key = key.as_str().ok_or(ApiError::MissingKey)?;
        let requested = requested?;
        let key = ApiKey::parse(key).map_err(|_| ApiError::MalformedKey)?;
        let allowed = self.lookup.charge(&key).await.map_err(ApiError::Denied)?;
        let key_scope = allowed.scope.ok_or(ApiError::NO_VERDICT)?;
        Ok((allowed, requested.map_or(key_scope, |requested| requested.min(key_scope))))
    }

    fn success_response(&self, allowed: &Allowed, field_set: FieldSet, request: &RawRequest<'_>) -> Response {
        let caller = Caller::of(request.0);
        let client = caller.identify(&self.lookup.edge, request.0, field_set.has_connection_facts());
        self.counters.count_client_ip(client.decision);
        let operation = match field_set {
            FieldSet::Scope(_) => Operation::Lookup,
            FieldSet::Demo => Operation::Demo,
        };
        self.responses.success(operation, &allowed.rate_limit, self.lookup.render(field_set, &client))
    }

    fn error_response(&self, operation: Operation, error: &ApiError) -> Response {
        if let ApiError::Denied(Denial::NoVerdict(cause)) = error {
            self.warn_outage(*cause);
        }
        self.record(operation, error.outcome(), None);
        self.responses.error(operation, error)
    }

    fn warn_outage(&self, error: ChargeError) {
        if let Some(occurrences) = self.outage_log.allow() {
            tracing::warn!(%error, occurrences, "requests fail with 500: no verdict from quota-svc");
        }
    }

    /// Counts the outcome, and records it and the scope in the request's span, which is enabled only if traces are
    /// exported.
    fn record(&self, operation: Operation, outcome: RequestOutcome, scope: Option<Scope>) {
        self.counters.count_request(operation, outcome);
        let span = Span::current();
        if span.is_disabled() {
            return;
        }
        span.record("outcome", outcome.label());
        let scope = match (operation, scope) {
            (Operation::Demo, _) => "demo",
            (Operation::Lookup, None) => "none",
            (Operation::Lookup, Some(scope)) => scope::name(scope),
        };
        span.set_attribute("scope", scope);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_ip_is_called_at_its_documented_path() {
        let document: serde_json::Value =
            serde_json::from_str(include_str!("../../openapi/lookup-svc.json")).expect("valid JSON");
        assert_eq!(document["paths"][GET_IP_PATH]["get"]["operationId"], GET_IP);
    }
}
