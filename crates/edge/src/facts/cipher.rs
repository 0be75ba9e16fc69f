//! Translates the cipher suite names of proxies to IANA names. Proxies use four spellings: IANA, OpenSSL, BoringSSL and
//! hexadecimal numbers.

/// Number, IANA name and OpenSSL name of a suite.
type Suite = (u16, &'static str, &'static str);

/// Returns the IANA name of a known suite, the proxy's name for an unknown one, and `None` for `none`.
pub(super) fn name(value: &str) -> Option<&str> {
    if value.eq_ignore_ascii_case("none") {
        return None;
    }
    let id = number(value);
    let matches = |suite: &&Suite| suite.1 == value || suite.2 == value || Some(suite.0) == id;
    let suite = SUITES.iter().find(matches).or_else(|| legacy(value));
    Some(suite.map_or(value, |suite| suite.1))
}

/// Google's load balancer sends the number as four hexadecimal digits.
fn number(value: &str) -> Option<u16> {
    let digits = value.strip_prefix("0x").unwrap_or(value);
    let hex = digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    hex.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
}

/// BoringSSL's former names of the TLS 1.3 suites. Cloudflare still sends them.
fn legacy(value: &str) -> Option<&'static Suite> {
    let index = match value {
        "AEAD-AES128-GCM-SHA256" => 0,
        "AEAD-AES256-GCM-SHA384" => 1,
        "AEAD-CHACHA20-POLY1305-SHA256" => 2,
        _ => return None,
    };
    SUITES.get(index)
}

/// The common TLS 1.3 suites come first: nearly every search ends there. `legacy` relies on the order of the first
/// three.
#[rustfmt::skip]
const SUITES: [Suite; 50] = [
    (0x1301, "TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    (0x1302, "TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
    (0xC02F, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    (0xC030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    (0xC02B, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    (0xC02C, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    (0xCCA8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
    (0xCCA9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    (0xCCAA, "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "DHE-RSA-CHACHA20-POLY1305"),
    (0x1304, "TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_SHA256"),
    (0x1305, "TLS_AES_128_CCM_8_SHA256", "TLS_AES_128_CCM_8_SHA256"),
    (0xC027, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
    (0xC028, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
    (0xC023, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
    (0xC024, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
    (0xC013, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA"),
    (0xC014, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", "ECDHE-RSA-AES256-SHA"),
    (0xC009, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "ECDHE-ECDSA-AES128-SHA"),
    (0xC00A, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", "ECDHE-ECDSA-AES256-SHA"),
    (0x009E, "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
    (0x009F, "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
    (0x0067, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256", "DHE-RSA-AES128-SHA256"),
    (0x006B, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
    (0x0033, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA", "DHE-RSA-AES128-SHA"),
    (0x0039, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA", "DHE-RSA-AES256-SHA"),
    (0x009C, "TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
    (0x009D, "TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
    (0x003C, "TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
    (0x003D, "TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
    (0x002F, "TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
    (0x0035, "TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
    (0x000A, "TLS_RSA_WITH_3DES_EDE_CBC_SHA", "DES-CBC3-SHA"),
    (0xC012, "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA", "ECDHE-RSA-DES-CBC3-SHA"),
    (0xC008, "TLS_ECDHE_ECDSA_WITH_3DES_EDE_CBC_SHA", "ECDHE-ECDSA-DES-CBC3-SHA"),
    (0x0016, "TLS_DHE_RSA_WITH_3DES_EDE_CBC_SHA", "DHE-RSA-DES-CBC3-SHA"),
    (0xC0AC, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM", "ECDHE-ECDSA-AES128-CCM"),
    (0xC0AD, "TLS_ECDHE_ECDSA_WITH_AES_256_CCM", "ECDHE-ECDSA-AES256-CCM"),
    (0xC0AE, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", "ECDHE-ECDSA-AES128-CCM8"),
    (0xC0AF, "TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8", "ECDHE-ECDSA-AES256-CCM8"),
    (0xC09E, "TLS_DHE_RSA_WITH_AES_128_CCM", "DHE-RSA-AES128-CCM"),
    (0xC09F, "TLS_DHE_RSA_WITH_AES_256_CCM", "DHE-RSA-AES256-CCM"),
    (0xC09C, "TLS_RSA_WITH_AES_128_CCM", "AES128-CCM"),
    (0xC09D, "TLS_RSA_WITH_AES_256_CCM", "AES256-CCM"),
    (0xC072, "TLS_ECDHE_ECDSA_WITH_CAMELLIA_128_CBC_SHA256", "ECDHE-ECDSA-CAMELLIA128-SHA256"),
    (0xC073, "TLS_ECDHE_ECDSA_WITH_CAMELLIA_256_CBC_SHA384", "ECDHE-ECDSA-CAMELLIA256-SHA384"),
    (0xC076, "TLS_ECDHE_RSA_WITH_CAMELLIA_128_CBC_SHA256", "ECDHE-RSA-CAMELLIA128-SHA256"),
    (0xC077, "TLS_ECDHE_RSA_WITH_CAMELLIA_256_CBC_SHA384", "ECDHE-RSA-CAMELLIA256-SHA384"),
    (0x0041, "TLS_RSA_WITH_CAMELLIA_128_CBC_SHA", "CAMELLIA128-SHA"),
    (0x0084, "TLS_RSA_WITH_CAMELLIA_256_CBC_SHA", "CAMELLIA256-SHA"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_spellings_map_to_iana_names() {
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
            assert_eq!(name(value), Some(want), "{value}");
        }
    }

    #[test]
    fn unknown_suite_is_unchanged_and_none_is_dropped() {
        for value in ["TLS_SM4_GCM_SM3", "00C6", "ECDHE-NEW-1", "13"] {
            assert_eq!(name(value), Some(value));
        }
        assert_eq!(name("NONE"), None);
    }

    #[test]
    fn suite_spellings_are_unique() {
        let mut seen = std::collections::HashSet::new();
        for (id, iana, openssl) in SUITES {
            assert!(seen.insert(format!("{id:04X}")) && seen.insert(iana.to_owned()), "{iana}");
            assert!(iana == openssl || seen.insert(openssl.to_owned()), "{openssl}");
        }
    }
}
