//! Headers of the PROXY protocol, versions 1 (text) and 2 (binary), with which a load balancer names its client.
//!
//! The crate `ppp` parses them. This module reads exactly the bytes of the header from a connection, and rejects what the
//! specification forbids but `ppp` accepts.

use std::{io, net::SocketAddr};

use crc::{CRC_32_ISCSI, Crc};
use ppp::{
    v1,
    v2::{self, Command, Protocol, TypeLengthValue, TypeLengthValues},
};
use tokio::io::{AsyncRead, AsyncReadExt};

const V1_PREFIX: &[u8] = b"PROXY ";

/// What every header of version 1 without an address begins with. A space or the end of the line follows.
const V1_UNKNOWN: &[u8] = b"PROXY UNKNOWN";

/// Maximum length of a header of version 1, with its line break.
const V1_MAX_BYTES: usize = 107;

/// The length of the fixed part of version 2. Its last two bytes are the length of the rest.
const V2_FIXED_BYTES: usize = 16;

/// The position of version and command, and their value for the command LOCAL.
const V2_COMMAND: usize = 12;
const V2_LOCAL: u8 = 0x20;

/// The length of the shortest header: `PROXY UNKNOWN` and a line break.
const SHORTEST: usize = 15;

/// Maximum length of a header of version 2. It may contain a client certificate.
const V2_MAX_BYTES: usize = 16 * 1024;

/// Maximum length of the name of a TLS version or cipher suite.
const MAX_NAME_BYTES: usize = 64;

/// Bytes before the value of a TLV: type and length.
const TLV_PREFIX_BYTES: usize = 3;

/// Types of TLVs.
const CRC32C: u8 = 0x03;
const SSL: u8 = 0x20;
/// Types of the TLVs within that of type `SSL`.
const SSL_VERSION: u8 = 0x21;
const SSL_CIPHER: u8 = 0x23;

/// The flag of the TLV `SSL` that is set if the client's connection to the load balancer uses TLS.
const CLIENT_USES_TLS: u8 = 0x01;

/// The bytes of the TLV `SSL` before its own TLVs: flags, and the result of the certificate's verification.
const SSL_FIXED_BYTES: usize = 5;

/// What a load balancer sends about its client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The client, never IPv4-mapped. `None` if the load balancer sends a request of its own, such as a health check, or
    /// does not know the address.
    pub client: Option<SocketAddr>,
    /// The TLS session between client and load balancer. `None` if the load balancer reports none: it ends no TLS,
    /// uses version 1, or does not send the TLV.
    pub tls: Option<ProxiedTls>,
}

/// A TLS session that ends at a load balancer, in the load balancer's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxiedTls {
    /// Such as `TLSv1.3`.
    pub version: Option<Box<str>>,
    /// Usually OpenSSL's name.
    pub cipher: Option<Box<str>>,
}

/// Why a connection has no usable header.
#[derive(Debug, thiserror::Error)]
pub enum ProxyHeaderError {
    /// The first bytes are something else, such as an HTTP request or a TLS handshake.
    #[error("the connection does not begin with a PROXY header")]
    Missing,
    /// The header violates the specification.
    #[error("the PROXY header is malformed")]
    Malformed,
    /// The header is longer than any that a load balancer has a reason to send.
    #[error("the PROXY header is longer than {V2_MAX_BYTES} bytes")]
    TooLong,
    /// The peer closed the connection first. Typical of health checks that only connect.
    #[error("the connection ended before the end of the PROXY header")]
    Incomplete,
    /// The connection failed.
    #[error("the PROXY header could not be read")]
    Connection(#[from] io::Error),
}

impl ProxyHeader {
    /// Reads a header, and nothing that follows it.
    pub async fn read(connection: &mut (impl AsyncRead + Unpin)) -> Result<Self, ProxyHeaderError> {
        let mut header = Vec::with_capacity(V1_MAX_BYTES);
        loop {
            let missing = missing_bytes(&header)?;
            if missing == 0 {
                return Self::parse(&header);
            }
            // A usize has at most 64 bits.
            let limit = u64::try_from(missing).unwrap_or(u64::MAX);
            if (&mut *connection).take(limit).read_buf(&mut header).await? == 0 {
                return Err(ProxyHeaderError::Incomplete);
            }
        }
    }

    /// Parses a complete header.
    fn parse(header: &[u8]) -> Result<Self, ProxyHeaderError> {
        let parsed =
            if header.starts_with(V1_PREFIX) { Self::parse_v1(header) } else { Self::parse_v2(header) };
        parsed
            .map(|parsed| Self { client: parsed.client.map(canonical), ..parsed })
            .ok_or(ProxyHeaderError::Malformed)
    }

    fn parse_v1(header: &[u8]) -> Option<Self> {
        // Whatever follows must be ignored, but `ppp` rejects more than four words.
        if header.strip_prefix(V1_UNKNOWN).is_some_and(|rest| matches!(rest.first(), Some(b' ' | b'\r'))) {
            return Some(Self::default());
        }
        // `ppp` accepts a plus sign before a port.
        if header.contains(&b'+') {
            return None;
        }
        let client = match v1::Header::try_from(header).ok()?.addresses {
            v1::Addresses::Tcp4(tcp) => SocketAddr::from((tcp.source_address, tcp.source_port)),
            v1::Addresses::Tcp6(tcp) => SocketAddr::from((tcp.source_address, tcp.source_port)),
            v1::Addresses::Unknown => return None,
        };
        Some(Self { client: Some(client), tls: None })
    }

    fn parse_v2(bytes: &[u8]) -> Option<Self> {
        // A connection of the load balancer itself. Everything else in the header must be ignored.
        if bytes.get(V2_COMMAND) == Some(&V2_LOCAL) {
            return Some(Self::default());
        }
        let header = v2::Header::try_from(bytes).ok()?;
        let client = match (header.command, header.protocol, header.addresses) {
            // Addresses of an unknown family may follow, so it is unknown where the TLVs begin. Everything is ignored.
            (Command::Proxy, Protocol::Unspecified, v2::Addresses::Unspecified) => {
                return Some(Self::default());
            }
            (Command::Proxy, Protocol::Stream, v2::Addresses::IPv4(tcp)) => {
                Some(SocketAddr::from((tcp.source_address, tcp.source_port)))
            }
            (Command::Proxy, Protocol::Stream, v2::Addresses::IPv6(tcp)) => {
                Some(SocketAddr::from((tcp.source_address, tcp.source_port)))
            }
            // The client is on the load balancer's machine.
            (Command::Proxy, Protocol::Stream, v2::Addresses::Unix(_)) => None,
            // Datagrams do not arrive over TCP. Other combinations do not exist.
            _ => return None,
        };
        let mut tls = None;
        let mut position = bytes.len() - header.tlv_bytes().len();
        for tlv in header.tlvs() {
            let tlv = tlv.ok()?;
            let value_start = position + TLV_PREFIX_BYTES;
            position = value_start + tlv.len();
            match tlv.kind {
                CRC32C => check_crc(bytes, value_start, &tlv.value)?,
                // It must be clear which one applies.
                SSL if tls.is_some() => return None,
                SSL => tls = Some(parse_ssl(&tlv.value)?),
                _ => {}
            }
        }
        Some(Self { client, tls: tls.flatten() })
    }
}

/// A lower bound of the bytes still missing from the header; 0 if it is complete. Reading that many never reads past the
/// header.
fn missing_bytes(received: &[u8]) -> Result<usize, ProxyHeaderError> {
    let begins_like = |prefix: &[u8]| received.iter().zip(prefix).all(|(byte, expected)| byte == expected);
    let (is_v1, is_v2) = (begins_like(V1_PREFIX), begins_like(v2::PROTOCOL_PREFIX));
    match received.len() {
        _ if !is_v1 && !is_v2 => Err(ProxyHeaderError::Missing),
        length if length < SHORTEST => Ok(SHORTEST - length),
        _ if is_v1 => missing_bytes_v1(received),
        _ => missing_bytes_v2(received),
    }
}

fn missing_bytes_v1(received: &[u8]) -> Result<usize, ProxyHeaderError> {
    let line_break = received.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    match line_break.map(|start| &received[start..]) {
        None if received.len() + 2 <= V1_MAX_BYTES => Ok(2),
        Some(b"\r\n") => Ok(0),
        Some(b"\r") if received.len() < V1_MAX_BYTES => Ok(1),
        _ => Err(ProxyHeaderError::Malformed),
    }
}

fn missing_bytes_v2(received: &[u8]) -> Result<usize, ProxyHeaderError> {
    let Some(&[high, low]) = received.get(V2_FIXED_BYTES - 2..V2_FIXED_BYTES) else {
        return Ok(V2_FIXED_BYTES - received.len());
    };
    let total = V2_FIXED_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if total > V2_MAX_BYTES {
        return Err(ProxyHeaderError::TooLong);
    }
    Ok(total - received.len())
}

/// Compares a header with its checksum, which is computed as if its own bytes were 0.
fn check_crc(header: &[u8], start: usize, checksum: &[u8]) -> Option<()> {
    let expected = u32::from_be_bytes(checksum.try_into().ok()?);
    let crc = Crc::<u32>::new(&CRC_32_ISCSI);
    let mut digest = crc.digest();
    digest.update(header.get(..start)?);
    digest.update(&[0; 4]);
    digest.update(header.get(start + 4..)?);
    (digest.finalize() == expected).then_some(())
}

/// Parses the TLV `SSL`. The inner `None` is a client that does not use TLS, as far as the load balancer knows: it may
/// forward TLS that it does not end.
fn parse_ssl(value: &[u8]) -> Option<Option<ProxiedTls>> {
    let (fixed, tlvs) = value.split_at_checked(SSL_FIXED_BYTES)?;
    let mut tls = ProxiedTls::default();
    for tlv in TypeLengthValues::from(tlvs) {
        let tlv = tlv.ok()?;
        let field = match tlv.kind {
            SSL_VERSION => &mut tls.version,
            SSL_CIPHER => &mut tls.cipher,
            _ => continue,
        };
        if field.replace(name(&tlv)?).is_some() {
            return None;
        }
    }
    Some((fixed[0] & CLIENT_USES_TLS != 0).then_some(tls))
}

fn name(tlv: &TypeLengthValue<'_>) -> Option<Box<str>> {
    let text = str::from_utf8(&tlv.value).ok()?;
    let is_valid =
        (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_valid.then(|| text.into())
}

fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

#[cfg(test)]
#[path = "proxy_header_tests.rs"]
mod tests;
