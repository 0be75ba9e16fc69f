//! The HTTP client: limited redirects, none from https to http, and timeouts.

use std::time::Duration;

use bytes::Bytes;
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use secrecy::ExposeSecret;

use super::source::{self, Checksum, Item};
use super::{GeoUpdateArgs, UpdateError};

const MAX_REDIRECTS: usize = 5;
/// Maximum size of a response with a checksum. This is ample: a SHA-256 has 64 characters, and IPinfo's JSON has three
/// checksums.
const MAX_CHECKSUM_BODY: usize = 16 << 10;

pub(super) fn client(args: &GeoUpdateArgs) -> Result<Client, UpdateError> {
    let client = Client::builder()
        .user_agent(concat!("ip-lookup/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::custom(redirect))
        // A Referer header would pass a token in the query on to the target of a redirect.
        .referer(false)
        .connect_timeout(args.idle_timeout.min(Duration::from_secs(10)))
        .read_timeout(args.idle_timeout)
        .build();
    client.map_err(UpdateError::Client)
}

fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let downgrade =
        attempt.url().scheme() != "https" && attempt.previous().iter().any(|url| url.scheme() == "https");
    if downgrade || attempt.previous().len() > MAX_REDIRECTS {
        attempt.error("redirect rejected")
    } else {
        attempt.follow()
    }
}

/// Builds a GET request with the item's credentials. reqwest drops them on a redirect to another host.
pub(super) fn get(client: &Client, item: &Item, url: &Url) -> RequestBuilder {
    let request = client.get(url.clone());
    match &item.auth {
        Some((user, password)) => request.basic_auth(user, Some(password.expose_secret())),
        None => request,
    }
}

/// Converts an error status. 304 and 416 are left to the caller.
pub(super) fn check_status(response: &Response) -> Result<(), UpdateError> {
    match response.status() {
        status if status.is_success() => Ok(()),
        StatusCode::NOT_MODIFIED | StatusCode::RANGE_NOT_SATISFIABLE => Ok(()),
        StatusCode::NOT_FOUND | StatusCode::GONE => Err(UpdateError::NotFound),
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            Err(UpdateError::CredentialsRejected(status.as_u16()))
        }
        status => Err(UpdateError::Status(status.as_u16())),
    }
}

/// Reads the next part of a body. Adds the URL to an error, which reqwest does not do here.
pub(super) async fn next_chunk(response: &mut Response) -> Result<Option<Bytes>, UpdateError> {
    let chunk = response.chunk().await;
    Ok(chunk.map_err(|error| error.with_url(response.url().clone()))?)
}

/// The SHA-256 that is pinned or that the provider publishes, in lower-case hex, if there is one.
pub(super) async fn expected_checksum(client: &Client, item: &Item) -> Result<Option<String>, UpdateError> {
    match &item.checksum {
        Checksum::None => Ok(None),
        Checksum::Pinned(hex) => Ok(Some(hex.clone())),
        Checksum::File(url) => {
            let text = small_body(client, item, url).await?;
            parse_sha256(text.split_whitespace().next().unwrap_or_default()).map(Some)
        }
        Checksum::Json(url) => match small_body(client, item, url).await {
            Ok(text) => json_checksum(&text).map(Some),
            // Only 404 and 410 mean that there is no checksum. If a web page or invalid JSON did too, an attacker
            // could disable the check by corrupting the checksum.
            Err(UpdateError::NotFound) => Ok(None),
            Err(error) => Err(error),
        },
    }
}

async fn small_body(client: &Client, item: &Item, url: &Url) -> Result<String, UpdateError> {
    let mut response = get(client, item, url).send().await?;
    check_status(&response)?;
    let mut body = Vec::new();
    while let Some(chunk) = next_chunk(&mut response).await? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_CHECKSUM_BODY {
            return Err(UpdateError::ChecksumFormat);
        }
    }
    String::from_utf8(body).map_err(|_| UpdateError::ChecksumFormat)
}

fn json_checksum(text: &str) -> Result<String, UpdateError> {
    let json: serde_json::Value = serde_json::from_str(text).map_err(|_| UpdateError::ChecksumFormat)?;
    let hex = json.pointer("/checksums/sha256").or(json.pointer("/sha256"));
    parse_sha256(hex.and_then(|hex| hex.as_str()).unwrap_or_default())
}

fn parse_sha256(hex: &str) -> Result<String, UpdateError> {
    source::sha256(hex).ok_or(UpdateError::ChecksumFormat)
}
