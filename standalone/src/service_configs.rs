//! The configuration of each service, derived from the flags of `ip-lookup`.

use std::net::SocketAddr;

use anyhow::Context as _;
use base::flags::flag_defaults;
use dashboard_api::session::SessionKey;
use edge::EdgeArgs;
use geo::GeoArgs;
use service_kit::PublicServiceArgs;
use url::Url;

use crate::config::Config;
use crate::data_dir;
use crate::service_urls::ServiceUrls;

impl Config {
    /// quota-svc's configuration. The data directory's store is used unless --redis-url is set.
    pub fn quota(&self) -> quota_svc::config::Config {
        use quota_svc::store::StoreArgs;
        quota_svc::config::Config {
            listen: self.quota_listen,
            quota_token_file: Some(data_dir::quota_token_file(&self.data_dir)),
            store: StoreArgs {
                redis_url: self.redis_url.clone(),
                store_file: self.redis_url.is_none().then(|| data_dir::store_file(&self.data_dir)),
                ..StoreArgs::default()
            },
            limits: self.limits,
            ..quota_svc::config::Config::default()
        }
    }

    pub fn lookup(&self, quota: SocketAddr, urls: &ServiceUrls) -> lookup_svc::config::Config {
        let mut config = lookup_svc::config::Config {
            base_url: urls.api.clone(),
            ipv4_host: self.ipv4_host.clone(),
            ipv6_host: self.ipv6_host.clone(),
            dashboard_url: urls.dashboard.clone(),
            ratelimit_headers: self.ratelimit_headers,
            edge: self.edge(),
            geo: self.geo_args(),
            service: self.service_args(self.listen),
            ..lookup_svc::config::Config::default()
        };
        config.quota.quota_url = format!("http://{quota}");
        config.quota.quota_token_file = Some(data_dir::quota_token_file(&self.data_dir));
        config
    }

    pub fn dashboard(
        &self,
        quota: SocketAddr,
        session_key: SessionKey,
        urls: &ServiceUrls,
    ) -> anyhow::Result<dashboard_api::config::Config> {
        let is_named = self.public_url.is_some() || self.dashboard_host.is_some();
        let url: Url = urls.dashboard.parse().context("--public-url")?;
        let mut config = dashboard_api::config::Config {
            quota_url: format!("http://{quota}"),
            quota_token_file: Some(data_dir::quota_token_file(&self.data_dir)),
            default_host: url.host_str().map(str::to_owned),
            public_url: is_named.then_some(url),
            lookup_url: urls.api.parse().context("--base-url")?,
            edge: self.edge(),
            service: self.service_args(self.dashboard_addr()),
            notices: self.notices.clone(),
            ..dashboard_api::config::Config::default()
        };
        config.accounts.session_key = Some(session_key);
        config.accounts.signup = self.signup;
        // Some browsers reject Secure cookies over plain HTTP. Loopback traffic does not leave the machine.
        let local_only = !is_named && self.dashboard_addr().ip().is_loopback();
        config.accounts.insecure_cookies = self.insecure_cookies || local_only;
        Ok(config)
    }

    fn service_args(&self, listen: SocketAddr) -> PublicServiceArgs {
        let (serving, listener) = (self.serve_args(), self.listener.clone());
        PublicServiceArgs { listen, serving, listener, ..flag_defaults() }
    }

    /// The geo flags. Without `--geo-db`, the databases come from the data directory, if it has any.
    pub fn geo_args(&self) -> GeoArgs {
        GeoArgs { default_dir: Some(data_dir::geo_dir(&self.data_dir)), ..self.geo.clone() }
    }

    /// The edge's flags.
    pub fn edge(&self) -> EdgeArgs {
        let is_none = self.trusted_proxies == ["none"];
        let trusted_proxies = if is_none { Vec::new() } else { self.trusted_proxies.clone() };
        EdgeArgs { trusted_proxies, colo: self.colo.clone(), ..EdgeArgs::default() }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn dashboard_accepts_the_host_of_its_default_url() {
        for (flags, host) in [
            ("", "localhost"),
            ("--dashboard-listen 192.0.2.1:8081 --insecure-cookies", "192.0.2.1"),
            ("--dashboard-listen [2001:db8::1]:8081 --insecure-cookies", "2001:db8::1"),
            ("--public-url https://keys.example", "keys.example"),
        ] {
            let config =
                Config::try_parse_from(["ip-lookup"].into_iter().chain(flags.split_whitespace())).unwrap();
            let (urls, key) = (ServiceUrls::new(&config).unwrap(), SessionKey::generate().unwrap());
            let dashboard = config.dashboard(config.quota_listen, key, &urls).unwrap();
            assert_eq!(dashboard.host().as_deref(), Some(host), "{flags}");
        }
    }

    #[test]
    fn write_timeout_is_shorter_than_the_deadline_of_the_dashboard() {
        let write_timeout = quota_svc::store::StoreArgs::default().write_timeout;
        assert!(write_timeout < dashboard_api::deadline::QUOTA_TIMEOUT, "{write_timeout:?}");
    }
}
