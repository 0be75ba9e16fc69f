//! `selftest`: checks a running service from outside. `helm test` runs it; operators can, too.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http::header;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Certificate, Client, Response, StatusCode};
use service_kit::ErrorBody;

use crate::config::SelftestArgs;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter than the request timeout: a network policy may drop the packets of a connection until it allows the next one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// How long to retry if no connection can be made. A new pod may have to wait until the network policies allow it.
pub const RETRY_FOR: Duration = Duration::from_secs(30);

/// Checks the service; fails at the first problem.
pub async fn run(args: &SelftestArgs, retry_for: Duration) -> anyhow::Result<()> {
    let url = args.url.trim_end_matches('/');
    let api = Api { client: client(args)?, retry_until: Instant::now() + retry_for };
    check_missing_key(&api, url).await?;
    println!("ok: {url}/api/v1/ip requires an API key");
    let result = check_demo(&api, url).await?;
    println!("ok: {url}/api/v1/ip/demo {result}");
    if let Some(url) = &args.admin_url {
        println!("ok: {} trusted by discovery", check_discovery(&api, url).await?);
    }
    Ok(())
}

fn client(args: &SelftestArgs) -> anyhow::Result<Client> {
    let mut builder = Client::builder().timeout(REQUEST_TIMEOUT).connect_timeout(CONNECT_TIMEOUT);
    if let Some(file) = &args.ca_file {
        let what = || format!("can't use --ca-file {}", file.display());
        let authorities =
            Certificate::from_pem_bundle(&fs::read(file).with_context(what)?).with_context(what)?;
        ensure!(!authorities.is_empty(), "--ca-file {} has no certificate in PEM format", file.display());
        builder = builder.tls_certs_only(authorities);
    }
    if let Some(addr) = &args.connect_to {
        builder = builder.dns_resolver(ConnectTo(addr.clone()));
    }
    builder.build().context("can't set up the client")
}

/// Resolves every name to the addresses of this host and port. For each connection again, because at first a network
/// policy may drop DNS queries, too.
struct ConnectTo(String);

impl Resolve for ConnectTo {
    fn resolve(&self, _: Name) -> Resolving {
        let addr = self.0.clone();
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host(addr).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The service under test.
struct Api {
    client: Client,
    retry_until: Instant,
}

impl Api {
    /// Sends a request. Retries if no connection can be made.
    async fn get(&self, url: &str) -> anyhow::Result<Response> {
        loop {
            match self.client.get(url).send().await {
                Err(error) if error.is_connect() && Instant::now() + RETRY_DELAY < self.retry_until => {
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                result => return result.with_context(|| format!("can't reach {url}")),
            }
        }
    }
}

/// A request without a key must get this API's 401.
async fn check_missing_key(api: &Api, url: &str) -> anyhow::Result<()> {
    let response = api.get(&format!("{url}/api/v1/ip")).await?;
    let status = response.status();
    ensure!(
        response.headers().get(header::ACCESS_CONTROL_ALLOW_ORIGIN).is_some_and(|origin| origin == "*"),
        "the response ({status}) is not from this API: it lacks `Access-Control-Allow-Origin: *`"
    );
    let error = error_code(response).await?;
    ensure!(
        (status, error.as_str()) == (StatusCode::UNAUTHORIZED, "missing_api_key"),
        "a request without a key got {status} {error} instead of 401 missing_api_key"
    );
    Ok(())
}

/// A demo lookup exercises the whole path, including quota-svc and its store.
async fn check_demo(api: &Api, url: &str) -> anyhow::Result<&'static str> {
    let response = api.get(&format!("{url}/api/v1/ip/demo")).await?;
    let status = response.status();
    if status == StatusCode::OK {
        let body: serde_json::Value = response.json().await.context("the demo's response is not JSON")?;
        ensure!(body["status"] == "success", "the demo's response does not have status `success`");
        return Ok("responds");
    }
    let error = error_code(response).await?;
    ensure!(
        (status, error.as_str()) == (StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded"),
        "the demo responded with {status} {error}: check quota-svc and its store"
    );
    Ok("responds (today's quota is used up)")
}

/// Discovery must have found a proxy. Returns the metric that says so.
async fn check_discovery(api: &Api, url: &str) -> anyhow::Result<String> {
    let metrics = api.get(&format!("{url}/metrics")).await?.error_for_status()?.text().await?;
    let metric = metrics.lines().find(|line| line.starts_with("lookup_discovered_proxies{"));
    let metric = metric.with_context(|| format!("{url} is not the admin port of lookup-svc"))?;
    ensure!(
        !metric.ends_with(" 0"),
        "discovery has found no proxy, so every client appears to have the address of its proxy: check that the Service of \
         --discover-proxies (edge.discover in the chart) has endpoints"
    );
    Ok(metric.to_owned())
}

async fn error_code(response: Response) -> anyhow::Result<String> {
    let status = response.status();
    let body = response.json::<ErrorBody>().await;
    Ok(body.with_context(|| format!("the {status} response is not an error of this API"))?.error)
}
