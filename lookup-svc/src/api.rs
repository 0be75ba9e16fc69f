//! The public API: two lookups, which are charged, and their CORS preflights, which are not.

mod document;
mod error;
mod headers;
mod rate_limit;
mod request;
mod response;

use std::sync::Arc;

use api_key::ApiKey;
use base::log_throttle::LogThrottle;
use futures_util::FutureExt;
use http::Method;
use poem::error::{MethodNotAllowedError, NotFoundError};
use poem::{Endpoint, Request, Response};
use poem_openapi::OperationId;
use quota_client::ChargeError;
use quota_client::wire::{Charge, RateLimit, Scope, Verdict, origin_hash};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::caller::Caller;
use crate::fields::FieldSet;
use crate::lookup::Backends;
use crate::metrics::{Operation, RequestCounters, RequestOutcome};

use error::ApiError;

pub use document::Document;
pub use response::Responses;

const IP_PATH: &str = "/api/v1/ip";
const DEMO_PATH: &str = "/api/v1/ip/demo";

/// The operations of the API.
#[derive(Clone)]
pub struct Api {
    pub backends: Arc<Backends>,
    pub responses: Responses,
    pub counters: Arc<RequestCounters>,
    /// Throttles the warnings about a quota-svc outage.
    pub outage_log: Arc<LogThrottle>,
}

/// Handles the operations that `document` describes. poem-openapi's own endpoints are not used: they copy the query into
/// strings, and their futures contain several copies of the request, so each move of such a future copies them all.
impl Endpoint for Api {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = poem::Result<Response>> + Send {
        let response = async move {
            let (mut response, operation) = match (request.uri().path(), request.method()) {
                (IP_PATH, &Method::GET) => (self.get_ip(&request).await, Operation::Lookup.as_str()),
                (IP_PATH, &Method::OPTIONS) => (self.responses.preflight(), "preflight_ip"),
                (DEMO_PATH, &Method::GET) => (self.get_demo(&request).await, Operation::Demo.as_str()),
                (DEMO_PATH, &Method::OPTIONS) => (self.responses.preflight(), "preflight_demo"),
                (IP_PATH | DEMO_PATH, _) => return Err(MethodNotAllowedError.into()),
                _ => return Err(NotFoundError.into()),
            };
            response.set_data(OperationId(operation));
            Ok(response)
        };
        // Boxed, because each middleware moves the future into its own.
        response.boxed()
    }
}

impl Api {
    async fn get_ip(&self, request: &Request) -> Response {
        match self.authorize(request).await {
            Ok((scope, quota)) => {
                self.record(Operation::Lookup, RequestOutcome::Success, Some(scope));
                self.success_response(&quota, FieldSet::Scope(scope), request)
            }
            Err(error) => self.error_response(Operation::Lookup, &error),
        }
    }

    async fn get_demo(&self, request: &Request) -> Response {
        match self.charge(Charge::Demo).await {
            Ok((_, quota)) => {
                self.record(Operation::Demo, RequestOutcome::Success, None);
                self.success_response(&quota, FieldSet::Demo, request)
            }
            Err(error) => self.error_response(Operation::Demo, &error),
        }
    }

    /// Checks, in this order, that a key is present, that the scope is valid and that the key is well-formed. Then
    /// charges the key. Returns the scope of the response: the requested scope or the key's, whichever is narrower.
    async fn authorize(&self, request: &Request) -> Result<(Scope, RateLimit), ApiError> {
        let query = request.uri().query();
        let key = request::key(request.headers(), query).ok_or(ApiError::MissingKey)?;
        let requested = request::scope(query)?;
        let key = ApiKey::parse(&key).map_err(|_| ApiError::MalformedKey)?;
        let origin = request::origin(request.headers()).map(origin_hash);
        let (key_scope, quota) = self.charge(Charge::Key { digest: key.digest(), origin }).await?;
        let key_scope = key_scope.ok_or(ApiError::NO_VERDICT)?;
        Ok((requested.map_or(key_scope, |requested| requested.min(key_scope)), quota))
    }

    /// Returns the scope, which the demo does not have, and the daily quota of an allowed request.
    async fn charge(&self, charge: Charge) -> Result<(Option<Scope>, RateLimit), ApiError> {
        match self.backends.charge(charge).await {
            Ok(Verdict::Allowed { scope, rate_limit }) => Ok((scope, rate_limit)),
            Ok(denial) => Err(ApiError::Denied(denial)),
            Err(error) => Err(ApiError::NoVerdict(error)),
        }
    }

    fn success_response(&self, quota: &RateLimit, field_set: FieldSet, request: &Request) -> Response {
        let caller = Caller::of(request);
        let client = caller.identify(&self.backends.edge, request, field_set.has_connection_facts());
        self.counters.count_client_ip(client.decision);
        let operation = match field_set {
            FieldSet::Scope(_) => Operation::Lookup,
            FieldSet::Demo => Operation::Demo,
        };
        self.responses.success(operation, quota, self.backends.render(field_set, &client))
    }

    fn error_response(&self, operation: Operation, error: &ApiError) -> Response {
        if let ApiError::NoVerdict(cause) = error {
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
        span.record("outcome", outcome.as_str());
        let scope = match (operation, scope) {
            (Operation::Demo, _) => "demo",
            (Operation::Lookup, None) => "none",
            (Operation::Lookup, Some(scope)) => scope.as_str(),
        };
        span.set_attribute("scope", scope);
    }
}
