//! Updates one database: checksum, download, verification, unpacking and installation.

use std::fs::File;
use std::io::{Read, Seek};

use data_encoding::HEXLOWER;
use reqwest::{Client, Url};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::download::{Download, DownloadResult, Version, wait_before_retry};
use super::progress::{DownloadProgress, Report};
use super::source::Item;
use super::target_dir::{InstallInfo, TargetDir, file_sha256};
use super::{GeoUpdateArgs, UpdateError, UpdateResult, request, unpack};
use crate::verify;

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
    if info.as_ref().is_some_and(|info| checksum.as_ref() == Some(&info.download_sha256)) {
        return Ok(unchanged(target_dir, item, &progress));
    }
    // Here a known checksum differs from that of the installed file. Dropping the install info makes the download
    // unconditional, so that the server can't respond with 304 and leave the wrong file installed.
    let info = info.filter(|_| checksum.is_none());
    let part = target_dir.temp_file()?;
    let Some((url, version)) = fetch(client, args, item, info.as_ref(), &part, &mut progress).await? else {
        return Ok(unchanged(target_dir, item, &progress));
    };
    let (mut file, limit) = (target_dir.temp_file()?, args.max_size);
    // On a blocking thread, because unpacking and verifying take seconds of CPU time.
    let unpacking = tokio::task::spawn_blocking(move || {
        let download_sha256 = unpack_verified(&part, checksum, &mut file, limit)?;
        let installed_sha256 = file_sha256(file.path())?;
        Ok::<_, UpdateError>((file, download_sha256, installed_sha256))
    });
    let (file, download_sha256, installed_sha256) = unpacking.await.map_err(UpdateError::Panicked)??;
    let info = InstallInfo { url_sha256: url_sha256(url), download_sha256, installed_sha256, version };
    // Written first, so that a failure leaves the installed file unchanged. Info that does not match the installed file
    // is ignored.
    target_dir.write_install_info(&item.target, &info)?;
    let target = target_dir.install(file, &item.target)?;
    progress.line(&format!("{}: installed {}", item.label, item.target));
    Ok(UpdateResult::Installed(target))
}

fn unchanged(target_dir: &TargetDir, item: &Item, progress: &DownloadProgress) -> UpdateResult {
    progress.line(&format!("{}: unchanged", item.label));
    UpdateResult::Unchanged(target_dir.file_path(&item.target))
}

/// Gets the checksum of the download, if there is one, with the same retries as the download.
async fn expected_checksum(
    client: &Client,
    args: &GeoUpdateArgs,
    item: &Item,
    progress: &DownloadProgress,
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
    progress: &mut DownloadProgress,
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

/// Compares the checksum, if one is known, unpacks the download into `to` and verifies the database. Returns the SHA-256
/// of the download. `limit` is the maximum size of the unpacked file.
fn unpack_verified(
    part: &NamedTempFile,
    checksum: Option<String>,
    to: &mut NamedTempFile,
    limit: u64,
) -> Result<String, UpdateError> {
    let download_sha256 = file_sha256(part.path())?;
    if checksum.is_some_and(|sum| sum != download_sha256) {
        return Err(UpdateError::Checksum);
    }
    let mut packed = part.reopen()?;
    if starts_with_html(&mut packed)? {
        return Err(UpdateError::WebPage);
    }
    unpack::unpack(packed, to, limit)?;
    verify(to.path()).map_err(UpdateError::Unusable)?;
    Ok(download_sha256)
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
