//! Determines what to download: URLs, credentials and checksums.

use std::path::PathBuf;

use jiff::{Timestamp, ToSpan, tz::TimeZone};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};

use super::{GeoUpdateArgs, Result, UpdateError};

/// One database to download.
#[derive(Debug)]
pub(super) struct Item {
    /// Name in the output.
    pub label: String,
    /// File name in the target directory.
    pub target: String,
    /// Possible URLs, in order. The next one is used if the server responds with 404 or 410.
    pub candidates: Vec<Url>,
    /// User name and password.
    pub auth: Option<(String, SecretString)>,
    pub checksum: Checksum,
}

/// Where the expected checksum comes from.
#[derive(Debug)]
pub(super) enum Checksum {
    None,
    /// `--sha256`.
    Pinned(String),
    /// A file in the format of `sha256sum`. MaxMind has one for each database, so a missing one is an error.
    File(Url),
    /// IPinfo's JSON with checksums. Some databases have none, so a missing one (404, 410) is not an error.
    Json(Url),
}

/// Lists the databases to download.
pub(super) fn plan(args: &GeoUpdateArgs, now: Timestamp) -> Result<Vec<Item>> {
    let problem = match args.source.expose_secret() {
        source @ ("dbip-lite" | "maxmind" | "ipinfo") if args.sha256.is_some() => format!(
            "--sha256 needs a URL as the source: {source} has several files, which change with every release"
        ),
        source @ ("maxmind" | "ipinfo") if !args.accept_license => {
            format!("{source} requires you to accept its license: read it, then add --accept-license")
        }
        "dbip-lite" => return dbip(args, now),
        "maxmind" => return maxmind(args),
        "ipinfo" => return ipinfo(args),
        url => return Ok(vec![any_url(args, url)?]),
    };
    Err(UpdateError::Usage(problem))
}

fn dbip(args: &GeoUpdateArgs, now: Timestamp) -> Result<Vec<Item>> {
    let base = base_url(args, "https://download.db-ip.com/")?;
    let months = months(now);
    let item = |name: String| {
        let file = |month: &String| base.join(&format!("free/dbip-{name}-lite-{month}.mmdb.gz"));
        Ok(Item {
            label: format!("dbip-{name}-lite"),
            target: format!("dbip-{name}-lite.mmdb"),
            candidates: months.iter().map(file).collect::<Result<_, _>>()?,
            auth: None,
            checksum: Checksum::None,
        })
    };
    editions(args, &["city", "asn"], is_safe_name)?.into_iter().map(item).collect()
}

/// This month and the previous one, because this month's file appears only some time after the month has begun.
fn months(now: Timestamp) -> [String; 2] {
    let today = TimeZone::UTC.to_datetime(now).date();
    [today, today.saturating_sub(1.month())].map(|day| day.strftime("%Y-%m").to_string())
}

fn maxmind(args: &GeoUpdateArgs) -> Result<Vec<Item>> {
    let account =
        credential(&args.maxmind_account_id, &args.maxmind_account_id_file, "--maxmind-account-id")?;
    let key = credential(&args.maxmind_license_key, &args.maxmind_license_key_file, "--maxmind-license-key")?;
    let base = base_url(args, "https://download.maxmind.com/")?;
    let item = |edition: String| {
        let file = |suffix: &str| base.join(&format!("geoip/databases/{edition}/download?suffix={suffix}"));
        Ok(Item {
            candidates: vec![file("tar.gz")?],
            checksum: Checksum::File(file("tar.gz.sha256")?),
            auth: Some((account.expose_secret().to_owned(), key.clone())),
            target: format!("{edition}.mmdb"),
            label: edition,
        })
    };
    editions(args, &["GeoLite2-City", "GeoLite2-ASN"], is_safe_name)?.into_iter().map(item).collect()
}

fn ipinfo(args: &GeoUpdateArgs) -> Result<Vec<Item>> {
    let token = credential(&args.ipinfo_token, &args.ipinfo_token_file, "--ipinfo-token")?;
    let base = base_url(args, "https://ipinfo.io/")?;
    let item = |edition: String| {
        let with_token = |path: String| {
            let mut url = base.join(&path)?;
            url.query_pairs_mut().append_pair("token", token.expose_secret());
            Ok::<_, url::ParseError>(url)
        };
        Ok(Item {
            candidates: vec![with_token(format!("data/{edition}.mmdb"))?],
            checksum: Checksum::Json(with_token(format!("data/{edition}.mmdb/checksums"))?),
            auth: None,
            // Unlike the last part alone, this tells free/asn from asn.
            target: format!("{}.mmdb", edition.replace('/', "-")),
            label: edition,
        })
    };
    editions(args, &["ipinfo_lite"], is_safe_path)?.into_iter().map(item).collect()
}

fn any_url(args: &GeoUpdateArgs, text: &str) -> Result<Item> {
    let usage = "the source must be dbip-lite, maxmind, ipinfo or an http(s) URL";
    let pin = "--sha256 must be 64 hexadecimal digits";
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.ok_or_else(|| UpdateError::Usage(usage.to_owned()))?;
    let last = url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
    let stem = last.split(".mmdb").next().and_then(|name| name.split(".tar").next()).unwrap_or_default();
    let stem = if is_safe_name(stem) { stem } else { "database" };
    Ok(Item {
        label: stem.to_owned(),
        target: format!("{stem}.mmdb"),
        auth: None,
        checksum: match &args.sha256 {
            Some(hex) => Checksum::Pinned(sha256(hex).ok_or_else(|| UpdateError::Usage(pin.to_owned()))?),
            None => Checksum::None,
        },
        candidates: vec![url],
    })
}

/// Parses a SHA-256 in hex. Returns it in lower case.
pub(super) fn sha256(text: &str) -> Option<String> {
    let is_valid = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_valid.then(|| text.to_ascii_lowercase())
}

fn base_url(args: &GeoUpdateArgs, default: &str) -> Result<Url> {
    Ok(args.provider_url.clone().map_or_else(|| Url::parse(default), Ok)?)
}

/// The editions to download. Rejects names that are not safe in a URL path or a file name.
fn editions(args: &GeoUpdateArgs, default: &[&str], is_safe: fn(&str) -> bool) -> Result<Vec<String>> {
    let names: Vec<String> = match args.editions.is_empty() {
        true => default.iter().map(|name| (*name).to_owned()).collect(),
        false => args.editions.clone(),
    };
    match names.iter().find(|name| !is_safe(name)) {
        Some(name) => Err(UpdateError::Usage(format!("{name:?} is not a valid database name"))),
        None => Ok(names),
    }
}

/// IPinfo has a folder of free databases: `free/country_asn`.
fn is_safe_path(path: &str) -> bool {
    path.split('/').count() <= 2 && path.split('/').all(is_safe_name)
}

fn is_safe_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=100).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(allowed)
}

fn credential(value: &Option<SecretString>, file: &Option<PathBuf>, flag: &str) -> Result<SecretString> {
    match (value, file) {
        (Some(secret), _) => Ok(secret.clone()),
        (None, Some(path)) => match std::fs::read_to_string(path) {
            Ok(text) => Ok(SecretString::from(text.trim())),
            Err(source) => Err(UpdateError::SecretFile { path: path.clone(), source }),
        },
        (None, None) => Err(UpdateError::Usage(format!("{flag} or {flag}-file is required"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn month_before_january_is_december() {
        let at = |seconds| Timestamp::from_second(seconds).expect("in range");
        assert_eq!(months(at(1_767_225_600)), ["2026-01", "2025-12"]);
        assert_eq!(months(at(1_774_915_200)), ["2026-03", "2026-02"]);
    }

    #[test]
    fn names_unsafe_in_paths_are_rejected() {
        for name in ["../x", ".hidden", "a/b", "", "a b", "x?y"] {
            assert!(!is_safe_name(name), "{name}");
        }
        assert!(is_safe_name("GeoLite2-City") && is_safe_name("ipinfo_lite"));
        for path in ["../x", "/x", "x/", "free/../x", "free/a/b", "free//x", ""] {
            assert!(!is_safe_path(path), "{path}");
        }
        assert!(is_safe_path("free/country_asn") && is_safe_path("ipinfo_lite"));
    }
}
