//! Connection facts: HTTP and TLS version, cipher, round-trip time and colo. They come from a trusted proxy's headers or
//! from the connection to this process.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, Version};

use crate::address::trim;
use crate::colo::Iata;
use crate::config::{EdgeArgs, RttUnit, invalid};
use crate::explain::{Explain, join, shortened};

mod cipher;
mod values;

/// Maximum length of a header value in bytes. Longer values are ignored.
const MAX_VALUE_LEN: usize = 64;

/// Facts about the client's connection. A missing, repeated or invalid value is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFacts<'h> {
    /// `HTTP/1.0`, `HTTP/1.1`, `HTTP/2` or `HTTP/3`.
    pub http_protocol: Option<&'static str>,
    /// TLS version, such as `TLSv1.3`.
    pub tls_version: Option<&'static str>,
    /// IANA name of the cipher suite, or the proxy's name for an unknown suite.
    pub tls_cipher: Option<&'h str>,
    /// Round-trip time to the edge in milliseconds.
    pub rtt_ms: Option<u32>,
    /// Whether the peer is the client and no header has the round-trip time, so that the socket has it. Reading it takes
    /// a system call, so the caller does that, and only if the response has the field.
    pub rtt_from_socket: bool,
    /// Data center of the edge.
    pub colo: Option<Iata>,
}

impl ConnectionFacts<'static> {
    /// Returns the facts of a connection to this process without TLS.
    pub fn direct(version: Version) -> Self {
        let http_protocol = values::protocol_of_version(version);
        Self { http_protocol, rtt_from_socket: true, ..Self::default() }
    }
}

impl<'h> ConnectionFacts<'h> {
    /// Adds the TLS version and the IANA name of the cipher suite.
    pub const fn with_tls(self, version: Option<&'static str>, cipher: Option<&'h str>) -> Self {
        Self { tls_version: version, tls_cipher: cipher, ..self }
    }

    /// Returns the facts of a connection that a load balancer forwards with a PROXY header. `tls` are the version and the
    /// cipher suite in the header, in the load balancer's spelling.
    ///
    /// A load balancer that ends the client's TLS may begin TLS of its own, so the header takes precedence.
    pub fn behind_balancer(self, tls: Option<(Option<&str>, Option<&'h str>)>) -> Self {
        // The socket's round-trip time is that to the load balancer.
        let own = Self { rtt_from_socket: false, ..self };
        let Some((version, cipher)) = tls else { return own };
        own.with_tls(
            version.and_then(|value| values::tls_version(well_formed(value.as_bytes())?)),
            cipher.and_then(|value| cipher::name(well_formed(value.as_bytes())?)),
        )
    }
}

/// Names of the headers with the facts, and the unit of the round-trip time.
#[derive(Clone, Debug)]
pub struct FactHeaders {
    http_protocol: HeaderName,
    tls_version: HeaderName,
    tls_cipher: HeaderName,
    rtt: Vec<HeaderName>,
    rtt_unit: RttUnit,
    colo: HeaderName,
}

impl FactHeaders {
    /// Reads and checks the names from the flags.
    pub fn from_args(args: &EdgeArgs) -> anyhow::Result<Self> {
        let rtt = args.edge_rtt_header.iter().map(|name| header_name("--edge-rtt-header", name));
        Ok(Self {
            http_protocol: header_name("--edge-http-protocol-header", &args.edge_http_protocol_header)?,
            tls_version: header_name("--edge-tls-version-header", &args.edge_tls_version_header)?,
            tls_cipher: header_name("--edge-tls-cipher-header", &args.edge_tls_cipher_header)?,
            rtt: rtt.collect::<Result<_, _>>()?,
            rtt_unit: args.edge_rtt_unit,
            colo: header_name("--edge-colo-header", &args.edge_colo_header)?,
        })
    }

    /// Reads the facts. Only for requests from trusted proxies: any client can send these headers.
    pub fn read<'h>(&self, headers: &'h HeaderMap) -> ConnectionFacts<'h> {
        self.read_explained(headers, &mut ())
    }

    /// Like [`read`](Self::read), and explains each fact.
    pub(crate) fn read_explained<'h>(
        &self,
        headers: &'h HeaderMap,
        explain: &mut impl Explain,
    ) -> ConnectionFacts<'h> {
        let names = [&self.http_protocol, &self.tls_version, &self.tls_cipher, &self.colo];
        let (mut sent, mut has_rtt) = ([Sent::Missing; 4], false);
        // One pass over the headers, because each lookup by name would hash the name.
        for (name, value) in headers {
            for (known, sent) in names.iter().zip(&mut sent) {
                if name == *known {
                    sent.add(value);
                }
            }
            has_rtt |= self.rtt.contains(name);
        }
        let [http_protocol, tls_version, tls_cipher, colo] = sent.map(Sent::value);
        let facts = ConnectionFacts {
            http_protocol: http_protocol.and_then(values::protocol),
            tls_version: tls_version.and_then(values::tls_version),
            tls_cipher: tls_cipher.and_then(cipher::name),
            rtt_ms: None,
            rtt_from_socket: false,
            colo: colo.and_then(|value| Iata::parse_ray(value.as_bytes())),
        };
        let valid = [
            ("http_protocol", facts.http_protocol.is_some()),
            ("tls_version", facts.tls_version.is_some()),
            ("tls_cipher", facts.tls_cipher.is_some()),
            ("colo", facts.colo.is_some()),
        ];
        for ((name, sent), (field, is_valid)) in names.into_iter().zip(sent).zip(valid) {
            explain.add(field, || sent.describe(name, is_valid));
        }
        if !has_rtt {
            explain.add("rtt", || format!("the peer sent no header {}", join(&self.rtt)));
            return facts;
        }
        let rtt = |name| {
            let sent = Sent::all(headers, name);
            let rtt = sent.value().and_then(|value| values::rtt(value, self.rtt_unit));
            explain.add("rtt", || sent.describe(name, rtt.is_some()));
            rtt
        };
        ConnectionFacts { rtt_ms: self.rtt.iter().find_map(rtt), ..facts }
    }

    /// Returns whether a header has one of the facts.
    pub(crate) fn contain(&self, name: &HeaderName) -> bool {
        [&self.http_protocol, &self.tls_version, &self.tls_cipher, &self.colo].contains(&name)
            || self.rtt.contains(name)
    }
}

/// How often a header was sent.
#[derive(Clone, Copy)]
enum Sent<'h> {
    Missing,
    Once(&'h HeaderValue),
    Repeated,
}

impl<'h> Sent<'h> {
    fn all(headers: &'h HeaderMap, name: &HeaderName) -> Self {
        let mut sent = Sent::Missing;
        headers.get_all(name).iter().for_each(|value| sent.add(value));
        sent
    }

    fn add(&mut self, value: &'h HeaderValue) {
        *self = match self {
            Self::Missing => Self::Once(value),
            Self::Once(_) | Self::Repeated => Self::Repeated,
        };
    }

    /// The value if it is well-formed. A repeated header is ignored, because one of its values may have been sent by the
    /// client.
    fn value(self) -> Option<&'h str> {
        match self {
            Self::Once(value) => well_formed(trim(value.as_bytes())),
            Self::Missing | Self::Repeated => None,
        }
    }

    fn describe(self, name: &HeaderName, is_valid: bool) -> String {
        match self {
            Self::Missing => format!("the peer sent no header {name}"),
            Self::Repeated => format!("header {name} was sent more than once, so it is ignored"),
            Self::Once(_) if is_valid => format!("header {name}"),
            Self::Once(value) => {
                format!("header {name} has an invalid value: {:?}", shortened(value.as_bytes()))
            }
        }
    }
}

/// Rejects names with underscores, because a client could forge them: a proxy that overwrites `X-Edge-RTT` may forward
/// a client's `X_Edge_RTT` unchanged.
pub(crate) fn header_name(flag: &'static str, value: &str) -> anyhow::Result<HeaderName> {
    let plain = value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let name = HeaderName::from_bytes(value.as_bytes()).ok().filter(|_| plain);
    let problem = "is not a valid header name (letters, digits and hyphens)";
    name.ok_or_else(|| invalid(flag, value, problem))
}

/// Returns a value that is neither too long nor empty and has only allowed characters.
fn well_formed(value: &[u8]) -> Option<&str> {
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'/' | b'-');
    let is_valid = value.len() <= MAX_VALUE_LEN && value.iter().all(allowed) && !matches!(value, b"" | b"-");
    if is_valid { str::from_utf8(value).ok() } else { None }
}

impl fmt::Display for FactHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { http_protocol, tls_version, tls_cipher, colo, .. } = self;
        write!(f, "{http_protocol}, {tls_version}, {tls_cipher}, ")?;
        let unit = match self.rtt_unit {
            RttUnit::Us => "us",
            RttUnit::Ms => "ms",
        };
        for name in &self.rtt {
            write!(f, "{name} ({unit}), ")?;
        }
        write!(f, "{colo}")
    }
}

#[cfg(test)]
mod tests;
