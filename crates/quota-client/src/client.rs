//! The typed calls of quota-svc's internal API over one pool of connections.

mod accounts;
mod keys;
mod transfer;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use reqwest::Url;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ClientError;
use crate::wire::{ChargeRequest, ChargeResponse};

/// The longest answer read of an administrative call: a page of an export is the longest there is.
const MAX_ANSWER: usize = 16 << 20;

/// The longest answer read of a charge call: 256 verdicts are under 40 KiB.
const MAX_VERDICTS: usize = 256 << 10;

/// A client of quota-svc's internal API. Clones share the connections.
#[derive(Debug, Clone)]
pub struct QuotaClient {
    http: reqwest::Client,
    urls: Arc<Urls>,
    timeout: Duration,
}

#[derive(Debug)]
struct Urls {
    base: Url,
    charges: Url,
}

impl QuotaClient {
    /// A client of the quota-svc at `base_url` (as in `http://127.0.0.1:8082`), each call of which ends within `timeout`.
    pub fn new(base_url: &str, timeout: Duration) -> Result<Self, ClientError> {
        let mut base = transport::api_root(base_url)?;
        let http = transport::http_client(transport::by_name(&mut base))?;
        let mut charges = base.clone();
        charges.set_path(&format!("{}/charges", base.path()));
        Ok(Self { http, urls: Arc::new(Urls { base, charges }), timeout })
    }

    /// Has a batch of charges judged, in one call. [`crate::Charger`] is what services use instead.
    pub async fn charge(&self, charges: &ChargeRequest) -> Result<ChargeResponse, ClientError> {
        let call = self.call(Method::POST, &["charges"])?.json(charges)?;
        self.answer(call, MAX_VERDICTS).await
    }

    /// The hot path: a body that is written already, with the trace context to carry. It has no timeout: who calls has
    /// the deadlines of the charges, and a second timer would cost each call as much as writing its head.
    pub(crate) fn charge_written<'a>(
        &'a self,
        body: String,
        trace: Option<&HeaderMap>,
    ) -> impl Future<Output = Result<ChargeResponse, ClientError>> + use<'a> {
        let mut call = transport::Call::new(Method::POST, self.urls.charges.clone()).body(body.into());
        if let Some(trace) = trace {
            call.carry(trace);
        }
        self.answer(call, MAX_VERDICTS)
    }

    /// The ids among `path` come from outside: one that could change the path's meaning is no id at all.
    fn call(&self, method: Method, path: &[&str]) -> Result<transport::Call, ClientError> {
        let plain =
            |part: &&str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') && !part.is_empty();
        if !path.iter().all(plain) {
            return Err(ClientError::no_such_id());
        }
        let mut url = self.urls.base.clone();
        url.set_path(&format!("{}/{}", url.path(), path.join("/")));
        Ok(transport::Call::new(method, url).timeout(self.timeout))
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        let call = self.call(Method::GET, path)?.query(query);
        self.answer(call, MAX_ANSWER).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let call = self.call(method, path)?.query(query).json(body)?;
        self.answer(call, MAX_ANSWER).await
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        call: transport::Call,
        limit: usize,
    ) -> Result<T, ClientError> {
        let body = call.send(&self.http, limit).await?;
        // As text at once: from bytes, serde_json would look at every string for itself.
        let parsed = match str::from_utf8(&body) {
            Ok(text) => serde_json::from_str(text),
            Err(_) => serde_json::from_slice(&body),
        };
        parsed.map_err(|error| ClientError::unreadable(&error))
    }

    /// A call whose only answer is that it was done.
    async fn done(&self, call: transport::Call) -> Result<(), ClientError> {
        call.send(&self.http, MAX_ANSWER).await.map(drop)
    }
}
