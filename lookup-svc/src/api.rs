//! The public API: four operations, and nothing else that is charged.

mod answer;
mod credential;
mod document;
mod error;
mod headers;
mod scope;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use api_key::ApiKey;
use poem::Addr;
use poem::error::MethodNotAllowedError;
use poem_openapi::{OpenApi, Tags};
use quota_client::ChargeError;
use quota_client::wire::Scope;
use service_kit::Alarm;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::fields::View;
use crate::lookup::{Lookup, Permit, Refusal};
use crate::metrics::{Ending, Operation, Tally};

use answer::{Demo, Found, Preflight};
use credential::{Call, Credential, KeyParam};
use error::Denial;
use scope::{Requested, ScopeParam};

pub use answer::Answers;
pub use document::Document;
pub use headers::{Finish, finish};

/// The operations and what they work with.
pub struct Api {
    /// Who calls, whether they may, what they see.
    pub lookup: Lookup,
    /// How it is said.
    pub answers: Answers,
    /// What is counted.
    pub tally: Arc<Tally>,
    /// Who is told of an outage.
    pub alarm: Alarm,
}

#[derive(Tags)]
enum Group {
    /// The look-up with an API key.
    Lookup,
    /// For trying it, without a key.
    Demo,
}

#[OpenApi]
impl Api {
    /// Look up the caller
    ///
    /// Returns the metadata of the requesting client: address, place, network operator and connection,
    /// as far as the key's scope shows them. A field outside the scope is absent; a field without data
    /// is null.
    #[oai(path = "/api/v1/ip", method = "get", operation_id = "get_ip", tag = "Group::Lookup")]
    async fn get_ip(
        &self,
        call: Call<'_>,
        credential: Credential<'_>,
        /// Fallback for clients that can't send a header: an API key. A Bearer header wins.
        #[oai(name = "key")]
        _key: KeyParam,
        /// Narrows the key's scope for this request only. It never widens: a broader value than the
        /// key's scope is ignored.
        scope: ScopeParam,
    ) -> Found {
        let answer = match self.permit(&credential, scope.0).await {
            Ok((permit, scope)) => {
                note(Operation::Lookup, Ending::Success, Some(scope));
                self.tally.ended(Operation::Lookup, Ending::Success);
                self.answers.success(&permit.limit, self.show(View::Scope(scope), &call))
            }
            Err(denial) => self.deny(Operation::Lookup, &denial),
        };
        Found(answer)
    }

    /// CORS preflight
    ///
    /// Needs no key and charges nothing.
    #[oai(path = "/api/v1/ip", method = "options", operation_id = "preflight_ip", tag = "Group::Lookup")]
    async fn preflight_ip(&self) -> Preflight {
        Preflight(self.answers.preflight())
    }

    /// Try it without a key
    ///
    /// A fixed set of fields: those of the scope `geo` and `http_protocol`, `tls_version`, `rtt`, `colo`.
    /// All anonymous callers share one daily quota; it is for trying the API, not for production.
    #[oai(path = "/api/v1/ip/demo", method = "get", operation_id = "get_demo", tag = "Group::Demo")]
    async fn get_demo(&self, call: Call<'_>) -> Demo {
        let answer = match self.lookup.charge_demo().await {
            Ok(permit) => {
                note(Operation::Demo, Ending::Success, None);
                self.tally.ended(Operation::Demo, Ending::Success);
                self.answers.success(&permit.limit, self.show(View::Demo, &call))
            }
            Err(refusal) => self.deny(Operation::Demo, &Denial::Refused(refusal)),
        };
        Demo(answer)
    }

    /// CORS preflight of the demo
    ///
    /// Charges nothing.
    #[oai(path = "/api/v1/ip/demo", method = "options", operation_id = "preflight_demo", tag = "Group::Demo")]
    async fn preflight_demo(&self) -> Preflight {
        Preflight(self.answers.preflight())
    }

    // poem would answer HEAD by running GET, and that charges.
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
    /// The checks in their order: a key, a scope, then the one call that charges.
    async fn permit(
        &self,
        credential: &Credential<'_>,
        wanted: Requested,
    ) -> Result<(Permit, Scope), Denial> {
        let key = credential.given().ok_or(Denial::MissingKey)?;
        let wanted = wanted.checked().map_err(|()| Denial::InvalidScope)?;
        let key = ApiKey::parse(key).map_err(|_| Denial::MalformedKey)?;
        let permit = self.lookup.charge(&key).await.map_err(Denial::Refused)?;
        let own = permit.scope.ok_or(Denial::NO_VERDICT)?;
        Ok((permit, wanted.map_or(own, |wanted| wanted.min(own))))
    }

    fn show(&self, view: View, call: &Call<'_>) -> Vec<u8> {
        // The server knows TCP peers only; anything else could not be anybody's address.
        let peer = match call.0.remote_addr().0 {
            Addr::SocketAddr(peer) => peer.ip(),
            _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        let caller = self.lookup.identify(peer, call.0.headers(), call.0.version());
        self.tally.decided(caller.decision);
        self.lookup.show(view, &caller)
    }

    fn deny(&self, operation: Operation, denial: &Denial) -> poem::Response {
        if let Denial::Refused(Refusal::NoVerdict(error)) = denial {
            self.complain(*error);
        }
        note(operation, denial.ending(), None);
        self.tally.ended(operation, denial.ending());
        self.answers.denial(operation, denial)
    }
}

impl Api {
    /// One line now and then, however many requests an outage costs.
    fn complain(&self, error: ChargeError) {
        if let Some(lost) = self.alarm.ring() {
            tracing::warn!(%error, lost, "requests are answered 500: quota-svc gives no verdict");
        }
    }
}

/// Tells the request's span, where traces are exported.
fn note(operation: Operation, ending: Ending, scope: Option<Scope>) {
    let span = Span::current();
    if span.is_disabled() {
        return;
    }
    span.record("outcome", ending.label());
    let scope = match (operation, scope) {
        (Operation::Demo, _) => "demo",
        (Operation::Lookup, None) => "none",
        (Operation::Lookup, Some(scope)) => scope::name(scope),
    };
    span.set_attribute("scope", scope);
}
