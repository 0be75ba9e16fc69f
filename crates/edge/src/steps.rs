//! The steps of a decision as data, for people who want to know why a client was identified as it was.
//!
//! The code that decides reports its steps to an [`Observer`], so the explanation always matches the decision. Normal
//! requests use the observer `()`, which does nothing, and pay nothing for it.

use std::fmt;
use std::net::IpAddr;

use http::HeaderName;

use crate::address::MAX_HOPS;
use crate::trusted::TrustedBy;

/// Longest text of a header that a step contains, in characters.
const MAX_TEXT: usize = 64;

/// Receives the steps of a decision.
pub(crate) trait Observer {
    /// `step` is called only if steps are collected.
    fn add<S: Into<Option<Step>>>(&mut self, step: impl FnOnce() -> S);
}

impl Observer for () {
    fn add<S: Into<Option<Step>>>(&mut self, _: impl FnOnce() -> S) {}
}

impl Observer for Vec<Step> {
    fn add<S: Into<Option<Step>>>(&mut self, step: impl FnOnce() -> S) {
        self.extend(step().into());
    }
}

/// One step of a decision. Its text is a sentence for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Whether the peer is a trusted proxy.
    Peer {
        /// The peer.
        ip: IpAddr,
        /// `None` if it is not trusted.
        trusted: Option<TrustedBy>,
    },
    /// The peer is a load balancer whose PROXY header names no client.
    BalancerWithoutClient {
        /// The load balancer.
        ip: IpAddr,
    },
    /// By policy, a trusted peer is the client.
    PeerIsClient,
    /// The trusted peer sent no X-Forwarded-For.
    XffMissing,
    /// An entry of X-Forwarded-For.
    XffEntry {
        /// Counted from the right, from 1.
        position: usize,
        /// The entry as sent, shortened.
        text: String,
        /// What it is.
        entry: XffEntry,
    },
    /// Entries of X-Forwarded-For to the left of the last one that was read.
    XffUnread {
        /// At least 1.
        entries: usize,
    },
    /// Every entry of X-Forwarded-For is a trusted proxy.
    XffAllTrusted {
        /// The leftmost entry.
        ip: IpAddr,
    },
    /// The header of `--client-ip-from header:NAME`.
    AddressHeader {
        /// Its name.
        name: HeaderName,
        /// What was sent.
        value: AddressHeader,
    },
    /// A header with a connection fact.
    FactHeader {
        /// The fact.
        fact: Fact,
        /// The header's name.
        name: HeaderName,
        /// What was sent.
        value: FactHeader,
    },
    /// Where a connection fact comes from.
    FactSource {
        /// The fact.
        fact: Fact,
        /// Its source.
        source: FactSource,
    },
}

/// What an entry of X-Forwarded-For is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XffEntry {
    /// Another trusted proxy: the next entry to the left is read.
    TrustedProxy(IpAddr, TrustedBy),
    /// The client.
    Client(IpAddr),
    /// Not an address.
    Invalid,
    /// The first entry beyond [`MAX_HOPS`], which is not read.
    OverLimit,
}

/// The value of the header with the client's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressHeader {
    /// Not sent.
    Missing,
    /// Sent more than once.
    Repeated,
    /// Not an address.
    Invalid {
        /// The value, shortened.
        text: String,
    },
    /// The client's address.
    Client(IpAddr),
}

/// A connection fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// HTTP version.
    HttpProtocol,
    /// TLS version.
    TlsVersion,
    /// TLS cipher suite.
    TlsCipher,
    /// Round-trip time.
    RoundTripTime,
    /// Data center.
    Colo,
}

impl Fact {
    /// Every fact, in the order of the response fields.
    pub const ALL: [Self; 5] =
        [Self::HttpProtocol, Self::TlsVersion, Self::TlsCipher, Self::RoundTripTime, Self::Colo];

    /// Returns the name of the response field.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::HttpProtocol => "http_protocol",
            Self::TlsVersion => "tls_version",
            Self::TlsCipher => "tls_cipher",
            Self::RoundTripTime => "rtt",
            Self::Colo => "colo",
        }
    }
}

/// The value of a header with a connection fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FactHeader {
    /// Not sent.
    Missing,
    /// Sent more than once.
    Repeated,
    /// Not a value that is understood.
    Invalid {
        /// The value, shortened.
        text: String,
    },
    /// Understood.
    Valid,
}

/// Where a connection fact comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactSource {
    /// A header of the trusted proxy. The fact is null if the header is missing or invalid.
    Header,
    /// The connection to this process.
    Connection,
    /// The label of the node that this process runs on.
    NodeLabel,
    /// `--node-zone` with `--colo-map`, or `--colo`.
    Flags,
    /// There is none.
    Unknown,
}

/// Returns the text of a header for a step.
pub(crate) fn shortened(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text = text.trim();
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl fmt::Display for TrustedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => write!(f, "{network} in --trusted-proxies"),
            Self::Discovery => f.write_str("found by --discover-proxies"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer { ip, trusted: Some(by) } => {
                write!(f, "The peer {ip} is a trusted proxy ({by}), so its headers are read.")
            }
            Self::Peer { ip, trusted: None } => write!(
                f,
                "The peer {ip} is not a trusted proxy, so it is the client, and its headers are ignored. If it is your \
                 proxy, add it to --trusted-proxies."
            ),
            Self::BalancerWithoutClient { ip } => write!(
                f,
                "The PROXY header of the load balancer {ip} names no client, as in health checks, so {ip} is the \
                 client, and its headers are ignored."
            ),
            Self::PeerIsClient => f.write_str("--client-ip-from is peer, so the peer is the client."),
            Self::XffMissing => f.write_str(
                "The peer sent no X-Forwarded-For, so it is the client. If it forwards requests of others, configure it \
                 to send X-Forwarded-For, or set --client-ip-from to the header that it sends.",
            ),
            Self::XffEntry { position, text, entry } => {
                write!(f, "Entry {position} of X-Forwarded-For, counted from the right, is {text:?}: ")?;
                write!(f, "{entry}")
            }
            Self::XffUnread { entries } => {
                let (entries, were) = match entries {
                    1 => ("1 entry".to_owned(), "was"),
                    many => (format!("{many} entries"), "were"),
                };
                write!(f, "{entries} further to the left {were} not read: a client can send anything there.")
            }
            Self::XffAllTrusted { ip } => write!(
                f,
                "Every entry is a trusted proxy, so the leftmost one, {ip}, is the client. If this is not an address of \
                 your own network, --trusted-proxies covers too much."
            ),
            Self::AddressHeader { name, value } => write!(f, "The header {name} {value}"),
            Self::FactHeader { fact, name, value } => {
                write!(f, "The header {name}, for {}, {value}.", fact.field())
            }
            Self::FactSource { fact, source } => write!(f, "{} comes from {source}.", fact.field()),
        }
    }
}

impl fmt::Display for XffEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TrustedProxy(ip, by) => write!(f, "{ip} is another trusted proxy ({by})."),
            Self::Client(ip) => write!(f, "{ip} is not a trusted proxy, so it is the client."),
            Self::Invalid => f.write_str(
                "this is not an address, so the search stops. The client is the trusted address to the right of \
                 this entry, or the peer if there is none.",
            ),
            Self::OverLimit => write!(
                f,
                "only the last {MAX_HOPS} entries are read. The client is the trusted address to the right of this entry."
            ),
        }
    }
}

impl fmt::Display for AddressHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("was not sent, so the peer is the client."),
            Self::Repeated => f.write_str(
                "was sent more than once, and one of its values may be the client's own, so the peer is the client. \
                 Configure the proxy to replace the header.",
            ),
            Self::Invalid { text } => write!(f, "is {text:?}, which is not an address, so the peer is the client."),
            Self::Client(ip) => write!(f, "has the address of the client, {ip}."),
        }
    }
}

impl fmt::Display for FactHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("was not sent"),
            Self::Repeated => f.write_str("was sent more than once, so it is ignored"),
            Self::Invalid { text } => write!(f, "is {text:?}, which is not a valid value, so it is ignored"),
            Self::Valid => f.write_str("is used"),
        }
    }
}

impl fmt::Display for FactSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "a header of the trusted proxy",
            Self::Connection => "the connection to this process",
            Self::NodeLabel => "the label of this node",
            Self::Flags => "the flags of this process",
            Self::Unknown => "nowhere",
        })
    }
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

    #[test]
    fn sentence_about_unread_entries_agrees_with_their_number() {
        let start = |entries| Step::XffUnread { entries }.to_string().split(':').next().map(str::to_owned);
        assert_eq!(start(1).as_deref(), Some("1 entry further to the left was not read"));
        assert_eq!(start(2).as_deref(), Some("2 entries further to the left were not read"));
    }
}
