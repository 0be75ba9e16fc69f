//! One database from the provider to its place: asked for, downloaded, unpacked, checked, renamed.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

use data_encoding::HEXLOWER;
use reqwest::{Client, Url};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::download::{Download, Fetched, Version, pause};
use super::folder::{Folder, Notes};
use super::progress::{Progress, Report};
use super::source::Item;
use super::{GeoUpdateArgs, Outcome, UpdateError, request, unpack};
use crate::geo;

/// Brings one database up to date.
pub(super) async fn refresh(
    client: &Client,
    args: &GeoUpdateArgs,
    folder: &Folder,
    item: &Item,
    report: &Report,
) -> Result<Outcome, UpdateError> {
    let mut progress = report.start(&item.label);
    let notes = folder.notes(&item.target);
    let published = published(client, args, item, &progress).await?;
    let same = notes.as_ref().zip(published.as_ref()).is_some_and(|(notes, sum)| notes.download == *sum);
    if same {
        return Ok(unchanged(folder, item, &progress));
    }
    // If there is a sum, the installed file does not match it: "not modified" must not be an answer.
    let notes = notes.filter(|_| published.is_none());
    let part = folder.temporary()?;
    let Some((url, version)) = fetch(client, args, item, notes.as_ref(), &part, &mut progress).await? else {
        return Ok(unchanged(folder, item, &progress));
    };
    let work = Work { published, version, address: address(url), limit: args.max_size };
    let (file, notes) = blocking(folder, move |unpacked| work.check(part, unpacked)).await?;
    let target = folder.put(file, &item.target)?;
    folder.write_notes(&item.target, &notes)?;
    progress.note(&format!("{}: installed {}", item.label, item.target));
    Ok(Outcome::Installed(target))
}

fn unchanged(folder: &Folder, item: &Item, progress: &Progress<'_>) -> Outcome {
    progress.note(&format!("{}: unchanged", item.label));
    Outcome::Unchanged(folder.target(&item.target))
}

/// The checksum, with the same patience as the download.
async fn published(
    client: &Client,
    args: &GeoUpdateArgs,
    item: &Item,
    progress: &Progress<'_>,
) -> Result<Option<String>, UpdateError> {
    let mut attempt = 0;
    loop {
        match request::published_checksum(client, item).await {
            Ok(sum) => return Ok(sum),
            Err(error) => pause(args, &mut attempt, error, progress).await?,
        }
    }
}

/// The first candidate that exists, downloaded; none if it is the version we have.
async fn fetch<'i>(
    client: &Client,
    args: &GeoUpdateArgs,
    item: &'i Item,
    notes: Option<&Notes>,
    part: &NamedTempFile,
    progress: &mut Progress<'_>,
) -> Result<Option<(&'i Url, Version)>, UpdateError> {
    for url in &item.candidates {
        let have = notes.filter(|notes| notes.address == address(url)).map(|notes| &notes.version);
        let file = tokio::fs::File::from_std(part.reopen()?);
        let download = Download { client, args, item, url, have, file };
        match download.run(progress).await {
            Ok(Fetched::Complete(version)) => return Ok(Some((url, version))),
            Ok(Fetched::NotModified) => return Ok(None),
            Err(UpdateError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Err(UpdateError::NotFound)
}

/// Unpacking and checking take seconds of CPU: off the runtime.
async fn blocking<T: Send + 'static>(
    folder: &Folder,
    work: impl FnOnce(NamedTempFile) -> Result<T, UpdateError> + Send + 'static,
) -> Result<T, UpdateError> {
    let unpacked = folder.temporary()?;
    let result = tokio::task::spawn_blocking(move || work(unpacked)).await;
    result.map_err(|panic| UpdateError::Folder(io::Error::other(panic)))?
}

struct Work {
    published: Option<String>,
    version: Version,
    address: String,
    limit: u64,
}

impl Work {
    /// Everything that must hold before the file may be seen.
    fn check(
        self,
        part: NamedTempFile,
        mut to: NamedTempFile,
    ) -> Result<(NamedTempFile, Notes), UpdateError> {
        let download = sha256(part.path())?;
        if self.published.is_some_and(|sum| sum != download) {
            return Err(UpdateError::Checksum);
        }
        let mut packed = part.reopen()?;
        if starts_like_a_web_page(&mut packed)? {
            return Err(UpdateError::WebPage);
        }
        unpack::unpack(packed, &mut to, self.limit)?;
        geo::verify(to.path()).map_err(UpdateError::Unusable)?;
        let installed = sha256(to.path())?;
        let notes = Notes { address: self.address, download, installed, version: self.version };
        Ok((to, notes))
    }
}

fn starts_like_a_web_page(file: &mut File) -> Result<bool, UpdateError> {
    let mut head = Vec::new();
    file.take(256).read_to_end(&mut head)?;
    file.rewind()?;
    let head = String::from_utf8_lossy(&head).trim_start().to_ascii_lowercase();
    Ok(head.starts_with("<!doctype") || head.starts_with("<html"))
}

fn address(url: &Url) -> String {
    HEXLOWER.encode(&Sha256::digest(url.as_str()))
}

/// SHA-256 of a file, in hex.
pub(super) fn sha256(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(HEXLOWER.encode(&hasher.finalize())),
            count => hasher.update(&buffer[..count]),
        }
    }
}
