//! HTTP client of the tests.

use std::time::Duration;

/// A client that reuses connections and times out after 10 s, far beyond the default deadlines of the services.
#[must_use]
pub fn client() -> reqwest::Client {
    builder().build().expect("default HTTP client")
}

/// The builder behind [`client`], for tests that need other settings.
pub fn builder() -> reqwest::ClientBuilder {
    // reqwest is built without a cryptography provider. Installing one a second time fails, which is harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10))
}
