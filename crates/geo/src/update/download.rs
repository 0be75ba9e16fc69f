//! The HTTP client, and one attempt to download a file or its checksum.

use std::time::Duration;

use base::progress::Progress;
use bytes::Bytes;
use indicatif::HumanBytes;
use reqwest::header::{ETAG, HeaderMap, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use tokio::fs::File;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

use super::source::{self, Checksum, Item};
use super::{GeoUpdateArgs, Result, UpdateError};

const MAX_DELAY: Duration = Duration::from_secs(60);
const MAX_REDIRECTS: usize = 5;
/// Maximum size of a response with a checksum. This is ample: a SHA-256 has 64 characters, and IPinfo's JSON has three
/// checksums.
const MAX_CHECKSUM_BODY: usize = 16 << 10;

pub(super) fn client(args: &GeoUpdateArgs) -> Result<Client> {
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

/// The validators by which the server identifies a version of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Version {
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

pub(super) struct Downloader<'a> {
    pub client: &'a Client,
    pub args: &'a GeoUpdateArgs,
    pub item: &'a Item,
    pub progress: Progress,
}

impl Downloader<'_> {
    /// Downloads the whole file. `None` if it is the installed version.
    pub(super) async fn download(
        &mut self,
        url: &Url,
        installed: Option<&Version>,
        file: &mut File,
    ) -> Result<Option<Version>> {
        let mut request = self.get(url);
        let condition = installed.and_then(Version::condition);
        if let Some((name, value)) = &condition {
            request = request.header(name, *value);
        }
        let mut response = request.send().await?;
        check_status(&response)?;
        match response.status() {
            StatusCode::NOT_MODIFIED if condition.is_some() => return Ok(None),
            StatusCode::NOT_MODIFIED => return Err(UpdateError::NotModified),
            _ => {}
        }
        // A part of an earlier attempt may be of another version.
        file.rewind().await?;
        file.set_len(0).await?;
        self.receive(&mut response, file).await?;
        file.sync_all().await?;
        Ok(Some(Version::of(response.headers())))
    }

    async fn receive(&mut self, response: &mut Response, file: &mut File) -> Result<()> {
        let (limit, total) = (self.args.max_size, response.content_length());
        if total.is_some_and(|total| total > limit) {
            return Err(UpdateError::TooLarge(limit));
        }
        total.iter().for_each(|total| self.progress.set_total(*total));
        let of = total.map(|total| format!(" of {}", HumanBytes(total))).unwrap_or_default();
        let mut written = 0;
        while let Some(chunk) = next_chunk(response).await? {
            written += chunk.len() as u64;
            if written > limit {
                return Err(UpdateError::TooLarge(limit));
            }
            file.write_all(&chunk).await?;
            self.progress.update(written, format!("{}: {}{of}", self.item.label, HumanBytes(written)));
        }
        Ok(())
    }

    /// Waits before the next attempt. Returns the error if it is permanent or no retry is left.
    pub(super) async fn wait_before_retry(&self, attempt: &mut u32, error: UpdateError) -> Result<()> {
        let GeoUpdateArgs { retries, retry_delay, .. } = self.args;
        if *attempt >= *retries || !error.is_transient() {
            return Err(error);
        }
        let delay = retry_delay.saturating_mul(1 << (*attempt).min(6)).min(MAX_DELAY);
        *attempt += 1;
        let (label, error) = (&self.item.label, anyhow::Error::new(error));
        let wait = humantime::format_duration(delay);
        self.progress.line(&format!("{label}: {error:#}; retry {attempt} of {retries} in {wait}"));
        tokio::time::sleep(delay).await;
        Ok(())
    }

    /// The SHA-256 that is pinned or that the provider publishes, in lower-case hex, if there is one.
    pub(super) async fn expected_checksum(&self) -> Result<Option<String>> {
        let hex = match &self.item.checksum {
            Checksum::None => return Ok(None),
            Checksum::Pinned(hex) => return Ok(Some(hex.clone())),
            Checksum::File(url) => {
                let text = self.small_body(url).await?;
                text.split_whitespace().next().unwrap_or_default().to_owned()
            }
            Checksum::Json(url) => match self.small_body(url).await {
                Ok(text) => {
                    let json: serde_json::Value =
                        serde_json::from_str(&text).map_err(|_| UpdateError::ChecksumFormat)?;
                    let hex = json.pointer("/checksums/sha256").or(json.pointer("/sha256"));
                    hex.and_then(|hex| hex.as_str()).unwrap_or_default().to_owned()
                }
                // Only 404 and 410 mean that there is no checksum. If a web page or invalid JSON did too, an attacker
                // could disable the check by corrupting the checksum.
                Err(UpdateError::NotFound) => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        source::sha256(&hex).map(Some).ok_or(UpdateError::ChecksumFormat)
    }

    async fn small_body(&self, url: &Url) -> Result<String> {
        let mut response = self.get(url).send().await?;
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

    /// Builds a GET request with the item's credentials. reqwest drops them on a redirect to another host.
    fn get(&self, url: &Url) -> RequestBuilder {
        let request = self.client.get(url.clone());
        match &self.item.auth {
            Some((user, password)) => request.basic_auth(user, Some(password.expose_secret())),
            None => request,
        }
    }
}

/// Converts an error status. 304 is left to the caller.
fn check_status(response: &Response) -> Result<()> {
    match response.status() {
        status if status.is_success() => Ok(()),
        StatusCode::NOT_MODIFIED => Ok(()),
        StatusCode::NOT_FOUND | StatusCode::GONE => Err(UpdateError::NotFound),
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            Err(UpdateError::CredentialsRejected(status.as_u16()))
        }
        status => Err(UpdateError::Status(status.as_u16())),
    }
}

/// Reads the next part of a body. Adds the URL to an error, which reqwest does not do here.
async fn next_chunk(response: &mut Response) -> Result<Option<Bytes>> {
    let chunk = response.chunk().await;
    Ok(chunk.map_err(|error| error.with_url(response.url().clone()))?)
}

impl Version {
    fn of(headers: &HeaderMap) -> Self {
        Version { etag: header(headers, ETAG), last_modified: header(headers, LAST_MODIFIED) }
    }

    /// The header of a request for any version but this one.
    fn condition(&self) -> Option<(HeaderName, &str)> {
        let tag = self.etag.as_deref().map(|tag| (IF_NONE_MATCH, tag));
        tag.or(self.last_modified.as_deref().map(|time| (IF_MODIFIED_SINCE, time)))
    }
}

fn header(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}
