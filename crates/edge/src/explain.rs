//! Explains decisions: the code that decides describes what it does, so that the explanation always matches.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

use crate::address::parse_entry;
use crate::client_info::{ClientInfo, DiscoveryStatus, Edge};
use crate::client_ip::Decision;
use crate::facts::ConnectionFacts;

/// Longest text of a header that an explanation contains, in characters.
const MAX_TEXT: usize = 64;

/// The response field that a text is about, and the text: a sentence about the client's address (`ip`), or the source of a
/// connection fact.
pub type Explained = (&'static str, String);

/// Receives the texts of an explanation.
pub(crate) trait Explain {
    /// `text` is called only if texts are collected.
    fn add(&mut self, field: &'static str, text: impl FnOnce() -> String);
}

/// Explains nothing, at no cost: for normal requests.
impl Explain for () {
    fn add(&mut self, _: &'static str, _: impl FnOnce() -> String) {}
}

impl Explain for Vec<Explained> {
    fn add(&mut self, field: &'static str, text: impl FnOnce() -> String) {
        self.push((field, text()));
    }
}

/// Returns the text of a header, shortened.
pub(crate) fn shortened(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text = text.trim();
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl Edge {
    /// Like [`Edge::identify`], and explains the result.
    #[must_use]
    pub fn explain<'h>(
        &self,
        peer: IpAddr,
        headers: &'h HeaderMap,
        own: ConnectionFacts<'h>,
    ) -> (ClientInfo<'h>, Vec<Explained>) {
        let mut explained = Vec::new();
        match *self.status().borrow() {
            DiscoveryStatus::Off => {}
            DiscoveryStatus::Waiting => explained.add("ip", || {
                "The proxies of --discover-proxies are not known yet, so none of them is trusted. Check the access to the \
                 Kubernetes API."
                    .to_owned()
            }),
            DiscoveryStatus::Following { proxies } | DiscoveryStatus::Stale { proxies } => {
                explained.add("ip", || format!("--discover-proxies has found this number of proxies: {proxies}."));
            }
        }
        let client = self.identify_explained(peer.into(), headers, own, &mut explained);
        let (known, unknown): (Vec<_>, Vec<_>) = headers.keys().partition(|name| self.policy().reads(name));
        if client.decision == Decision::PeerUntrusted && !known.is_empty() {
            explained.add("ip", || format!("Ignored, because the peer is not trusted: {}.", join(&known)));
        }
        if !unknown.is_empty() {
            let names = join(&unknown);
            explained.add("ip", || format!("Not used for the address or the connection facts: {names}."));
        }
        let has_address = |name: &&&HeaderName| parse_entry(headers[**name].as_bytes()).is_some();
        if let (Decision::Missing, Some(name)) = (client.decision, unknown.iter().find(has_address)) {
            explained.add("ip", || {
                format!(
                    "{name} has an address. If your proxy always replaces this header, use --client-ip-from header:{name}."
                )
            });
        }
        (client, explained)
    }
}

/// Joins header names with commas.
pub(crate) fn join(names: &[impl AsRef<str>]) -> String {
    names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_shortened_at_a_character() {
        assert_eq!(shortened(b" 192.0.2.7 "), "192.0.2.7");
        let long = "ä".repeat(MAX_TEXT + 1);
        assert_eq!(shortened(long.as_bytes()), format!("{}…", "ä".repeat(MAX_TEXT)));
        assert_eq!(shortened(b"\xff"), "\u{fffd}");
    }
}
