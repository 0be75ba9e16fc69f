//! The public URLs that responses and pages link to.

use anyhow::ensure;
use url::Url;

use crate::config::Config;

/// Public URLs without a trailing slash, derived from the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrls {
    /// This API, as seen by its callers.
    pub base: String,
    /// The same under host names that have addresses of one family only.
    pub ipv4: Option<String>,
    pub ipv6: Option<String>,
    /// The documentation; each error code is an anchor in it.
    pub docs: String,
    pub dashboard: String,
    /// Where callers of the demo get their own key.
    pub signup: String,
    /// Where key owners get a higher limit.
    pub enterprise: String,
}

impl PublicUrls {
    /// Takes the URLs from the flags. A flag that is unset or empty gets its default.
    pub fn new(config: &Config) -> Self {
        let url_or = |url: &Option<String>, default: String| match url.as_deref().map(trim) {
            None | Some("") => default,
            Some(url) => url.to_owned(),
        };
        let base = trim(&config.base_url).to_owned();
        let docs = url_or(&config.docs_url, format!("{base}/docs"));
        let dashboard = trim(&config.dashboard_url).to_owned();
        Self {
            signup: url_or(&config.signup_url, format!("{dashboard}/#sign-up")),
            enterprise: url_or(&config.enterprise_url, format!("{docs}#enterprise")),
            ipv4: config.ipv4_host.as_deref().and_then(|host| with_host(&base, host)),
            ipv6: config.ipv6_host.as_deref().and_then(|host| with_host(&base, host)),
            base,
            docs,
            dashboard,
        }
    }

    /// Rejects a host of one address family that is also another host: its pages would show the other family's address.
    pub fn check_hosts(&self) -> anyhow::Result<()> {
        let hosts = self.hosts();
        for (index, host) in hosts.iter().enumerate() {
            ensure!(
                !hosts[..index].contains(host),
                "--ipv4-host, --ipv6-host and the host of --base-url must be different names, but two are {host}"
            );
        }
        Ok(())
    }

    /// The host names of the API.
    pub fn hosts(&self) -> Vec<String> {
        self.all().filter_map(|url| url.host_str().map(str::to_owned)).collect()
    }

    /// The origins of the API's pages.
    pub fn origins(&self) -> Vec<String> {
        self.all().map(|url| url.origin().ascii_serialization()).collect()
    }

    /// The base URL and its variants.
    fn all(&self) -> impl Iterator<Item = Url> {
        [Some(&self.base), self.ipv4.as_ref(), self.ipv6.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|url| Url::parse(url).ok())
    }

    /// The path of the base URL: where a browser on one of our pages finds the API.
    pub fn base_path(&self) -> String {
        let path = Url::parse(&self.base).map(|url| url.path().trim_end_matches('/').to_owned());
        path.ok().filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned())
    }

    /// The path of a page: this path below the base URL.
    pub fn path_to(&self, path: &str) -> String {
        format!("{}{path}", self.base_path().trim_end_matches('/'))
    }
}

/// The URL with another host.
fn with_host(url: &str, host: &str) -> Option<String> {
    let mut url = Url::parse(url).ok()?;
    url.set_host(Some(host)).ok()?;
    Some(trim(url.as_str()).to_owned())
}

fn trim(url: &str) -> &str {
    url.trim().trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_derive_from_base_and_dashboard_urls() {
        let base_url = "https://ip.example/".to_owned();
        let dashboard_url = "https://keys.example/".to_owned();
        let urls = PublicUrls::new(&Config { base_url, dashboard_url, ..Config::default() });
        assert_eq!(urls.docs, "https://ip.example/docs");
        assert_eq!(urls.signup, "https://keys.example/#sign-up");
        assert_eq!(urls.enterprise, "https://ip.example/docs#enterprise");
        assert_eq!(urls.base_path(), "/");
    }

    #[test]
    fn hosts_of_one_family_have_scheme_port_and_path_of_the_base_url() {
        let config = |base_url: &str, ipv4: Option<&str>, ipv6: Option<&str>| Config {
            base_url: base_url.to_owned(),
            ipv4_host: ipv4.map(str::to_owned),
            ipv6_host: ipv6.map(str::to_owned),
            ..Config::default()
        };
        let (v4, v6) = (Some("v4.example"), Some("v6.example"));
        let urls = PublicUrls::new(&config("https://ip.example:8443/lookup", v4, v6));
        assert_eq!(urls.ipv4.as_deref(), Some("https://v4.example:8443/lookup"));
        assert_eq!(urls.ipv6.as_deref(), Some("https://v6.example:8443/lookup"));
        assert_eq!(
            urls.origins(),
            ["https://ip.example:8443", "https://v4.example:8443", "https://v6.example:8443"]
        );
        assert!(urls.check_hosts().is_ok());
        let urls = PublicUrls::new(&config("http://localhost:8080", None, v6));
        assert_eq!((urls.ipv4.as_deref(), urls.ipv6.as_deref()), (None, Some("http://v6.example:8080")));
        for (ipv4, ipv6) in [(v4, v4), (Some("ip.example"), None), (None, Some("ip.example"))] {
            let error = PublicUrls::new(&config("https://IP.example", ipv4, ipv6)).check_hosts().unwrap_err();
            assert!(error.to_string().contains("--ipv4-host"), "{error}");
        }
    }

    #[test]
    fn flags_override_defaults_unless_empty() {
        let config = Config {
            base_url: "https://example/lookup".to_owned(),
            docs_url: Some("https://docs.example".to_owned()),
            signup_url: Some("https://join.example".to_owned()),
            enterprise_url: Some(String::new()),
            ..Config::default()
        };
        let urls = PublicUrls::new(&config);
        assert_eq!(urls.enterprise, "https://docs.example#enterprise");
        assert_eq!(urls.signup, "https://join.example");
        assert_eq!(urls.base_path(), "/lookup");
    }
}
