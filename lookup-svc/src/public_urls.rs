//! The public URLs that responses and pages link to.

use crate::config::Config;

/// Public URLs without a trailing slash, derived from the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrls {
    /// This API, as seen by its callers.
    pub base: String,
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
            base,
            docs,
            dashboard,
        }
    }

    /// The path of the base URL: where a browser on one of our pages finds the API.
    pub fn base_path(&self) -> String {
        let path = reqwest::Url::parse(&self.base).map(|url| url.path().trim_end_matches('/').to_owned());
        path.ok().filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned())
    }
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
