//! The public URLs of the API and the dashboard: given by flags, or derived from the listen addresses.

use std::net::SocketAddr;

use anyhow::{Context, bail};
use dashboard_api::config::{check_cookies, is_local_http};
use url::Url;

use crate::config::Config;

/// URLs as callers and browsers see them, without a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrls {
    pub api: String,
    pub dashboard: String,
}

impl PublicUrls {
    /// Takes the URLs from the flags. Rejects flags with which the dashboard can't work, and warns about links that other
    /// machines can't open.
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        if config.public_url.is_none() && config.dashboard_listen.ip().is_unspecified() {
            bail!(
                "--dashboard-listen {} accepts connections from other machines, so --public-url must be set: to the \
                 dashboard's https:// URL behind a proxy with TLS, to http://HOST:{port} with --insecure-cookies on a \
                 network that you trust, or to http://localhost:{port} if only this machine uses it",
                config.dashboard_listen,
                port = config.dashboard_listen.port()
            );
        }
        let urls = Self {
            api: config.base_url.clone().unwrap_or_else(|| url_of(config.scheme(), config.listen)),
            dashboard: config
                .public_url
                .clone()
                .unwrap_or_else(|| url_of(config.scheme(), config.dashboard_listen)),
        };
        let api: Url = urls.api.parse().context("--base-url")?;
        let dashboard: Url = urls.dashboard.parse().context("--public-url")?;
        check_cookies(&dashboard, config.insecure_cookies)?;
        if dashboard.path() != "/" {
            bail!(
                "--public-url {} must not have a path: give the dashboard its own host name",
                urls.dashboard
            );
        }
        let given = config.base_url.is_some() || config.public_url.is_some();
        if given && api.origin() == dashboard.origin() && api.path() == "/" {
            bail!(
                "--base-url and --public-url are both {}: give the API and the dashboard different host names or ports, \
                 because both use / and /api/v1",
                urls.api
            );
        }
        urls.warn_about_local_links(config, is_local_http(&api), is_local_http(&dashboard));
        Ok(urls)
    }

    /// The API's responses link to the dashboard, and the dashboard shows commands with the API's URL.
    fn warn_about_local_links(&self, config: &Config, api_is_local: bool, dashboard_is_local: bool) {
        let is_public = config.listen.ip().is_unspecified() || !api_is_local || !dashboard_is_local;
        for (flag, url, is_missing) in [
            ("--base-url", &self.api, config.base_url.is_none() && api_is_local),
            ("--public-url", &self.dashboard, config.public_url.is_none() && dashboard_is_local),
        ] {
            if is_public && is_missing {
                tracing::warn!(
                    url,
                    "pages and responses link to {url}, which works only on this machine; set {flag}"
                );
            }
        }
    }

    /// Puts the actual ports, known once they are bound, into derived URLs.
    pub fn use_addresses(&mut self, config: &Config, api: SocketAddr, dashboard: SocketAddr) {
        if config.base_url.is_none() {
            self.api = url_of(config.scheme(), api);
        }
        if config.public_url.is_none() {
            self.dashboard = url_of(config.scheme(), dashboard);
        }
    }
}

/// URL to open in a browser: loopback and unspecified addresses become `localhost`.
pub fn url_of(scheme: &str, addr: SocketAddr) -> String {
    if addr.ip().is_loopback() || addr.ip().is_unspecified() {
        format!("{scheme}://localhost:{}", addr.port())
    } else {
        format!("{scheme}://{addr}")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn urls(flags: &[&str]) -> anyhow::Result<PublicUrls> {
        PublicUrls::new(&Config::try_parse_from([&["ip-lookup"], flags].concat())?)
    }

    #[test]
    fn urls_default_to_listen_addresses() {
        let default = urls(&[]).unwrap();
        assert_eq!(
            (default.api.as_str(), default.dashboard.as_str()),
            ("http://localhost:8080", "http://localhost:8081")
        );
        let tls = urls(&["--tls-cert", "a.crt", "--tls-key", "a.key"]).unwrap();
        assert_eq!(
            (tls.api.as_str(), tls.dashboard.as_str()),
            ("https://localhost:8080", "https://localhost:8081")
        );
        let given =
            urls(&["--base-url", "https://ip.example/", "--public-url", "https://keys.example/"]).unwrap();
        assert_eq!(
            (given.api.as_str(), given.dashboard.as_str()),
            ("https://ip.example", "https://keys.example")
        );
    }

    #[test]
    fn combinations_that_work_are_accepted() {
        for flags in [
            "--listen 0.0.0.0:8080",
            "--dashboard-listen 0.0.0.0:8081 --public-url https://keys.example",
            "--dashboard-listen 0.0.0.0:8081 --public-url http://localhost:8081",
            "--dashboard-listen 192.0.2.1:8081 --insecure-cookies",
            "--public-url http://keys.example --insecure-cookies",
            "--base-url https://ip.example --public-url https://keys.example",
            "--base-url https://example.org/lookup --public-url https://example.org",
        ] {
            let result = urls(&flags.split(' ').collect::<Vec<_>>());
            assert!(result.is_ok(), "{flags}: {result:?}");
        }
    }

    #[test]
    fn combinations_that_cannot_work_are_rejected_with_the_remedy() {
        for (flags, remedies) in [
            ("--dashboard-listen 0.0.0.0:8081", ["--public-url", "--insecure-cookies"]),
            ("--dashboard-listen [::]:8081 --insecure-cookies", ["--public-url", "http://localhost:8081"]),
            ("--dashboard-listen 192.0.2.1:8081", ["--public-url", "--insecure-cookies"]),
            ("--public-url http://keys.example", ["--public-url", "--insecure-cookies"]),
            ("--public-url https://example.org/keys", ["--public-url", "own host name"]),
            ("--base-url https://example.org --public-url https://example.org", ["--base-url", "host names"]),
            ("--public-url http://localhost:8080", ["--base-url", "ports"]),
        ] {
            let error = urls(&flags.split(' ').collect::<Vec<_>>()).unwrap_err().to_string();
            assert!(remedies.iter().all(|remedy| error.contains(remedy)), "{flags}: {error}");
        }
    }
}
