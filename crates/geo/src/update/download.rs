//! Downloads one file, with a limited number of retries. A retry resumes a partial download if possible.

use std::time::Duration;

use reqwest::header::{
    CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    LAST_MODIFIED, RANGE,
};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use tokio::fs::File;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

use super::progress::DownloadProgress;
use super::source::Item;
use super::{GeoUpdateArgs, UpdateError, request};

const MAX_DELAY: Duration = Duration::from_secs(60);

/// The validators by which the server identifies a version of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Version {
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum DownloadResult {
    Complete(Version),
    NotModified,
}

/// A download in progress.
pub(super) struct Download<'a> {
    pub client: &'a Client,
    pub args: &'a GeoUpdateArgs,
    pub item: &'a Item,
    pub url: &'a Url,
    /// The installed version.
    pub installed: Option<&'a Version>,
    pub file: File,
}

impl Download<'_> {
    /// Downloads the whole file, with retries.
    pub(super) async fn run(
        mut self,
        progress: &mut DownloadProgress,
    ) -> Result<DownloadResult, UpdateError> {
        let mut part = PartialDownload::default();
        let mut attempt = 0;
        loop {
            let error = match self.attempt(&mut part, progress).await {
                Ok(result) => {
                    self.file.sync_all().await?;
                    return Ok(result);
                }
                Err(error) => error,
            };
            wait_before_retry(self.args, &mut attempt, error, progress).await?;
        }
    }

    async fn attempt(
        &mut self,
        part: &mut PartialDownload,
        progress: &mut DownloadProgress,
    ) -> Result<DownloadResult, UpdateError> {
        let request = request::get(self.client, self.item, self.url);
        let request = part.headers(request, self.installed).build()?;
        let conditional = is_conditional(request.headers());
        let mut response = self.client.execute(request).await?;
        request::check_status(&response)?;
        match response.status() {
            StatusCode::NOT_MODIFIED if conditional => return Ok(DownloadResult::NotModified),
            StatusCode::NOT_MODIFIED => return Err(UpdateError::NotModified),
            StatusCode::PARTIAL_CONTENT if part.is_continued_by(response.headers()) => {}
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                self.restart(part, Version::default()).await?;
                return Err(UpdateError::Truncated);
            }
            _ => self.restart(part, Version::of(response.headers())).await?,
        }
        self.receive(&mut response, part, progress).await?;
        Ok(DownloadResult::Complete(part.version.clone()))
    }

    async fn receive(
        &mut self,
        response: &mut Response,
        part: &mut PartialDownload,
        progress: &mut DownloadProgress,
    ) -> Result<(), UpdateError> {
        if is_web_page(response.headers()) {
            return Err(UpdateError::WebPage);
        }
        let limit = self.args.max_size;
        let total = response.content_length().map(|rest| rest.saturating_add(part.written));
        if total.is_some_and(|total| total > limit) {
            return Err(UpdateError::TooLarge(limit));
        }
        progress.set_total(total);
        while let Some(chunk) = request::next_chunk(response).await? {
            if part.written + chunk.len() as u64 > limit {
                return Err(UpdateError::TooLarge(limit));
            }
            self.file.write_all(&chunk).await?;
            part.written += chunk.len() as u64;
            progress.set_position(part.written);
        }
        match total {
            Some(total) if total != part.written => Err(UpdateError::Truncated),
            _ => Ok(()),
        }
    }

    async fn restart(&mut self, part: &mut PartialDownload, version: Version) -> Result<(), UpdateError> {
        self.file.rewind().await?;
        self.file.set_len(0).await?;
        *part = PartialDownload { written: 0, version };
        Ok(())
    }
}

/// Waits before the next attempt. Returns the error if it is permanent or no retry is left.
pub(super) async fn wait_before_retry(
    args: &GeoUpdateArgs,
    attempt: &mut u32,
    error: UpdateError,
    progress: &DownloadProgress,
) -> Result<(), UpdateError> {
    if *attempt >= args.retries || !error.is_transient() {
        return Err(error);
    }
    let delay = args.retry_delay.saturating_mul(1 << (*attempt).min(6)).min(MAX_DELAY);
    *attempt += 1;
    let wait = humantime::format_duration(delay);
    let error = anyhow::Error::new(error);
    let label = progress.label();
    progress.line(&format!("{label}: {error:#}; retry {attempt} of {} in {wait}", args.retries));
    tokio::time::sleep(delay).await;
    Ok(())
}

/// What was received so far.
#[derive(Debug, Default)]
struct PartialDownload {
    written: u64,
    version: Version,
}

impl PartialDownload {
    /// Adds the headers to resume a partial download, or to skip the download if the installed version is current.
    /// Requests a range only with `If-Range`: if the file has changed, its rest must not be appended to the old part.
    fn headers(&self, request: RequestBuilder, installed: Option<&Version>) -> RequestBuilder {
        match (self.written, self.version.if_range(), installed) {
            (1.., Some(version), _) => {
                request.header(RANGE, format!("bytes={}-", self.written)).header(IF_RANGE, version)
            }
            (0, _, Some(installed)) => installed.add_conditions(request),
            _ => request,
        }
    }

    fn is_continued_by(&self, headers: &HeaderMap) -> bool {
        let start = format!("bytes {}-", self.written);
        self.written > 0 && header(headers, CONTENT_RANGE).is_some_and(|range| range.starts_with(&start))
    }
}

impl Version {
    fn of(headers: &HeaderMap) -> Self {
        Version { etag: header(headers, ETAG), last_modified: header(headers, LAST_MODIFIED) }
    }

    /// The value for `If-Range`, which does not accept weak ETags: they don't guarantee identical bytes.
    fn if_range(&self) -> Option<&str> {
        let strong = self.etag.as_deref().filter(|tag| !tag.starts_with("W/"));
        strong.or(self.last_modified.as_deref())
    }

    fn add_conditions(&self, request: RequestBuilder) -> RequestBuilder {
        match (&self.etag, &self.last_modified) {
            (Some(tag), _) => request.header(IF_NONE_MATCH, tag),
            (None, Some(time)) => request.header(IF_MODIFIED_SINCE, time),
            (None, None) => request,
        }
    }
}

/// Whether the server may respond with 304. `If-Range` does not permit it.
fn is_conditional(headers: &HeaderMap) -> bool {
    headers.contains_key(IF_NONE_MATCH) || headers.contains_key(IF_MODIFIED_SINCE)
}

fn header(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

fn is_web_page(headers: &HeaderMap) -> bool {
    header(headers, CONTENT_TYPE)
        .is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/html"))
}
