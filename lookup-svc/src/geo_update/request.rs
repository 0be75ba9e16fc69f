//! The HTTP client: bounded redirects, no way back from https, deadlines.

use std::time::Duration;

use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use secrecy::ExposeSecret;

use super::source::{self, Checksum, Item};
use super::{GeoUpdateArgs, UpdateError};

const REDIRECTS: usize = 5;
/// A checksum is 64 characters; IPinfo's JSON has three of them.
const SMALL: usize = 16 << 10;

pub(super) fn client(args: &GeoUpdateArgs) -> Result<Client, UpdateError> {
    let client = Client::builder()
        .user_agent(concat!("ip-lookup/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::custom(redirect))
        // It would carry a token in the query to wherever a redirect leads.
        .referer(false)
        .connect_timeout(args.idle_timeout.min(Duration::from_secs(10)))
        .read_timeout(args.idle_timeout)
        .build()?;
    Ok(client)
}

fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let downgrade =
        attempt.url().scheme() != "https" && attempt.previous().iter().any(|url| url.scheme() == "https");
    if downgrade || attempt.previous().len() > REDIRECTS {
        attempt.error("refused")
    } else {
        attempt.follow()
    }
}

/// A GET with the item's credentials, which reqwest drops when a redirect leaves the host.
pub(super) fn get(client: &Client, item: &Item, url: &Url) -> RequestBuilder {
    let request = client.get(url.clone());
    match &item.auth {
        Some((user, password)) => request.basic_auth(user, Some(password.expose_secret())),
        None => request,
    }
}

/// The status as an error, except the ones a caller knows what to do with.
pub(super) fn refuse_errors(response: &Response) -> Result<(), UpdateError> {
    match response.status() {
        status if status.is_success() => Ok(()),
        StatusCode::NOT_MODIFIED | StatusCode::RANGE_NOT_SATISFIABLE => Ok(()),
        StatusCode::NOT_FOUND | StatusCode::GONE => Err(UpdateError::NotFound),
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            Err(UpdateError::Denied(status.as_u16()))
        }
        status => Err(UpdateError::Status(status.as_u16())),
    }
}

/// The SHA-256 that the provider publishes, in lower-case hex, where there is one.
pub(super) async fn published_checksum(client: &Client, item: &Item) -> Result<Option<String>, UpdateError> {
    match &item.checksum {
        Checksum::None => Ok(None),
        Checksum::Known(hex) => Ok(Some(hex.clone())),
        Checksum::File(url) => {
            let text = small_body(client, item, url).await?;
            checked(text.split_whitespace().next().unwrap_or_default()).map(Some)
        }
        Checksum::Json(url) => match small_body(client, item, url).await {
            Ok(text) => json_checksum(&text).map(Some),
            // Only this says that there is none. If a web page or broken JSON said so too, whoever can
            // garble the sum could switch the check off.
            Err(UpdateError::NotFound) => Ok(None),
            Err(error) => Err(error),
        },
    }
}

async fn small_body(client: &Client, item: &Item, url: &Url) -> Result<String, UpdateError> {
    let mut response = get(client, item, url).send().await?;
    refuse_errors(&response)?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > SMALL {
            return Err(UpdateError::ChecksumFormat);
        }
    }
    String::from_utf8(body).map_err(|_| UpdateError::ChecksumFormat)
}

fn json_checksum(text: &str) -> Result<String, UpdateError> {
    let json: serde_json::Value = serde_json::from_str(text).map_err(|_| UpdateError::ChecksumFormat)?;
    let hex = json.pointer("/checksums/sha256").or(json.pointer("/sha256"));
    checked(hex.and_then(|hex| hex.as_str()).unwrap_or_default())
}

fn checked(hex: &str) -> Result<String, UpdateError> {
    source::sha256(hex).ok_or(UpdateError::ChecksumFormat)
}
