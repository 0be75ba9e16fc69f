//! Reads when a certificate is valid. The TLS library checks certificates but does not show their fields, and
//! x509-parser would add 18 crates to each service for these two fields.

use std::{ops::Range, time::SystemTime};

// Tags of DER elements.
const VERSION: u8 = 0xA0;
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The validity of a DER-encoded X.509 certificate, from `notBefore` to `notAfter`. `None` if malformed.
pub(crate) fn validity(mut certificate: &[u8]) -> Option<Range<SystemTime>> {
    let mut fields = sequence(&mut sequence(&mut certificate)?)?;
    // The serial number comes first, or after the version.
    if element(&mut fields)?.0 == VERSION {
        element(&mut fields)?;
    }
    let (_algorithm, _issuer) = (sequence(&mut fields)?, sequence(&mut fields)?);
    let mut validity = sequence(&mut fields)?;
    // `SystemTime` parsing begins in 1970, and some certificates are valid since earlier.
    let not_before = time(element(&mut validity)?).unwrap_or(SystemTime::UNIX_EPOCH);
    Some(not_before..time(element(&mut validity)?)?)
}

/// Parses `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, the only forms that certificates may have.
fn time((tag, text): (u8, &[u8])) -> Option<SystemTime> {
    let text = str::from_utf8(text).ok()?;
    let (century, text) = match tag {
        // RFC 5280: two digits from 50 on mean the 20th century.
        UTC_TIME => (if text.get(..2)? < "50" { "20" } else { "19" }, text),
        GENERALIZED_TIME => text.split_at_checked(2)?,
        _ => return None,
    };
    let part = |start| text.get(start..start + 2);
    let date = [part(0)?, part(2)?, part(4)?].join("-");
    let time = [part(6)?, part(8)?, text.get(10..)?].join(":");
    humantime::parse_rfc3339(&format!("{century}{date}T{time}")).ok()
}

/// Reads a DER element that is a sequence, and returns its content.
fn sequence<'a>(der: &mut &'a [u8]) -> Option<&'a [u8]> {
    element(der).filter(|(tag, _)| *tag == SEQUENCE).map(|(_, content)| content)
}

/// Reads a DER element, and returns its tag and content.
fn element<'a>(der: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let [tag, first, rest @ ..] = *der else { return None };
    let (length, rest) = match first {
        0..=0x7F => (usize::from(*first), rest),
        // One to four more bytes have the length.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
            (digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let content;
    (content, *der) = rest.split_at_checked(length)?;
    Some((*tag, content))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn certificate(year: i32) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(["a.example".to_owned()]).expect("valid name");
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 3, 1);
        let key = rcgen::KeyPair::generate().expect("key");
        params.self_signed(&key).expect("certificate").der().to_vec()
    }

    #[test]
    fn both_time_formats_are_read() {
        // From 2050 on, certificates use the format with four digits of the year.
        for (year, seconds) in [(2031, 1_930_089_600), (2050, 2_529_705_600)] {
            assert_eq!(validity(&certificate(year)), Some(at(978_307_200)..at(seconds)));
        }
        assert_eq!(time((UTC_TIME, b"990101000000Z")), Some(at(915_148_800)));
    }

    #[test]
    fn truncated_or_changed_certificate_never_panics() {
        let der = certificate(2031);
        for length in 0..der.len() {
            let _ = validity(&der[..length]);
        }
        for position in 0..der.len() {
            let mut changed = der.clone();
            changed[position] ^= 0xFF;
            let _ = validity(&changed);
        }
        assert_eq!(validity(&der[..100]), None);
    }
}
