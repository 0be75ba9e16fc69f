//! Connection facts: HTTP and TLS version, cipher, round-trip time and colo. They come from a trusted proxy's headers or
//! from the connection to this process.

use http::{HeaderMap, HeaderName, HeaderValue, Version};

use crate::client_ip::Decision;
use crate::colo::Iata;
use crate::explain::{Explanation, join, quoted};
use crate::values::{self, RttUnit, well_formed};

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
            cipher.and_then(|value| values::tls_cipher(well_formed(value.as_bytes())?)),
        )
    }

    /// Fills in missing facts. TLS version and cipher belong together: they are taken from the same source.
    fn or(self, own: Self, explain: &mut Explanation) -> Self {
        let has_tls = self.tls_version.is_some() || self.tls_cipher.is_some();
        let (has_http, has_rtt) = (self.http_protocol.is_some(), self.rtt_ms.is_some());
        for (field, is_sent) in
            [("http_protocol", has_http), ("tls_version", has_tls), ("tls_cipher", has_tls), ("rtt", has_rtt)]
        {
            if !is_sent {
                explain.add(field, || match field == "rtt" && !own.rtt_from_socket {
                    true => "not known behind a load balancer".to_owned(),
                    false => "the connection to this service, which `explain` does not open".to_owned(),
                });
            }
        }
        let tls = if has_tls { self } else { own };
        Self {
            http_protocol: self.http_protocol.or(own.http_protocol),
            rtt_from_socket: !has_rtt && own.rtt_from_socket,
            ..self.with_tls(tls.tls_version, tls.tls_cipher)
        }
    }
}

/// Names of the headers with the facts, and the unit of the round-trip time.
#[derive(Clone, Debug)]
pub(crate) struct FactHeaders {
    /// For `http_protocol`, `tls_version`, `tls_cipher` and `colo`.
    pub(crate) names: [HeaderName; 4],
    pub(crate) rtt: Vec<HeaderName>,
    pub(crate) rtt_unit: RttUnit,
}

impl FactHeaders {
    /// Selects the source of each fact. `own` are the facts of the TCP connection to this process.
    ///
    /// | in front of this process | http_protocol | tls_version, tls_cipher | round-trip time |
    /// |---|---|---|---|
    /// | nothing, or an untrusted peer | own | own | socket |
    /// | load balancer with PROXY protocol | own | PROXY header, else own | none |
    /// | trusted proxy that forwards an address (valid or not), or `--client-ip-from peer` | header | header | header |
    /// | trusted peer that forwards no address | header, else own | header, else own | header, else socket |
    ///
    /// With PROXY protocol, `own` comes from [`ConnectionFacts::behind_balancer`], and the client in the PROXY header takes
    /// the place of the peer. If that client is a trusted proxy itself, its row applies.
    ///
    /// Explains the source of each fact except a colo that no header has.
    pub(crate) fn select<'h>(
        &self,
        decision: Decision,
        own: ConnectionFacts<'h>,
        headers: &'h HeaderMap,
        explain: &mut Explanation,
    ) -> ConnectionFacts<'h> {
        match decision {
            // Any client can send these headers.
            Decision::PeerUntrusted => ConnectionFacts::default().or(own, explain),
            // Nothing was forwarded: the peer is the client, so this connection is the client's.
            Decision::Missing => self.read(headers, explain).or(own, explain),
            // The peer is a trusted proxy, so only its headers describe the client's connection. With `--client-ip-from
            // peer` too: only its address is used as the client's.
            Decision::Peer
            | Decision::Xff
            | Decision::XffAllTrusted
            | Decision::Header
            | Decision::Fallback => self.read(headers, explain),
        }
    }

    fn read<'h>(&self, headers: &'h HeaderMap, explain: &mut Explanation) -> ConnectionFacts<'h> {
        let (mut sent, mut has_rtt) = ([Sent::Missing; 4], false);
        // One pass over the headers, because each lookup by name would hash the name.
        for (name, value) in headers {
            for (known, sent) in self.names.iter().zip(&mut sent) {
                if name == known {
                    sent.add(value);
                }
            }
            has_rtt |= self.rtt.contains(name);
        }
        let [http_protocol, tls_version, tls_cipher, colo] = sent;
        let [http_name, version_name, cipher_name, colo_name] = &self.names;
        let facts = ConnectionFacts {
            http_protocol: http_protocol.parse(("http_protocol", http_name), values::protocol, explain),
            tls_version: tls_version.parse(("tls_version", version_name), values::tls_version, explain),
            tls_cipher: tls_cipher.parse(("tls_cipher", cipher_name), values::tls_cipher, explain),
            rtt_ms: None,
            rtt_from_socket: false,
            colo: colo.parse(("colo", colo_name), |value| Iata::parse_ray(value.as_bytes()), explain),
        };
        if !has_rtt {
            explain.add("rtt", || format!("the peer sent no header {}", join(&self.rtt)));
            return facts;
        }
        let rtt_ms = self.rtt.iter().find_map(|name| {
            let mut sent = Sent::Missing;
            headers.get_all(name).iter().for_each(|value| sent.add(value));
            sent.parse(("rtt", name), |value| values::rtt_ms(value, self.rtt_unit), explain)
        });
        ConnectionFacts { rtt_ms, ..facts }
    }

    /// Returns whether a header has one of the facts.
    pub(crate) fn contain(&self, name: &HeaderName) -> bool {
        self.names.contains(name) || self.rtt.contains(name)
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
    fn add(&mut self, value: &'h HeaderValue) {
        *self = match self {
            Self::Missing => Self::Once(value),
            Self::Once(_) | Self::Repeated => Self::Repeated,
        };
    }

    /// Parses the value if it is well-formed, and explains the result for a field and the header's name. A repeated header
    /// is ignored, because one of its values may have been sent by the client.
    fn parse<T>(
        self,
        (field, name): (&'static str, &HeaderName),
        parse: impl FnOnce(&'h str) -> Option<T>,
        explain: &mut Explanation,
    ) -> Option<T> {
        let parsed = match self {
            Self::Once(value) => well_formed(value.as_bytes().trim_ascii()).and_then(parse),
            Self::Missing | Self::Repeated => None,
        };
        explain.add(field, || match self {
            Self::Missing => format!("the peer sent no header {name}"),
            Self::Repeated => format!("header {name} was sent more than once, so it is ignored"),
            Self::Once(_) if parsed.is_some() => format!("header {name}"),
            Self::Once(value) => format!("header {name} has an invalid value: {}", quoted(value.as_bytes())),
        });
        parsed
    }
}

#[cfg(test)]
mod tests;
