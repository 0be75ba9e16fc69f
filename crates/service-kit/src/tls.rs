//! The one rustls provider of the process.

/// Makes ring the provider for everything that speaks TLS here; calling it again changes nothing.
///
/// Without it, a client that is built first might find none, or two to choose from, and panic.
pub fn install_crypto_provider() {
    // The error only says that one is installed already, and every caller installs this one.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
mod tests {
    #[test]
    fn installing_twice_is_harmless() {
        super::install_crypto_provider();
        super::install_crypto_provider();
        assert!(rustls::crypto::CryptoProvider::get_default().is_some());
    }
}
