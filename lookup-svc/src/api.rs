//! The public API: two lookups, which are charged, and their CORS preflights, which are not.

mod document;
mod error;
mod request;
mod response;

use std::sync::Arc;

use api_key::ApiKey;
use base::log_throttle::LogThrottle;
use futures_util::FutureExt;
use http::HeaderValue;
use poem::error::NotFoundError;
use poem::{Endpoint, Request, Response};
use quota_client::wire::{Charge, RateLimit, Scope, Verdict, origin_hash};
use service_kit::telemetry::SPAN_TARGET;
use service_kit::{OperationId, method_not_allowed};
use tracing::{Instrument, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::fields::FieldSet;
use crate::lookup::{Backends, Caller};
use crate::metrics::{Operation, RequestCounters, RequestOutcome};

use document::OPERATIONS;
use error::ApiError;

pub use document::document;
pub use response::Responses;

/// The operations of the API.
#[derive(Clone)]
pub struct Api {
    pub backends: Arc<Backends>,
    pub responses: Responses,
    pub counters: Arc<RequestCounters>,
    /// Throttles the warnings about a quota-svc outage.
    pub outage_log: Arc<LogThrottle>,
}

/// Dispatches to the operations without poem-openapi's endpoints, which copy the query into strings, and whose futures contain
/// several copies of the request. Measured, together with fewer copies in the middleware: 3 to 8% less CPU time per request.
impl Endpoint for Api {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = poem::Result<Response>> + Send {
        let response = async move {
            let at_path = OPERATIONS.iter().filter(|operation| operation.path == request.uri().path());
            let Some(operation) = at_path.clone().find(|operation| operation.method == request.method())
            else {
                let methods: Vec<_> = at_path.map(|operation| operation.method.as_str()).collect();
                let allow = HeaderValue::try_from(methods.join(", ")).expect("methods are valid in a header");
                return Err(match methods.is_empty() {
                    true => NotFoundError.into(),
                    false => method_not_allowed(allow),
                });
            };
            let mut response = match operation.lookup {
                Some(lookup) => self.look_up(lookup, &request).await,
                None => self.responses.preflight(),
            };
            response.set_data(OperationId(operation.id));
            Ok(response)
        };
        // Boxed, because each middleware moves the future into its own.
        response.boxed()
    }
}

impl Api {
    async fn look_up(&self, operation: Operation, request: &Request) -> Response {
        let allowed = match operation {
            Operation::Lookup => self.authorize(request).await,
            Operation::Demo => self.charge(Charge::Demo).await.map(|(_, quota)| (FieldSet::Demo, quota)),
        };
        match allowed {
            Ok((field_set, quota)) => {
                self.record(operation, RequestOutcome::Success, Some(field_set));
                let caller = Caller::of(request);
                let client = caller.identify(&self.backends.edge, request, field_set.has_connection_facts());
                self.counters.count_client_ip(client.decision);
                self.responses.success(operation, &quota, self.backends.render(field_set, &client))
            }
            Err(error) => {
                if let ApiError::NoVerdict(error) = &error
                    && let Some(occurrences) = self.outage_log.allow()
                {
                    tracing::warn!(%error, occurrences, "requests fail with 500: no verdict from quota-svc");
                }
                self.record(operation, error.outcome(), None);
                self.responses.error(operation, &error)
            }
        }
    }

    /// Checks, in this order, that a key is present, that the scope is valid and that the key is well-formed. Then
    /// charges the key. The fields are those of the requested scope or of the key's, whichever is narrower.
    async fn authorize(&self, request: &Request) -> Result<(FieldSet, RateLimit), ApiError> {
        let query = request.uri().query();
        let key = request::key(request.headers(), query).ok_or(ApiError::MissingKey)?;
        let requested = request::scope(query)?;
        let key = ApiKey::parse(&key).map_err(|_| ApiError::MalformedKey)?;
        let origin = request::origin(request.headers()).map(origin_hash);
        let (key_scope, quota) = self.charge(Charge::Key { digest: key.digest(), origin }).await?;
        let key_scope = key_scope.ok_or(ApiError::NO_VERDICT)?;
        let scope = requested.map_or(key_scope, |requested| requested.min(key_scope));
        Ok((FieldSet::Scope(scope), quota))
    }

    /// Returns the scope, which the demo does not have, and the daily quota of an allowed request.
    async fn charge(&self, charge: Charge) -> Result<(Option<Scope>, RateLimit), ApiError> {
        // Enabled only if traces are exported. The call to quota-svc carries its trace context.
        let span = tracing::trace_span!(target: SPAN_TARGET, "quota.charge", otel.kind = "client");
        match self.backends.charger.charge(charge).instrument(span).await {
            Ok(Verdict::Allowed { scope, rate_limit }) => Ok((scope, rate_limit)),
            Ok(denial) => Err(ApiError::Denied(denial)),
            Err(error) => Err(ApiError::NoVerdict(error)),
        }
    }

    /// Counts the outcome, and records it and the scope in the request's span, which is enabled only if traces are
    /// exported.
    fn record(&self, operation: Operation, outcome: RequestOutcome, fields: Option<FieldSet>) {
        self.counters.count_request(operation, outcome);
        let span = Span::current();
        if span.is_disabled() {
            return;
        }
        span.record("outcome", outcome.as_str());
        let scope = match (operation, fields) {
            (Operation::Lookup, Some(FieldSet::Scope(scope))) => scope.as_str(),
            (Operation::Lookup, _) => "none",
            (Operation::Demo, _) => "demo",
        };
        span.set_attribute("scope", scope);
    }
}
