//! The process-wide rustls crypto provider.

/// Installs ring as the process-wide crypto provider. Further calls have no effect.
///
/// Without it, building a TLS client can panic: rustls may find no provider, or more than one.
pub fn install_crypto_provider() {
    // An error means that a provider is already installed: this one, since nothing else installs one.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
mod tests {
    #[test]
    fn second_install_has_no_effect() {
        super::install_crypto_provider();
        super::install_crypto_provider();
        assert!(rustls::crypto::CryptoProvider::get_default().is_some());
    }
}
