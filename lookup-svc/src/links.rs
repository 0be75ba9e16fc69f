//! The addresses that answers and pages point to.

use crate::config::Config;

/// Where a client finds what; derived from the flags once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Links {
    /// This service, as its clients see it.
    pub base: String,
    /// The documentation, with a section for each error code.
    pub docs: String,
    /// Where owners manage their keys.
    pub dashboard: String,
    /// Where to get a key.
    pub signup: String,
    /// Where to get a higher limit.
    pub enterprise: String,
}

impl Links {
    /// The flags with their defaults filled in.
    pub fn new(config: &Config) -> Self {
        let given = |url: &Option<String>, default: String| match url.as_deref().map(trim) {
            None | Some("") => default,
            Some(url) => url.to_owned(),
        };
        let base = trim(&config.base_url).to_owned();
        let docs = given(&config.docs_url, format!("{base}/docs"));
        let dashboard = trim(&config.dashboard_url).to_owned();
        Self {
            signup: given(&config.signup_url, format!("{dashboard}/#sign-up")),
            enterprise: given(&config.enterprise_url, format!("{docs}#enterprise")),
            base,
            docs,
            dashboard,
        }
    }

    /// The part of the base address after the host: where a browser that sees our pages finds the API.
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
    fn everything_follows_from_the_base_and_the_dashboard() {
        let base_url = "https://ip.example/".to_owned();
        let dashboard_url = "https://keys.example/".to_owned();
        let links = Links::new(&Config { base_url, dashboard_url, ..Config::default() });
        assert_eq!(links.docs, "https://ip.example/docs");
        assert_eq!(links.signup, "https://keys.example/#sign-up");
        assert_eq!(links.enterprise, "https://ip.example/docs#enterprise");
        assert_eq!(links.base_path(), "/");
    }

    #[test]
    fn what_is_given_wins_and_empty_is_not_given() {
        let config = Config {
            base_url: "https://example/lookup".to_owned(),
            docs_url: Some("https://docs.example".to_owned()),
            signup_url: Some("https://join.example".to_owned()),
            enterprise_url: Some(String::new()),
            ..Config::default()
        };
        let links = Links::new(&config);
        assert_eq!(links.enterprise, "https://docs.example#enterprise");
        assert_eq!(links.signup, "https://join.example");
        assert_eq!(links.base_path(), "/lookup");
    }
}
