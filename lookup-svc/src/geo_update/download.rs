//! One download into a file: goes on where it was cut off, tries again a bounded number of times.

use std::time::Duration;

use reqwest::header::{
    CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    LAST_MODIFIED, RANGE,
};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use tokio::fs::File;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

use super::progress::Progress;
use super::source::Item;
use super::{GeoUpdateArgs, UpdateError, request};

const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What the server gave to recognise this version of the file by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Version {
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

/// How a download ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fetched {
    Complete(Version),
    NotModified,
}

/// A download under way.
pub(super) struct Download<'a> {
    pub client: &'a Client,
    pub args: &'a GeoUpdateArgs,
    pub item: &'a Item,
    pub url: &'a Url,
    /// The version that is installed already.
    pub have: Option<&'a Version>,
    pub file: File,
}

impl Download<'_> {
    /// Downloads to the end, over as many attempts as are allowed.
    pub(super) async fn run(mut self, progress: &mut Progress<'_>) -> Result<Fetched, UpdateError> {
        let mut part = Part::default();
        let mut attempt = 0;
        loop {
            let error = match self.attempt(&mut part, progress).await {
                Ok(fetched) => {
                    self.file.sync_all().await?;
                    return Ok(fetched);
                }
                Err(error) => error,
            };
            pause(self.args, &mut attempt, error, progress).await?;
        }
    }

    async fn attempt(
        &mut self,
        part: &mut Part,
        progress: &mut Progress<'_>,
    ) -> Result<Fetched, UpdateError> {
        let request = request::get(self.client, self.item, self.url);
        let request = part.headers(request, self.have).build()?;
        let conditional = is_conditional(request.headers());
        let mut response = self.client.execute(request).await?;
        request::refuse_errors(&response)?;
        match response.status() {
            StatusCode::NOT_MODIFIED if conditional => return Ok(Fetched::NotModified),
            StatusCode::NOT_MODIFIED => return Err(UpdateError::NotModified),
            StatusCode::PARTIAL_CONTENT if part.continues(response.headers()) => {}
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                self.restart(part, Version::default()).await?;
                return Err(UpdateError::CutOff);
            }
            _ => self.restart(part, Version::of(response.headers())).await?,
        }
        self.receive(&mut response, part, progress).await?;
        Ok(Fetched::Complete(part.version.clone()))
    }

    async fn receive(
        &mut self,
        response: &mut Response,
        part: &mut Part,
        progress: &mut Progress<'_>,
    ) -> Result<(), UpdateError> {
        if is_web_page(response.headers()) {
            return Err(UpdateError::WebPage);
        }
        let limit = self.args.max_size;
        let total = response.content_length().map(|rest| rest.saturating_add(part.written));
        if total.is_some_and(|total| total > limit) {
            return Err(UpdateError::TooLarge(limit));
        }
        progress.total(total);
        while let Some(chunk) = response.chunk().await? {
            if part.written + chunk.len() as u64 > limit {
                return Err(UpdateError::TooLarge(limit));
            }
            self.file.write_all(&chunk).await?;
            part.written += chunk.len() as u64;
            progress.at(part.written);
        }
        match total {
            Some(total) if total != part.written => Err(UpdateError::CutOff),
            _ => Ok(()),
        }
    }

    async fn restart(&mut self, part: &mut Part, version: Version) -> Result<(), UpdateError> {
        self.file.rewind().await?;
        self.file.set_len(0).await?;
        *part = Part { written: 0, version };
        Ok(())
    }
}

/// Waits before the next attempt, or gives the error back when there is none.
pub(super) async fn pause(
    args: &GeoUpdateArgs,
    attempt: &mut u32,
    error: UpdateError,
    progress: &Progress<'_>,
) -> Result<(), UpdateError> {
    if *attempt >= args.retries || !error.is_passing() {
        return Err(error);
    }
    let pause = args.retry_delay.saturating_mul(1 << (*attempt).min(6)).min(LONGEST_PAUSE);
    *attempt += 1;
    let wait = humantime::format_duration(pause);
    progress.note(&format!("{error}; attempt {} of {} in {wait}", *attempt + 1, args.retries + 1));
    tokio::time::sleep(pause).await;
    Ok(())
}

/// What has arrived so far.
#[derive(Debug, Default)]
struct Part {
    written: u64,
    version: Version,
}

impl Part {
    /// A range only together with a condition: a part of another version would not fit.
    fn headers(&self, request: RequestBuilder, have: Option<&Version>) -> RequestBuilder {
        match (self.written, self.version.condition(), have) {
            (1.., Some(version), _) => {
                request.header(RANGE, format!("bytes={}-", self.written)).header(IF_RANGE, version)
            }
            (0, _, Some(have)) => have.unless_unchanged(request),
            _ => request,
        }
    }

    fn continues(&self, headers: &HeaderMap) -> bool {
        let start = format!("bytes {}-", self.written);
        self.written > 0 && text(headers, CONTENT_RANGE).is_some_and(|range| range.starts_with(&start))
    }
}

impl Version {
    fn of(headers: &HeaderMap) -> Self {
        Version { etag: text(headers, ETAG), last_modified: text(headers, LAST_MODIFIED) }
    }

    /// What If-Range accepts: a weak tag does not promise the same bytes.
    fn condition(&self) -> Option<&str> {
        let strong = self.etag.as_deref().filter(|tag| !tag.starts_with("W/"));
        strong.or(self.last_modified.as_deref())
    }

    fn unless_unchanged(&self, request: RequestBuilder) -> RequestBuilder {
        match (&self.etag, &self.last_modified) {
            (Some(tag), _) => request.header(IF_NONE_MATCH, tag),
            (None, Some(time)) => request.header(IF_MODIFIED_SINCE, time),
            (None, None) => request,
        }
    }
}

/// Whether 304 can be the answer; to If-Range it cannot.
fn is_conditional(headers: &HeaderMap) -> bool {
    headers.contains_key(IF_NONE_MATCH) || headers.contains_key(IF_MODIFIED_SINCE)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

fn is_web_page(headers: &HeaderMap) -> bool {
    text(headers, CONTENT_TYPE)
        .is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/html"))
}
