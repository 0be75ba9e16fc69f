//! Lists of hosting networks and of VPN and proxy networks: an AS number and a name on each line.

use std::collections::HashSet;

use super::GeoError;

pub(super) const HOSTING: &str = include_str!("../../data/hosting-asns.txt");
pub(super) const PROXY: &str = include_str!("../../data/proxy-asns.txt");

/// A set of AS numbers. The names in the file are for human readers and not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AsnList(HashSet<u32>);

impl AsnList {
    /// Parses a list. One invalid line rejects the whole file: with a partly read list, `contains` would
    /// silently return false for listed networks. An empty file is rejected too: a writer may just have truncated it.
    pub fn parse(text: &str) -> Result<Self, GeoError> {
        if text.trim().is_empty() {
            return Err(GeoError::AsnEmpty);
        }
        let mut numbers = HashSet::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                let number = parse_asn(line).ok_or(GeoError::AsnLine { line: index + 1 })?;
                numbers.insert(number);
            }
        }
        Ok(AsnList(numbers))
    }

    pub fn contains(&self, asn: u32) -> bool {
        self.0.contains(&asn)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn parse_asn(line: &str) -> Option<u32> {
    let (number, _name) = line.split_once(char::is_whitespace)?;
    let digits = number.strip_prefix("AS").unwrap_or(number);
    digits.parse().ok().filter(|number| *number != 0)
}

/// The two lists of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AsnLists {
    /// Hosting and cloud networks.
    pub hosting: AsnList,
    /// VPN and proxy networks.
    pub proxy: AsnList,
}

impl AsnLists {
    pub fn built_in() -> Self {
        let parse = |text| AsnList::parse(text).expect("the built-in lists are valid (tested)");
        AsnLists { hosting: parse(HOSTING), proxy: parse(PROXY) }
    }
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
        for (text, min_len) in [(HOSTING, 150), (PROXY, 15)] {
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
    fn well_known_networks_are_listed() {
        let lists = AsnLists::built_in();
        for asn in [16509, 14618, 15169, 396982, 8075, 24940, 16276, 14061, 63949, 20473, 51167] {
            assert!(lists.hosting.contains(asn), "{asn}");
        }
        for asn in [39351, 62371, 209103, 136787, 9009] {
            assert!(lists.proxy.contains(asn), "{asn}");
        }
        for asn in [3320, 7018, 7922, 2856] {
            assert!(!lists.hosting.contains(asn) && !lists.proxy.contains(asn), "{asn} is an access network");
        }
    }

    #[test]
    fn list_with_comments_parses_and_invalid_lines_are_rejected() {
        let list =
            AsnList::parse("# comment\n\n64500 Example # comment\nAS64501\tOther\n").expect("valid list");
        assert_eq!((list.len(), list.contains(64500), list.contains(64501)), (2, true, true));
        for text in
            ["Example 64500", "-1 x", "4294967296 x", "0 x", "<html>", "64500", "64500 x\nAS6", "", "\n"]
        {
            assert!(AsnList::parse(text).is_err(), "{text}");
        }
        assert!(AsnList::parse("# none").expect("valid list").is_empty());
    }
}
