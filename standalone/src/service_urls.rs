//! The public URLs of the API and the dashboard: given by flags, or derived from the listen addresses.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use dashboard_api::config::check_cookies;
use service_kit::is_local_http;
use url::Url;

use crate::config::Config;

/// URLs have no port if it is this one.
const HTTPS_PORT: u16 = 443;

/// URLs as callers and browsers see them, without a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceUrls {
    pub api: String,
    pub dashboard: String,
}

impl ServiceUrls {
    /// Takes the URLs from the flags. Rejects flags with which the dashboard can't work, and warns about links that other
    /// machines can't open.
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        let named = config.public_url.is_some() || config.dashboard_host.is_some();
        let addr = config.dashboard_addr();
        ensure!(
            named || !addr.ip().is_unspecified(),
            "--dashboard-listen {addr} accepts connections from other machines, so --public-url must be set: to the \
             dashboard's https:// URL behind a proxy with TLS, to http://HOST:{port} with --insecure-cookies on a \
             network that you trust, or to http://localhost:{port} if only this machine uses it",
            port = addr.port()
        );
        let urls = Self::at(config, config.listen, addr);
        let api: Url = urls.api.parse().context("--base-url")?;
        let dashboard: Url = urls.dashboard.parse().context("--public-url")?;
        check_cookies(&dashboard, config.insecure_cookies)?;
        ensure!(
            dashboard.path() == "/",
            "--public-url {} must not have a path: give the dashboard its own host name",
            urls.dashboard
        );
        check_host("--base-url", &api, "--api-host", config.api_host.as_deref())?;
        check_host("--public-url", &dashboard, "--dashboard-host", config.dashboard_host.as_deref())?;
        let given = config.base_url.is_some() || config.public_url.is_some() || config.api_host.is_some();
        ensure!(
            !(given && api.origin() == dashboard.origin() && api.path() == "/"),
            "the URLs of the API and the dashboard are both {} (--base-url, --public-url): give the API and the dashboard different host names or ports, \
                 because both use / and /api/v1",
            urls.api
        );
        urls.warn_about_local_links(config, is_local_http(&api), is_local_http(&dashboard));
        Ok(urls)
    }

    /// The API's responses link to the dashboard, and the dashboard shows commands with the API's URL.
    fn warn_about_local_links(&self, config: &Config, api_is_local: bool, dashboard_is_local: bool) {
        let is_public = config.listen.ip().is_unspecified() || !api_is_local || !dashboard_is_local;
        let dashboard_flag = if config.api_host.is_some() { "--dashboard-host" } else { "--public-url" };
        for (flag, url, is_missing) in [
            ("--base-url", &self.api, config.base_url.is_none() && api_is_local),
            (dashboard_flag, &self.dashboard, config.public_url.is_none() && dashboard_is_local),
        ] {
            if is_public && is_missing {
                tracing::warn!(
                    url,
                    "pages and responses link to {url}, which works only on this machine; set {flag}"
                );
            }
        }
    }

    /// The URLs of services that listen on these addresses.
    pub fn at(config: &Config, api: SocketAddr, dashboard: SocketAddr) -> Self {
        let derived = |host: &Option<String>, scheme: &str, addr: SocketAddr| match host {
            Some(host) if addr.port() == HTTPS_PORT => format!("https://{host}"),
            Some(host) => format!("https://{host}:{}", addr.port()),
            None => url_of(scheme, addr),
        };
        let api = || derived(&config.api_host, config.scheme(), api);
        let dashboard = || derived(&config.dashboard_host, config.dashboard_scheme(), dashboard);
        Self {
            api: config.base_url.clone().unwrap_or_else(api),
            dashboard: config.public_url.clone().unwrap_or_else(dashboard),
        }
    }
}

/// Rejects a URL that the service would not serve, because it has another host name.
fn check_host(flag: &str, url: &Url, host_flag: &str, host: Option<&str>) -> anyhow::Result<()> {
    let Some(host) = host else { return Ok(()) };
    ensure!(
        url.scheme() == "https" && url.host_str() == Some(host),
        "{flag} {url} must be an https:// URL with the host of {host_flag} {host}"
    );
    Ok(())
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

    fn urls(flags: &[&str]) -> anyhow::Result<ServiceUrls> {
        ServiceUrls::new(&Config::try_parse_from([&["ip-lookup"], flags].concat())?)
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
    fn urls_of_hosts_are_https_with_the_port_unless_it_is_443() {
        let tls = "--tls-cert a.crt --tls-key a.key --api-host ip.example";
        for (flags, api, dashboard) in [
            ("--dashboard-host keys.example", "https://ip.example", "https://keys.example"),
            (
                "--dashboard-host keys.example --listen [::]:8443",
                "https://ip.example:8443",
                "https://keys.example:8443",
            ),
            (
                "--dashboard-host ip.example --dashboard-listen [::]:8443",
                "https://ip.example",
                "https://ip.example:8443",
            ),
            ("", "https://ip.example", "http://localhost:8081"),
            (
                "--listen [::]:8443 --base-url https://IP.example/lookup --dashboard-host keys.example",
                "https://IP.example/lookup",
                "https://keys.example:8443",
            ),
        ] {
            let flags: Vec<_> = tls.split(' ').chain(flags.split_whitespace()).collect();
            let urls = urls(&flags).unwrap();
            assert_eq!((urls.api.as_str(), urls.dashboard.as_str()), (api, dashboard), "{flags:?}");
        }
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
            ("--api-host a.example --dashboard-host a.example", ["--base-url", "host names or ports"]),
            ("--api-host a.example --base-url https://b.example", ["--base-url", "--api-host a.example"]),
            ("--api-host a.example --base-url http://a.example", ["--base-url", "https://"]),
            (
                "--api-host a.example --dashboard-host b.example --public-url https://c.example",
                ["--public-url", "--dashboard-host b.example"],
            ),
        ] {
            let error = urls(&flags.split(' ').collect::<Vec<_>>()).unwrap_err().to_string();
            assert!(remedies.iter().all(|remedy| error.contains(remedy)), "{flags}: {error}");
        }
    }
}
