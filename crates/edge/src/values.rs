//! Normalizes the proxies' spellings of HTTP versions, TLS versions, cipher suites and round-trip times.

use clap::ValueEnum;
use http::Version;

/// Maximum length of a header value in bytes. Longer values are ignored.
const MAX_VALUE_LEN: usize = 64;

/// Maximum round-trip time: one minute. A larger value is invalid or has the wrong unit.
const MAX_RTT_US: f64 = 60_000_000.0;

/// Unit of the proxy's round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RttUnit {
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
}

/// Returns a value that is neither too long nor empty and has only allowed characters.
pub(crate) fn well_formed(value: &[u8]) -> Option<&str> {
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'/' | b'-');
    let is_valid = value.len() <= MAX_VALUE_LEN && value.iter().all(allowed) && !matches!(value, b"" | b"-");
    if is_valid { str::from_utf8(value).ok() } else { None }
}

/// Parses `HTTP/2.0`, `HTTP/2`, `h2`, `2.0` and `2`. Case-insensitive.
pub(crate) fn protocol(value: &str) -> Option<&'static str> {
    let version = strip_prefix(value, "HTTP/").or_else(|| strip_prefix(value, "h")).unwrap_or(value);
    match version {
        "1.0" => Some("HTTP/1.0"),
        "1.1" => Some("HTTP/1.1"),
        "2" | "2.0" | "2c" | "2C" => Some("HTTP/2"),
        "3" | "3.0" => Some("HTTP/3"),
        _ => None,
    }
}

pub(crate) fn protocol_of_version(version: Version) -> Option<&'static str> {
    match version {
        Version::HTTP_10 => Some("HTTP/1.0"),
        Version::HTTP_11 => Some("HTTP/1.1"),
        Version::HTTP_2 => Some("HTTP/2"),
        Version::HTTP_3 => Some("HTTP/3"),
        _ => None,
    }
}

/// Parses `TLSv1.3`, `TLS1.3` and `1.3`. Case-insensitive.
pub(crate) fn tls_version(value: &str) -> Option<&'static str> {
    let without_tls = strip_prefix(value, "TLS").map(|rest| strip_prefix(rest, "v").unwrap_or(rest));
    match without_tls.unwrap_or(value) {
        "1.3" => Some("TLSv1.3"),
        "1.2" => Some("TLSv1.2"),
        "1.1" => Some("TLSv1.1"),
        "1.0" | "1" => Some("TLSv1.0"),
        // Google's load balancer sends this. QUIC always uses TLS 1.3.
        other if other.eq_ignore_ascii_case("QUIC") => Some("TLSv1.3"),
        other if other.eq_ignore_ascii_case("SSLv3") => Some("SSLv3"),
        _ => None,
    }
}

/// Removes a prefix in upper or lower case.
fn strip_prefix<'v>(value: &'v str, prefix: &str) -> Option<&'v str> {
    let (head, rest) = value.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Parses a decimal number. Zero means no measurement: Cloudflare sends it for QUIC.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and 60,000 after the check"
)]
pub(crate) fn rtt_ms(value: &str, unit: RttUnit) -> Option<u32> {
    // The float parser also accepts signs, exponents, "inf" and "nan".
    if !value.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let number: f64 = value.parse().ok()?;
    let micros = match unit {
        RttUnit::Us => number,
        RttUnit::Ms => number * 1_000.0,
    };
    (micros > 0.0 && micros <= MAX_RTT_US).then(|| (micros / 1_000.0).round() as u32)
}

/// Returns the IANA name of a known cipher suite, the proxy's name for an unknown one, and `None` for `none`. Proxies use
/// IANA names, OpenSSL's or BoringSSL's names, or hexadecimal numbers.
pub(crate) fn tls_cipher(value: &str) -> Option<&str> {
    if value.eq_ignore_ascii_case("none") {
        return None;
    }
    // Google's load balancer sends the number as four hexadecimal digits.
    let digits = value.strip_prefix("0x").unwrap_or(value);
    let id = if digits.len() == 4 { u16::from_str_radix(digits, 16).ok() } else { None };
    let suite =
        SUITES.iter().find(|(number, iana, other)| *iana == value || *other == value || Some(*number) == id);
    Some(suite.map_or(value, |(_, iana, _)| iana))
}

/// Number, IANA name, and OpenSSL's name of a suite or, for TLS 1.3, BoringSSL's former one, which Cloudflare still sends.
/// The TLS 1.3 suites come first: nearly every search ends there. Missing are those that no browser offers.
#[rustfmt::skip]
const SUITES: [(u16, &str, &str); 23] = [
    (0x1301, "TLS_AES_128_GCM_SHA256", "AEAD-AES128-GCM-SHA256"),
    (0x1302, "TLS_AES_256_GCM_SHA384", "AEAD-AES256-GCM-SHA384"),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256", "AEAD-CHACHA20-POLY1305-SHA256"),
    (0xC02F, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    (0xC030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    (0xC02B, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    (0xC02C, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    (0xCCA8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
    (0xCCA9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    (0xC027, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
    (0xC028, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
    (0xC023, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
    (0xC024, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
    (0xC013, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA"),
    (0xC014, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", "ECDHE-RSA-AES256-SHA"),
    (0xC009, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "ECDHE-ECDSA-AES128-SHA"),
    (0xC00A, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", "ECDHE-ECDSA-AES256-SHA"),
    (0x009C, "TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
    (0x009D, "TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
    (0x003C, "TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
    (0x003D, "TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
    (0x002F, "TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
    (0x0035, "TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_versions_are_normalized() {
        for (value, want) in [
            ("HTTP/1.0", Some("HTTP/1.0")),
            ("1.0", Some("HTTP/1.0")),
            ("HTTP/1.1", Some("HTTP/1.1")),
            ("http/1.1", Some("HTTP/1.1")),
            ("HTTP/2", Some("HTTP/2")),
            ("HTTP/2.0", Some("HTTP/2")),
            ("h2", Some("HTTP/2")),
            ("H2C", Some("HTTP/2")),
            ("HTTP/3.0", Some("HTTP/3")),
            ("h3", Some("HTTP/3")),
            ("3", Some("HTTP/3")),
            ("HTTP/", None),
            ("HTTP/4", None),
            ("HTTP/0.9", None),
            ("SPDY/3.1", None),
        ] {
            assert_eq!(protocol(value), want, "{value}");
        }
    }

    #[test]
    fn tls_versions_are_normalized() {
        for (value, want) in [
            ("TLSv1.3", Some("TLSv1.3")),
            ("TLS1.3", Some("TLSv1.3")),
            ("tlsv1.3", Some("TLSv1.3")),
            ("1.3", Some("TLSv1.3")),
            ("QUIC", Some("TLSv1.3")),
            ("TLSv1.2", Some("TLSv1.2")),
            ("TLSv1.1", Some("TLSv1.1")),
            ("TLSv1", Some("TLSv1.0")),
            ("TLSv1.0", Some("TLSv1.0")),
            ("SSLv3", Some("SSLv3")),
            ("none", None),
            ("TLSv1.4", None),
            ("TLS", None),
            ("v1.3", None),
            ("1.33", None),
        ] {
            assert_eq!(tls_version(value), want, "{value}");
        }
    }

    #[test]
    fn round_trip_times_are_rounded_to_milliseconds() {
        use RttUnit::{Ms, Us};
        for (value, unit, want) in [
            ("23", Ms, Some(23)),
            ("23.4", Ms, Some(23)),
            ("23.5", Ms, Some(24)),
            ("0.2", Ms, Some(0)),
            ("23456", Us, Some(23)),
            ("23500", Us, Some(24)),
            ("400", Us, Some(0)),
            ("60000", Ms, Some(60_000)),
            ("60000000", Us, Some(60_000)),
            ("60001", Ms, None),
            ("99999999999999999999999999", Us, None),
            ("0", Ms, None),
            ("0.0", Us, None),
            ("-1", Ms, None),
            ("1e3", Ms, None),
            ("inf", Ms, None),
            ("nan", Ms, None),
            ("1.2.3", Ms, None),
            (".", Ms, None),
            ("12ms", Ms, None),
        ] {
            assert_eq!(rtt_ms(value, unit), want, "{value} {unit:?}");
        }
    }

    #[test]
    fn known_cipher_spellings_map_to_iana_names() {
        for (value, want) in [
            ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
            ("AEAD-AES128-GCM-SHA256", "TLS_AES_128_GCM_SHA256"),
            ("AEAD-AES256-GCM-SHA384", "TLS_AES_256_GCM_SHA384"),
            ("AEAD-CHACHA20-POLY1305-SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
            ("1301", "TLS_AES_128_GCM_SHA256"),
            ("0x1303", "TLS_CHACHA20_POLY1305_SHA256"),
            ("c02f", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
            ("C02F", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
            ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
            ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
            ("AES256-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA"),
        ] {
            assert_eq!(tls_cipher(value), Some(want), "{value}");
        }
    }

    #[test]
    fn unknown_suite_is_unchanged_and_none_is_dropped() {
        for value in ["TLS_SM4_GCM_SM3", "00C6", "ECDHE-NEW-1", "13", "01301", "35"] {
            assert_eq!(tls_cipher(value), Some(value));
        }
        assert_eq!(tls_cipher("NONE"), None);
    }

    #[test]
    fn suite_spellings_are_unique() {
        let mut seen = std::collections::HashSet::new();
        for (id, iana, other) in SUITES {
            assert!(seen.insert(format!("{id:04X}")) && seen.insert(iana.to_owned()), "{iana}");
            assert!(seen.insert(other.to_owned()), "{other}");
        }
    }
}
