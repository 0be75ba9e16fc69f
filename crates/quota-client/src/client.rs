//! [`QuotaClient`]: typed calls to quota-svc's internal API over one connection pool.

mod accounts;
mod charge_calls;
mod keys;
mod transfer;
mod transport;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use reqwest::{RequestBuilder, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::error::ClientError;
use crate::token::QuotaToken;
pub(crate) use charge_calls::ChargeCalls;
use charge_calls::ChargeTarget;
use quota_api::{Actor, ChargeRequest, ChargeResponse, Status};

/// Maximum response size in bytes. The largest response is a page of an export.
const MAX_RESPONSE: usize = 16 << 20;

/// Timeout of the calls of operators' commands. Longer than every timeout of quota-svc, so that its own error message
/// arrives.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// How often [`QuotaClient::wait_for_store`] asks for the state of the store.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);

/// Client of quota-svc's internal API. Clones share the connections.
#[derive(Debug, Clone)]
pub struct QuotaClient {
    http: reqwest::Client,
    base: Arc<Url>,
    charges: ChargeTarget,
    timeout: Duration,
    token: Option<QuotaToken>,
    actor: Option<Actor>,
    inject_context: Option<fn(&mut HeaderMap)>,
    deadline: Option<fn() -> Option<Instant>>,
}

impl QuotaClient {
    /// Creates a client of the quota-svc at `base_url`, such as `http://127.0.0.1:8082`. `timeout` limits each call.
    pub fn new(base_url: &str, timeout: Duration) -> Result<Self, ClientError> {
        Self::build(transport::api_root(base_url)?, transport::http_client(None)?, timeout)
    }

    /// Creates a client of the quota-svc that is reached through a Unix socket. Not for a [`crate::Charger`].
    pub fn over_socket(path: &Path, timeout: Duration) -> Result<Self, ClientError> {
        // The host is only the `Host` header, which must be a loopback name.
        let base = transport::api_root("http://localhost")?;
        Self::build(base, transport::http_client(Some(path))?, timeout)
    }

    fn build(base: Url, http: reqwest::Client, timeout: Duration) -> Result<Self, ClientError> {
        Ok(Self {
            http,
            charges: ChargeTarget::new(&base)?,
            base: Arc::new(base),
            timeout,
            token: None,
            actor: None,
            inject_context: None,
            deadline: None,
        })
    }

    /// Sends this token with every request. Without a token, a quota-svc that requires one responds with 401.
    #[must_use]
    pub fn with_token(self, token: Option<&QuotaToken>) -> Self {
        Self { token: token.cloned(), ..self }
    }

    /// Names who makes the changes of this client. The events of the changed keys record it.
    #[must_use]
    pub fn acting_as(self, actor: Actor) -> Self {
        Self { actor: Some(actor), ..self }
    }

    /// Adds headers to each request, on behalf of the request that its caller handles: its ID and its trace context. Not to
    /// the charges of a [`crate::Charger`], which belong to several requests.
    #[must_use]
    pub fn with_context(self, inject: fn(&mut HeaderMap)) -> Self {
        Self { inject_context: Some(inject), ..self }
    }

    /// Ends each call at the deadline of the request that its caller handles, if `deadline` returns one. Not the charges
    /// of a [`crate::Charger`].
    #[must_use]
    pub fn with_deadline(self, deadline: fn() -> Option<Instant>) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// Charges a batch in one call. Services use [`crate::Charger`] instead.
    pub async fn charge(&self, charges: &ChargeRequest) -> Result<ChargeResponse, ClientError> {
        let request = self.request(Method::POST, &["charges"], &[])?.json(charges);
        self.send_and_parse(request).await
    }

    /// The calls of a [`crate::Charger`] to the same quota-svc.
    pub(crate) fn charge_calls(&self) -> ChargeCalls {
        ChargeCalls::new(self.charges.clone(), self.token.clone())
    }

    /// Returns the state of quota-svc: whether its store can be used, and its limits. A quota-svc of an earlier version responds with 404.
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.get(&["status"], &[]).await
    }

    /// Waits until the store of quota-svc can be used, and passes each new reason why it can't to `report`.
    ///
    /// A quota-svc of an earlier version can't tell: it counts as one whose store can be used.
    pub async fn wait_for_store(&self, report: impl Fn(&str)) {
        let mut reported = String::new();
        loop {
            let reason = match self.status().await {
                Ok(Status { store_unavailable: None, .. }) => return,
                Ok(Status { store_unavailable: Some(reason), .. }) => reason,
                Err(error) if error.status() == Some(404) => return,
                Err(error) => error.to_string(),
            };
            if reason != reported {
                report(&reason);
                reported = reason;
            }
            sleep(STATUS_INTERVAL).await;
        }
    }

    /// Builds a request. `path` may contain untrusted IDs: an ID that could change the path is treated as not found.
    fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<RequestBuilder, ClientError> {
        let is_plain =
            |part: &&str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') && !part.is_empty();
        if !path.iter().all(is_plain) {
            return Err(ClientError::not_found());
        }
        let mut url = Url::clone(&self.base);
        url.set_path(&format!("{}/{}", url.path(), path.join("/")));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut context = HeaderMap::new();
        if let Some(inject) = self.inject_context {
            inject(&mut context);
        }
        Ok(self.http.request(method, url).headers(context).timeout(self.time_for_call()?))
    }

    /// Fails if no time is left: a change must not be sent if nobody waits for its result.
    fn time_for_call(&self) -> Result<Duration, ClientError> {
        let Some(deadline) = self.deadline.and_then(|deadline| deadline()) else { return Ok(self.timeout) };
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(ClientError::Unreachable("the deadline of the request has passed".into())),
            remaining => Ok(remaining.min(self.timeout)),
        }
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        self.send_and_parse(self.request(Method::GET, path, query)?).await
    }

    async fn send_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.send_and_parse(self.request(method, path, query)?.json(body)).await
    }

    async fn send_and_parse<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        transport::parse(&self.send(request).await?)
    }

    /// Sends a request and ignores the body of its response.
    async fn send_no_content(&self, request: RequestBuilder) -> Result<(), ClientError> {
        self.send(request).await.map(drop)
    }

    /// Sends a request with the token, and once more if quota-svc rejects the token and the file has a new one.
    async fn send(&self, request: RequestBuilder) -> Result<Vec<u8>, ClientError> {
        let Some(token) = &self.token else { return transport::send(request, MAX_RESPONSE).await };
        let (sent, repeated) = (token.header(), request.try_clone());
        let result = transport::send(request.header(AUTHORIZATION, &sent), MAX_RESPONSE).await;
        match repeated {
            Some(request) if is_unauthorized(&result) && token.has_replaced(&sent) => {
                transport::send(request.header(AUTHORIZATION, token.header()), MAX_RESPONSE).await
            }
            _ => result,
        }
    }
}

fn is_unauthorized<T>(result: &Result<T, ClientError>) -> bool {
    result.as_ref().is_err_and(|error| error.status() == Some(401))
}
