//! What a trusted proxy says about the client's connection: protocol, TLS, round-trip time and place.

use std::fmt;

use http::{HeaderMap, HeaderName, Version};

use crate::address::trim;
use crate::colo::Iata;
use crate::config::{EdgeArgs, RttUnit};
use crate::error::EdgeError;
use crate::policy::header_name;

mod cipher;
mod values;

/// The longest value that is read at all.
const MAX_VALUE: usize = 64;

/// Facts of one connection; each is none unless it is certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts<'h> {
    /// `HTTP/1.0`, `HTTP/1.1`, `HTTP/2` or `HTTP/3`.
    pub http_protocol: Option<&'static str>,
    /// `TLSv1.3` and so on.
    pub tls_version: Option<&'static str>,
    /// The IANA name, or what the proxy wrote where the suite is unknown.
    pub tls_cipher: Option<&'h str>,
    /// Whole milliseconds.
    pub rtt_ms: Option<u32>,
    /// The edge's own place.
    pub colo: Option<Iata>,
}

impl Facts<'static> {
    /// Facts of a connection that ends in this process, without a proxy and without TLS.
    #[must_use]
    pub fn direct(version: Version) -> Self {
        Self { http_protocol: values::own_protocol(version), ..Self::default() }
    }
}

impl Facts<'_> {
    /// With this protocol where none is known.
    #[must_use]
    pub(crate) fn or_protocol(self, protocol: Option<&'static str>) -> Self {
        Self { http_protocol: self.http_protocol.or(protocol), ..self }
    }
}

/// The names of the headers that carry the facts, and the unit of one of them.
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
    /// Checks the names.
    ///
    /// # Errors
    /// A name that is no header name.
    pub fn from_args(args: &EdgeArgs) -> Result<Self, EdgeError> {
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

    /// Reads the facts. Only for requests of trusted proxies: anybody can write these headers.
    #[must_use]
    pub fn read<'h>(&self, headers: &'h HeaderMap) -> Facts<'h> {
        let rtt = |name| values::rtt(single(headers, name)?, self.rtt_unit);
        Facts {
            http_protocol: single(headers, &self.http_protocol).and_then(values::protocol),
            tls_version: single(headers, &self.tls_version).and_then(values::tls_version),
            tls_cipher: single(headers, &self.tls_cipher).and_then(cipher::name),
            rtt_ms: self.rtt.iter().find_map(rtt),
            colo: single(headers, &self.colo).and_then(|value| Iata::parse_ray(value.as_bytes())),
        }
    }
}

/// The one well-formed value of a header: a second one means that somebody else wrote one of them.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = trim(values.next()?.as_bytes());
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'/' | b'-');
    let well_formed = value.len() <= MAX_VALUE && value.iter().all(allowed);
    if values.next().is_some() || !well_formed || matches!(value, b"" | b"-") {
        return None;
    }
    str::from_utf8(value).ok()
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
#[path = "facts/tests.rs"]
mod tests;
