//! Updates one database: checksum, download, verification, unpacking and installation.

use std::fs::File;
use std::io::{Read, Seek};

use data_encoding::HEXLOWER;
use reqwest::{Client, Url};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::download::{Download, DownloadResult, Version, wait_before_retry};
use super::progress::{Progress, Report};
use super::source::Item;
use super::target_dir::{InstallInfo, TargetDir, file_sha256};
use super::{GeoUpdateArgs, UpdateError, UpdateResult, request, unpack};
use crate::geo;

/// Downloads and installs one database, unless the installed file is current.
pub(super) async fn refresh(
    client: &Client,
    args: &GeoUpdateArgs,
    target_dir: &TargetDir,
    item: &Item,
    report: &Report,
) -> Result<UpdateResult, UpdateError> {
    let mut progress = report.start(&item.label);
    let info = target_dir.install_info(&item.target);
    let checksum = expected_checksum(client, args, item, &progress).await?;
    let matches =
        info.as_ref().zip(checksum.as_ref()).is_some_and(|(info, sum)| info.download_sha256 == *sum);
    if matches {
        return Ok(unchanged(target_dir, item, &progress));
    }
    // Here a known checksum differs from that of the installed file. Dropping the install info makes the download
    // unconditional, so that the server can't respond with 304 and leave the wrong file installed.
    let info = info.filter(|_| checksum.is_none());
    let part = target_dir.temp_file()?;
    let Some((url, version)) = fetch(client, args, item, info.as_ref(), &part, &mut progress).await? else {
        return Ok(unchanged(target_dir, item, &progress));
    };
    let verification = Verification { checksum, version, url_sha256: url_sha256(url), limit: args.max_size };
    let (file, info) = blocking(target_dir, move |unpacked| verification.run(part, unpacked)).await?;
    // Written first, so that a failure leaves the installed file unchanged. Info that does not match the installed file
    // is ignored.
    target_dir.write_install_info(&item.target, &info)?;
    let target = target_dir.install(file, &item.target)?;
    progress.line(&format!("{}: installed {}", item.label, item.target));
    Ok(UpdateResult::Installed(target))
}

fn unchanged(target_dir: &TargetDir, item: &Item, progress: &Progress<'_>) -> UpdateResult {
    progress.line(&format!("{}: unchanged", item.label));
    UpdateResult::Unchanged(target_dir.file_path(&item.target))
}

/// Gets the checksum of the download, if there is one, with the same retries as the download.
async fn expected_checksum(
    client: &Client,
    args: &GeoUpdateArgs,
    item: &Item,
    progress: &Progress<'_>,
) -> Result<Option<String>, UpdateError> {
    let mut attempt = 0;
    loop {
        match request::expected_checksum(client, item).await {
            Ok(sum) => return Ok(sum),
            Err(error) => wait_before_retry(args, &mut attempt, error, progress).await?,
        }
    }
}

/// Downloads the first candidate that exists. `None` if it is the installed version.
async fn fetch<'i>(
    client: &Client,
    args: &GeoUpdateArgs,
    item: &'i Item,
    info: Option<&InstallInfo>,
    part: &NamedTempFile,
    progress: &mut Progress<'_>,
) -> Result<Option<(&'i Url, Version)>, UpdateError> {
    for url in &item.candidates {
        let installed = info.filter(|info| info.url_sha256 == url_sha256(url)).map(|info| &info.version);
        let file = tokio::fs::File::from_std(part.reopen()?);
        let download = Download { client, args, item, url, installed, file };
        match download.run(progress).await {
            Ok(DownloadResult::Complete(version)) => return Ok(Some((url, version))),
            Ok(DownloadResult::NotModified) => return Ok(None),
            Err(UpdateError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Err(UpdateError::NotFound)
}

/// Runs `work` on a blocking thread, because unpacking and verifying take seconds of CPU time. Passes it a new
/// temporary file for the unpacked database.
async fn blocking<T: Send + 'static>(
    target_dir: &TargetDir,
    work: impl FnOnce(NamedTempFile) -> Result<T, UpdateError> + Send + 'static,
) -> Result<T, UpdateError> {
    let unpacked = target_dir.temp_file()?;
    tokio::task::spawn_blocking(move || work(unpacked)).await.map_err(UpdateError::Panicked)?
}

/// Unpacks and verifies a download.
struct Verification {
    /// The expected SHA-256 of the download, if known.
    checksum: Option<String>,
    version: Version,
    url_sha256: String,
    /// Maximum size of the unpacked file.
    limit: u64,
}

impl Verification {
    /// Compares the checksum, unpacks the download into `to` and verifies the database.
    fn run(
        self,
        part: NamedTempFile,
        mut to: NamedTempFile,
    ) -> Result<(NamedTempFile, InstallInfo), UpdateError> {
        let download = file_sha256(part.path())?;
        if self.checksum.is_some_and(|sum| sum != download) {
            return Err(UpdateError::Checksum);
        }
        let mut packed = part.reopen()?;
        if starts_with_html(&mut packed)? {
            return Err(UpdateError::WebPage);
        }
        unpack::unpack(packed, &mut to, self.limit)?;
        geo::verify(to.path()).map_err(UpdateError::Unusable)?;
        let installed = file_sha256(to.path())?;
        let info = InstallInfo {
            url_sha256: self.url_sha256,
            download_sha256: download,
            installed_sha256: installed,
            version: self.version,
        };
        Ok((to, info))
    }
}

fn starts_with_html(file: &mut File) -> Result<bool, UpdateError> {
    let mut head = Vec::new();
    file.take(256).read_to_end(&mut head)?;
    file.rewind()?;
    let head = String::from_utf8_lossy(&head).trim_start().to_ascii_lowercase();
    Ok(head.starts_with("<!doctype") || head.starts_with("<html"))
}

fn url_sha256(url: &Url) -> String {
    HEXLOWER.encode(&Sha256::digest(url.as_str()))
}
