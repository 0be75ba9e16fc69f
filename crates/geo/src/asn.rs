//! Lists of hosting networks and of VPN and proxy networks: an AS number on each line, with or without a name.

use std::collections::HashSet;

use crate::GeoError;

pub(crate) const HOSTING: &str = include_str!("../data/hosting-asns.txt");
pub(crate) const PROXY: &str = include_str!("../data/proxy-asns.txt");

/// A set of AS numbers. The names in the file are for human readers and not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AsnList(HashSet<u32>);

impl AsnList {
    /// Parses a list. One invalid line rejects the whole file: with a partly read list, `contains` would
    /// silently return false for listed networks. An empty file is rejected too: a writer may just have truncated it.
    pub(crate) fn parse(text: &str) -> Result<Self, GeoError> {
        // Joined files have a byte order mark in the middle, too.
        let text = text.replace('\u{feff}', "");
        if text.trim().is_empty() {
            return Err(GeoError::AsnEmpty);
        }
        let mut numbers = HashSet::new();
        let mut header_allowed = true;
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let is_header = header_allowed && is_csv_header(line);
            if !line.is_empty() && !is_header {
                numbers.insert(parse_line(line).ok_or(GeoError::AsnLine { line: index + 1 })?);
            }
            header_allowed &= line.is_empty();
        }
        Ok(AsnList(numbers))
    }

    /// One of the built-in lists.
    pub(crate) fn built_in(text: &str) -> Self {
        Self::parse(text).expect("the built-in lists are valid (tested)")
    }

    pub(crate) fn contains(&self, asn: u32) -> bool {
        self.0.contains(&asn)
    }
}

/// The column names of a public CSV list, such as `ASN,Entity`.
fn is_csv_header(line: &str) -> bool {
    line.split(',').next().is_some_and(|column| unquoted(column).eq_ignore_ascii_case("asn"))
}

/// Returns the number of a line such as `45090`, `AS45090`, `AS45090 Example`, `45090,Example` or `"45090","Example"`.
fn parse_line(line: &str) -> Option<u32> {
    let is_separator = |c: char| c == ',' || c.is_whitespace();
    let (number, name) = line.split_once(is_separator).unwrap_or((line, ""));
    let number = parse_number(number)?;
    let mut words = name.split(is_separator).filter(|word| !word.is_empty()).peekable();
    // Several numbers on one line: reading only the first would silently leave out the others.
    let is_other_number = |word| parse_number(word).is_some_and(|other| other != number && other != 0);
    let has_several = words.peek().is_some() && words.all(is_other_number);
    (!has_several).then_some(number)
}

/// Also 0, the number of no network, which some lists contain.
fn parse_number(text: &str) -> Option<u32> {
    let text = unquoted(text);
    let digits = text.strip_prefix("AS").unwrap_or(text);
    // `parse` alone would accept a plus sign.
    let is_decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_decimal)
}

fn unquoted(text: &str) -> &str {
    text.trim().trim_matches('"')
}

/// The day on which the networks of the built-in lists were announced, such as `2026-06-17`. `asn-lists.py` sets it.
pub fn built_in_date() -> &'static str {
    date(HOSTING).expect("the built-in lists have the same date (tested)")
}

fn date(list: &str) -> Option<&str> {
    list.lines().find_map(|line| line.strip_prefix("# Date: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<(u32, &str)> {
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let (number, name) = line.split_once('\t').unwrap_or_else(|| panic!("missing tab: {line:?}"));
                (number.parse().unwrap_or_else(|_| panic!("invalid number: {line:?}")), name)
            })
            .collect()
    }

    #[test]
    fn built_in_lists_are_valid_sorted_and_large_enough() {
        for (text, min_len) in [(HOSTING, 300), (PROXY, 35)] {
            let entries = entries(text);
            assert!(entries.len() >= min_len, "{} entries", entries.len());
            assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "must be sorted, without duplicates");
            for (number, name) in entries {
                assert!(name.len() > 1 && name.trim() == name, "{number} {name:?}");
                assert!(
                    !(64_496..=65_551).contains(&number) && number < 4_200_000_000,
                    "{number} is reserved"
                );
            }
        }
    }

    #[test]
    fn built_in_lists_have_the_same_date() {
        let parts: Vec<_> =
            built_in_date().split('-').map(|part| (part.len(), part.parse::<u32>())).collect();
        assert!(matches!(parts[..], [(4, Ok(2026..)), (2, Ok(1..=12)), (2, Ok(1..=31))]), "{parts:?}");
        assert_eq!(date(PROXY), Some(built_in_date()));
    }

    #[test]
    fn well_known_networks_are_listed() {
        let (hosting, proxy) = (AsnList::built_in(HOSTING), AsnList::built_in(PROXY));
        for asn in [16509, 14618, 15169, 396982, 8075, 24940, 16276, 14061, 63949, 20473, 51167] {
            assert!(hosting.contains(asn), "{asn}");
        }
        // Further networks of the same operators.
        for asn in [43515, 8070, 35540, 54253, 150436, 139341, 214101, 135630, 210976, 210329] {
            assert!(hosting.contains(asn), "{asn}");
        }
        for asn in [39351, 62371, 209103, 136787, 272096, 206092, 22781, 9009, 22363] {
            assert!(proxy.contains(asn), "{asn}");
        }
        for asn in [3320, 7018, 7922, 2856] {
            assert!(!hosting.contains(asn) && !proxy.contains(asn), "{asn} is an access network");
        }
    }

    #[test]
    fn every_accepted_form_of_a_line_parses() {
        for line in [
            "45090",
            "AS45090",
            "AS45090 # Example",
            "AS45090# Example",
            "45090 # Example, Inc. #2",
            "45090,Example",
            "AS45090,Example",
            "45090, Example",
            "45090,\"Example, Inc. 7\"",
            "45090,",
            "45090\tExample",
            "AS45090 Example 7",
            "45090,AS45090",
            "  AS45090  ",
            "45090\r",
            "\"45090\"",
            "\"AS45090\",\"Example, Inc.\"",
            "\u{feff}45090",
        ] {
            let list = AsnList::parse(&format!("# comment\n\n{line}\n \t\n64500")).expect(line);
            assert_eq!(
                (list.0.len(), list.contains(45090), list.contains(64500)),
                (2, true, true),
                "{line:?}"
            );
        }
    }

    #[test]
    fn public_lists_parse() {
        for text in [
            "3223\n45090\n",
            "AS3223\r\nAS45090\r\n",
            "AS3223 # Voxility, GB (hosting)\nAS45090 # Tencent cloud\n",
            "ASN,Entity\n3223,\"VOXILITY, RO\"\n45090,Tencent\n",
            "\u{feff}# Source: example\nasn\n3223\n45090",
            "\u{feff}\"ASN\",\"Entity\"\r\n\"3223\",\"Voxility\"\r\n\"45090\",\"Tencent\"\r\n",
        ] {
            let list = AsnList::parse(text).expect(text);
            assert_eq!(
                (list.0.len(), list.contains(3223), list.contains(45090)),
                (2, true, true),
                "{text:?}"
            );
        }
        assert!(AsnList::parse("# none").expect("valid list").0.is_empty());
        for zero in ["0", "AS0 Not routed", "\"0\""] {
            let list = AsnList::parse(&format!("{zero}\n64500\n")).expect(zero);
            assert!(list.contains(64500), "{zero}");
        }
    }

    #[test]
    fn invalid_line_is_rejected_with_its_number() {
        for line in [
            "Example 64500",
            "Example",
            "<html>",
            "AS",
            "AS 64500",
            "ASAS64500",
            "ASN64500",
            "ASN,Entity",
            "-1",
            "+64500",
            "4294967296",
            "64500-64510",
            "64500;Example",
            "64500.1",
            "192.0.2.0/24",
            "\"Example\",\"64500\"",
            "\"64500\",\"64501\"",
            ",Example",
            "64500,64501",
            "AS64500 AS64501 AS64502",
        ] {
            let error = AsnList::parse(&format!("64496\n# comment\n\n{line}\n64497\n")).expect_err(line);
            assert!(matches!(error, GeoError::AsnLine { line: 4 }), "{line:?}: {error}");
        }
        for text in ["", "\n", "\u{feff}"] {
            assert!(matches!(AsnList::parse(text), Err(GeoError::AsnEmpty)), "{text:?}");
        }
    }
}
