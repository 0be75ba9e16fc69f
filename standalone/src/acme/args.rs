//! Flags of ACME.

use std::path::PathBuf;

use instant_acme::LetsEncrypt;

/// Flags for certificates by ACME.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "ACME")]
pub struct AcmeArgs {
    /// Get a certificate for --api-host, --dashboard-host, --ipv4-host and --ipv6-host from a CA, and renew it. The CA gets this address as your
    /// contact. With this flag you accept the terms of service of the CA, for Let's Encrypt: https://letsencrypt.org/repository/
    #[arg(long, env, value_name = "EMAIL", value_parser = email, conflicts_with = "tls_cert")]
    pub acme_email: Option<String>,

    /// ACME directory of the CA. For tests: https://acme-staging-v02.api.letsencrypt.org/directory, which has higher limits
    /// and issues certificates that browsers reject
    #[arg(long, env, value_name = "URL", value_parser = https_url, default_value = LetsEncrypt::Production.url(), requires = "acme_email")]
    pub acme_directory: String,

    /// PEM file with the root certificates to trust for the connection to --acme-directory, instead of the system's
    #[arg(long, env, value_name = "FILE", requires = "acme_email")]
    pub acme_ca_file: Option<PathBuf>,

    /// Key ID of the external account binding, for CAs that require it
    #[arg(long, env, value_name = "ID", requires_all = ["acme_eab_key_file", "acme_email"])]
    pub acme_eab_kid: Option<String>,

    /// File with the HMAC key of the external account binding, in Base64url as the CA shows it
    #[arg(long, env, value_name = "FILE", requires_all = ["acme_eab_kid", "acme_email"])]
    pub acme_eab_key_file: Option<PathBuf>,
}

fn email(text: &str) -> Result<String, String> {
    let is_valid = matches!(text.split_once('@'), Some((user, host)) if !user.is_empty() && host.contains('.'))
        && !text.contains(|c: char| c.is_whitespace() || c.is_control() || "?,<>".contains(c));
    if is_valid { Ok(text.to_owned()) } else { Err("must be an email address".to_owned()) }
}

fn https_url(text: &str) -> Result<String, String> {
    let url = service_kit::web_url(text)?;
    if url.scheme() == "https" { Ok(url.into()) } else { Err("must start with https://".to_owned()) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    struct Flags {
        #[arg(long)]
        tls_cert: Option<PathBuf>,
        #[command(flatten)]
        acme: AcmeArgs,
    }

    fn parse(flags: &str) -> Result<Flags, clap::Error> {
        Flags::try_parse_from(["test"].into_iter().chain(flags.split_whitespace()))
    }

    #[test]
    fn email_alone_selects_lets_encrypt() {
        let flags = parse("--acme-email you@example.org").unwrap();
        assert_eq!(flags.acme.acme_directory, "https://acme-v02.api.letsencrypt.org/directory");
        assert_eq!(flags.tls_cert, None);
        assert_eq!(parse("").unwrap().acme.acme_email, None);
    }

    #[test]
    fn flags_that_do_not_belong_together_are_rejected() {
        for flags in [
            "--acme-email you@example.org --tls-cert a.pem",
            "--acme-directory https://ca.example/directory",
            "--acme-ca-file ca.pem",
            "--acme-email you@example.org --acme-eab-kid 1",
            "--acme-email you@example.org --acme-eab-key-file key",
            "--acme-eab-kid 1 --acme-eab-key-file key",
            "--acme-email you@example.org --acme-directory http://ca.example/directory",
            "--acme-email nobody",
            "--acme-email you@example.org,me@example.org",
        ] {
            assert!(parse(flags).is_err(), "{flags}");
        }
        assert!(parse("--acme-email you@example.org --acme-eab-kid 1 --acme-eab-key-file key").is_ok());
    }
}
