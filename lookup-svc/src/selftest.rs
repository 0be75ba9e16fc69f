//! `selftest`: asks a running service from outside whether it does its work, for `helm test` and people.

use std::time::Duration;

use anyhow::{Context, ensure};
use http::header;
use reqwest::{Client, Response, StatusCode};
use service_kit::ErrorBody;

use crate::config::SelftestArgs;

const PATIENCE: Duration = Duration::from_secs(10);

/// Checks the service; the first thing that is wrong is the error.
pub async fn run(args: &SelftestArgs) -> anyhow::Result<()> {
    let client = Client::builder().timeout(PATIENCE).build()?;
    let url = args.url.trim_end_matches('/');
    keyless(&client, url).await?;
    println!("ok: {url}/api/v1/ip asks for an API key");
    let verdict = demo(&client, url).await?;
    println!("ok: {url}/api/v1/ip/demo {verdict}");
    Ok(())
}

/// Without a key the API must say so, in our words.
async fn keyless(client: &Client, url: &str) -> anyhow::Result<()> {
    let response = get(client, &format!("{url}/api/v1/ip")).await?;
    let status = response.status();
    ensure!(
        response.headers().get(header::ACCESS_CONTROL_ALLOW_ORIGIN).is_some_and(|origin| origin == "*"),
        "something answered {status}, but not this API: Access-Control-Allow-Origin is missing"
    );
    let error = error_code(response).await?;
    ensure!(
        (status, error.as_str()) == (StatusCode::UNAUTHORIZED, "missing_api_key"),
        "a request without a key was answered {status} {error} instead of 401 missing_api_key"
    );
    Ok(())
}

/// The demo goes all the way to the store and back.
async fn demo(client: &Client, url: &str) -> anyhow::Result<&'static str> {
    let response = get(client, &format!("{url}/api/v1/ip/demo")).await?;
    match response.status() {
        StatusCode::OK => {
            let body: serde_json::Value = response.json().await.context("the demo's answer is not JSON")?;
            ensure!(body["status"] == "success", "the demo's answer has no status success");
            Ok("answers")
        }
        StatusCode::TOO_MANY_REQUESTS => {
            let error = error_code(response).await?;
            ensure!(error == "rate_limit_exceeded", "the demo was refused with {error}");
            Ok("answers (its quota of today is used up)")
        }
        status => {
            let error = error_code(response).await?;
            anyhow::bail!("the demo was answered {status} {error}: look at quota-svc and its store")
        }
    }
}

async fn get(client: &Client, url: &str) -> anyhow::Result<Response> {
    client.get(url).send().await.with_context(|| format!("{url} can not be reached"))
}

async fn error_code(response: Response) -> anyhow::Result<String> {
    let status = response.status();
    let body = response.json::<ErrorBody>().await;
    Ok(body.with_context(|| format!("the body of a {status} is not an error body of this API"))?.error)
}
