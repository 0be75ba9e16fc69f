//! How a call travels: the set-up of reqwest, one request, one bounded answer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use reqwest::{Body, Client, Request, Response, Url};
use serde::Serialize;

use crate::error::ClientError;

const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// Shorter than a server keeps an idle connection, so that it is we who close it and no call meets the closing.
const IDLE: Duration = Duration::from_secs(10);

const LOCALHOST: &str = "localhost";

/// The root of the API at `base_url`. quota-svc speaks plain HTTP: it listens on loopback.
pub(super) fn api_root(base_url: &str) -> Result<Url, ClientError> {
    let mut url = Url::parse(base_url).map_err(|_| ClientError::BaseUrl("it is not a URL"))?;
    if url.scheme() != "http" {
        return Err(ClientError::BaseUrl("it must start with http://"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(ClientError::BaseUrl("it must end with the host, the port or a path"));
    }
    url.set_path(&format!("{}/internal/v1", url.path().trim_end_matches('/')));
    Ok(url)
}

/// Has calls name this machine instead of its loopback address, which is returned: reqwest reads the URL of each call
/// twice, and an address in it makes that twice as dear.
pub(super) fn by_name(url: &mut Url) -> Option<IpAddr> {
    let address: IpAddr = url.host_str()?.trim_matches(['[', ']']).parse().ok()?;
    (address.is_loopback() && url.set_host(Some(LOCALHOST)).is_ok()).then_some(address)
}

/// A client whose calls end when they say so. Where `localhost` is given, that is the address of this name.
pub(super) fn http_client(localhost: Option<IpAddr>) -> Result<Client, ClientError> {
    let client = match localhost {
        // The port is the URL's.
        Some(address) => Client::builder().resolve(LOCALHOST, (address, 0).into()),
        None => Client::builder(),
    };
    client
        .no_proxy()
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        // What may have been written is never sent again; a charge would count twice.
        .retry(reqwest::retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE)
        .tls_backend_preconfigured(unused_tls()?)
        .build()
        .map_err(|error| ClientError::Setup(Box::new(error)))
}

/// Only plain HTTP is called. Without this reqwest would load the system's certificates, and panic where the process
/// has not installed a crypto provider.
fn unused_tls() -> Result<rustls::ClientConfig, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::Setup(Box::new(error)))?;
    Ok(config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

/// One request on its way.
pub(super) struct Call(Request);

impl Call {
    pub(super) fn new(method: Method, url: Url) -> Self {
        Self(Request::new(method, url))
    }

    pub(super) fn query(mut self, pairs: &[(&str, &str)]) -> Self {
        if !pairs.is_empty() {
            self.0.url_mut().query_pairs_mut().extend_pairs(pairs);
        }
        self
    }

    pub(super) fn json(self, body: &impl Serialize) -> Result<Self, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| ClientError::unreadable(&error))?;
        Ok(self.body(body.into()))
    }

    pub(super) fn body(mut self, json: Body) -> Self {
        self.0.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *self.0.body_mut() = Some(json);
        self
    }

    pub(super) fn timeout(mut self, timeout: Duration) -> Self {
        *self.0.timeout_mut() = Some(timeout);
        self
    }

    pub(super) fn carry(&mut self, headers: &HeaderMap) {
        for (name, value) in headers {
            self.0.headers_mut().insert(name, value.clone());
        }
    }

    /// Sends it and reads the whole answer; anything but a success is an error.
    pub(super) async fn send(self, http: &Client, limit: usize) -> Result<Vec<u8>, ClientError> {
        let response = http.execute(self.0).await?;
        let status = response.status();
        let body = read(response, limit).await?;
        if status.is_success() { Ok(body) } else { Err(ClientError::refused(status.as_u16(), &body)) }
    }
}

async fn read(mut response: Response, limit: usize) -> Result<Vec<u8>, ClientError> {
    let announced = response.content_length().unwrap_or(0);
    let mut body = Vec::with_capacity(usize::try_from(announced).unwrap_or(limit).min(limit));
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > limit {
            return Err(ClientError::Protocol(format!("longer than {limit} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_called_by_its_name() {
        for (url, named, address) in [
            ("http://127.0.0.1:8082/x", "http://localhost:8082/x", Some("127.0.0.1")),
            ("http://127.0.0.2/x", "http://localhost/x", Some("127.0.0.2")),
            ("http://[::1]:8082/x", "http://localhost:8082/x", Some("::1")),
            ("http://10.0.0.1:8082/x", "http://10.0.0.1:8082/x", None),
            ("http://quota:8082/x", "http://quota:8082/x", None),
        ] {
            let mut url = Url::parse(url).expect("a URL");
            assert_eq!(by_name(&mut url), address.map(|address| address.parse().expect("an address")));
            assert_eq!(url.as_str(), named);
        }
    }
}
