//! Normalizes the proxies' spellings of HTTP versions, TLS versions and round-trip times.

use http::Version;

use crate::config::RttUnit;

/// Maximum round-trip time: one minute. A larger value is invalid or has the wrong unit.
const MAX_RTT_US: f64 = 60_000_000.0;

const PROTOCOLS: [(&str, &str); 15] = [
    ("HTTP/2", "HTTP/2"),
    ("HTTP/2.0", "HTTP/2"),
    ("h2", "HTTP/2"),
    ("h2c", "HTTP/2"),
    ("2", "HTTP/2"),
    ("2.0", "HTTP/2"),
    ("HTTP/1.1", "HTTP/1.1"),
    ("1.1", "HTTP/1.1"),
    ("HTTP/3", "HTTP/3"),
    ("HTTP/3.0", "HTTP/3"),
    ("h3", "HTTP/3"),
    ("3", "HTTP/3"),
    ("3.0", "HTTP/3"),
    ("HTTP/1.0", "HTTP/1.0"),
    ("1.0", "HTTP/1.0"),
];

/// `QUIC` is sent by Google's load balancer. QUIC always uses TLS 1.3.
const TLS_VERSIONS: [(&str, &str); 7] = [
    ("1.3", "TLSv1.3"),
    ("1.2", "TLSv1.2"),
    ("1.1", "TLSv1.1"),
    ("1.0", "TLSv1.0"),
    ("1", "TLSv1.0"),
    ("QUIC", "TLSv1.3"),
    ("SSLv3", "SSLv3"),
];

fn canonical(table: &[(&str, &'static str)], value: &str) -> Option<&'static str> {
    let row = table.iter().find(|(spelling, _)| spelling.eq_ignore_ascii_case(value));
    row.map(|(_, name)| *name)
}

pub(super) fn protocol(value: &str) -> Option<&'static str> {
    canonical(&PROTOCOLS, value)
}

pub(super) fn protocol_of_version(version: Version) -> Option<&'static str> {
    match version {
        Version::HTTP_10 => Some("HTTP/1.0"),
        Version::HTTP_11 => Some("HTTP/1.1"),
        Version::HTTP_2 => Some("HTTP/2"),
        Version::HTTP_3 => Some("HTTP/3"),
        _ => None,
    }
}

/// Parses `TLSv1.3`, `TLS1.3` and `1.3`. Case-insensitive.
pub(super) fn tls_version(value: &str) -> Option<&'static str> {
    let (head, tail) = value.split_at_checked(3).unwrap_or(("", value));
    let number = match head.eq_ignore_ascii_case("TLS") {
        true => tail.strip_prefix(['v', 'V']).unwrap_or(tail),
        false => value,
    };
    canonical(&TLS_VERSIONS, number)
}

/// Parses a decimal number. Zero means no measurement: Cloudflare sends it for QUIC.
pub(super) fn rtt(value: &str, unit: RttUnit) -> Option<u32> {
    // The float parser also accepts signs, exponents, "inf" and "nan".
    if !value.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let number: f64 = value.parse().ok()?;
    let micros = match unit {
        RttUnit::Us => number,
        RttUnit::Ms => number * 1_000.0,
    };
    whole_millis(micros)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and 60,000 after the check"
)]
fn whole_millis(micros: f64) -> Option<u32> {
    (micros > 0.0 && micros <= MAX_RTT_US).then(|| (micros / 1_000.0).round() as u32)
}
