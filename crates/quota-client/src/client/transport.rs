//! HTTP transport: sets up reqwest, sends one request and reads a size-limited response.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response, Url};

use crate::error::ClientError;

const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// Below the server's idle timeout, so that the client closes first and no request hits a closing connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

const LOCALHOST: &str = "localhost";

/// Returns the URL of the API root below `base_url`. Only plain HTTP: quota-svc listens on loopback.
pub(super) fn api_root(base_url: &str) -> Result<Url, ClientError> {
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

/// Replaces a loopback IP address with `localhost` and returns the address. reqwest parses each URL twice, and parsing
/// an IP address as the host costs twice as much as parsing a name.
pub(super) fn use_localhost_name(url: &mut Url) -> Option<IpAddr> {
    let address: IpAddr = url.host_str()?.trim_matches(['[', ']']).parse().ok()?;
    (address.is_loopback() && url.set_host(Some(LOCALHOST)).is_ok()).then_some(address)
}

/// Creates an HTTP client without a default request timeout. If an address is given, the host name `localhost` resolves
/// to it.
pub(super) fn http_client(localhost: Option<IpAddr>) -> Result<Client, ClientError> {
    let client = match localhost {
        // Port 0: reqwest takes the port from the URL.
        Some(address) => Client::builder().resolve(LOCALHOST, (address, 0).into()),
        None => Client::builder(),
    };
    client
        .no_proxy()
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        // A resent charge would count twice.
        .retry(reqwest::retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .tls_backend_preconfigured(unused_tls()?)
        .build()
        .map_err(|error| ClientError::Setup(Box::new(error)))
}

/// Avoids reqwest's default TLS setup, which loads the system's certificates and panics if the process has not
/// installed a crypto provider. Every request is plain HTTP, so this configuration is never used.
fn unused_tls() -> Result<rustls::ClientConfig, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::Setup(Box::new(error)))?;
    Ok(config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

/// Sends a request and returns the response body. A status other than 2xx is an error.
pub(super) async fn send(request: RequestBuilder, limit: usize) -> Result<Vec<u8>, ClientError> {
    let response = request.send().await?;
    let status = response.status();
    let body = read_body(response, limit).await?;
    if status.is_success() { Ok(body) } else { Err(ClientError::from_response(status.as_u16(), &body)) }
}

async fn read_body(mut response: Response, limit: usize) -> Result<Vec<u8>, ClientError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_become_localhost() {
        for (url, want, address) in [
            ("http://127.0.0.1:8082/x", "http://localhost:8082/x", Some("127.0.0.1")),
            ("http://127.0.0.2/x", "http://localhost/x", Some("127.0.0.2")),
            ("http://[::1]:8082/x", "http://localhost:8082/x", Some("::1")),
            ("http://10.0.0.1:8082/x", "http://10.0.0.1:8082/x", None),
            ("http://quota:8082/x", "http://quota:8082/x", None),
        ] {
            let mut url = Url::parse(url).expect("valid URL");
            assert_eq!(
                use_localhost_name(&mut url),
                address.map(|address| address.parse().expect("valid address"))
            );
            assert_eq!(url.as_str(), want);
        }
    }
}
