//! The connection to the CA: instant-acme's requests, sent by reqwest.

use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use bytes::Bytes;
use http::Request;
use http::header::{HeaderValue, USER_AGENT};
use http_body_util::BodyExt;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of a response. A certificate chain has a few kilobytes.
const MAX_RESPONSE: usize = 1024 * 1024;

const PRODUCT: &str = concat!("ip-lookup/", env!("CARGO_PKG_VERSION"), " instant-acme");

#[derive(Clone)]
pub struct CaClient(reqwest::Client);

impl CaClient {
    /// `ca_file` has the root certificates to trust instead of the system's.
    pub fn new(ca_file: Option<&Path>) -> anyhow::Result<Self> {
        let mut client = reqwest::Client::builder().https_only(true).timeout(TIMEOUT);
        if let Some(file) = ca_file {
            let name = file.display();
            let pem = std::fs::read(file).with_context(|| format!("can't read --acme-ca-file {name}"))?;
            let roots = reqwest::Certificate::from_pem_bundle(&pem)
                .with_context(|| format!("--acme-ca-file {name} has no certificates in PEM format"))?;
            client = client.tls_certs_only(roots);
        }
        Ok(Self(client.build().context("can't set up the connection to the CA")?))
    }

    async fn send(self, request: Request<BodyWrapper<Bytes>>) -> anyhow::Result<BytesResponse> {
        let (mut parts, body) = request.into_parts();
        parts.headers.insert(USER_AGENT, HeaderValue::from_static(PRODUCT));
        let Ok(body) = body.collect().await;
        let request = reqwest::Request::try_from(Request::from_parts(parts, body.to_bytes()))?;
        // The URL is in the message of the caller.
        let unreachable = |error: reqwest::Error| anyhow!(error.without_url()).context("can't reach the CA");
        let mut response = self.0.execute(request).await.map_err(unreachable)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            body.extend_from_slice(&chunk);
            ensure!(body.len() <= MAX_RESPONSE, "the response of the CA is too long");
        }
        let status = response.status();
        // Such as the HTML page of a proxy. instant-acme would only report invalid JSON.
        if !status.is_success() && serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_err() {
            bail!("the CA responded with {status} and no explanation");
        }
        let (parts, _) = http::Response::from(response).into_parts();
        Ok(BytesResponse { parts, body: Box::new(Bytes::from(body)) })
    }
}

impl HttpClient for CaClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let sent = self.clone().send(request);
        Box::pin(async { sent.await.map_err(|error| Error::Other(error.into())) })
    }
}
