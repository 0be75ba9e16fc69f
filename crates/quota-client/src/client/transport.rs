//! HTTP transport: sets up reqwest, sends one request and reads a size-limited response.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;

use crate::error::{ClientError, Result};

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// Below the server's idle timeout, so that the client closes first and no request hits a closing connection.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the URL of the API root below `base_url`. Only plain HTTP: quota-svc listens on loopback.
pub(super) fn api_root(base_url: &str) -> Result<Url> {
    let mut url = Url::parse(base_url).map_err(|_| ClientError::BaseUrl("it is not a URL"))?;
    if url.scheme() != "http" {
        return Err(ClientError::BaseUrl("it must start with http://"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(ClientError::BaseUrl("it must not have a query or a fragment"));
    }
    url.set_path(&format!("{}/internal/v1", url.path().trim_end_matches('/')));
    Ok(url)
}

/// Creates an HTTP client without a default request timeout. With `socket`, it connects to that Unix socket only.
pub(super) fn http_client(socket: Option<&Path>) -> Result<Client> {
    let builder = Client::builder()
        .no_proxy()
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        // A resent change could be made twice.
        .retry(reqwest::retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .tls_backend_preconfigured(unused_tls()?);
    let builder = match socket {
        Some(path) => builder.unix_socket(path),
        None => builder,
    };
    builder.build().map_err(|error| ClientError::Setup(Box::new(error)))
}

/// Avoids reqwest's default TLS setup, which loads the system's certificates and panics if the process has not
/// installed a crypto provider. Every request is plain HTTP, so this configuration is never used.
fn unused_tls() -> Result<rustls::ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::Setup(Box::new(error)))?;
    Ok(config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

/// Sends a request and returns the response body. A status other than 2xx is an error.
pub(super) async fn send(request: RequestBuilder, limit: usize) -> Result<Vec<u8>> {
    let response = request.send().await?;
    let status = response.status();
    let body = read_body(response, limit).await?;
    if status.is_success() { Ok(body) } else { Err(ClientError::from_response(status.as_u16(), &body)) }
}

async fn read_body(mut response: Response, limit: usize) -> Result<Vec<u8>> {
    let content_length = response.content_length().unwrap_or(0);
    let mut body = Vec::with_capacity(usize::try_from(content_length).unwrap_or(limit).min(limit));
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > limit {
            return Err(ClientError::Protocol(format!("more than {limit} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Parses a response. That of a change can be empty, which is parsed as `()`.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    // Validates UTF-8 once for the whole body; `from_slice` validates each string separately. For invalid UTF-8,
    // `from_slice` is called only to get its error message.
    let parsed = match str::from_utf8(body) {
        Ok("") => serde_json::from_str("null"),
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(body),
    };
    parsed.map_err(|error| ClientError::json(&error))
}
