//! The HTTP client the tests use.

use std::time::Duration;

/// A client that keeps connections and gives up after 10 s, far beyond any deadline of the services.
///
/// # Panics
/// Never on a machine that can run the tests.
#[must_use]
pub fn client() -> reqwest::Client {
    builder().build().expect("a client without special wishes")
}

/// The same, to be changed before it is built.
pub fn builder() -> reqwest::ClientBuilder {
    // reqwest is built without a cryptography provider; who comes second finds it installed, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10))
}
