//! Headers of the PROXY protocol, versions 1 (text) and 2 (binary), with which a load balancer names its client. The crate
//! `ppp` parses them. This module reads exactly the bytes of the header from a connection, and rejects what the
//! specification forbids but `ppp` accepts.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, bail, ensure};
use bytes::BufMut;
use crc::{CRC_32_ISCSI, Crc};
use ppp::{v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt};

const V1_PREFIX: &[u8] = b"PROXY ";
/// `PROXY UNKNOWN` and a line break.
const V1_MIN_BYTES: usize = 15;
const V1_MAX_BYTES: usize = 107;
/// The fixed part of version 2. Its last two bytes are the length of the rest.
const V2_FIXED_BYTES: usize = 16;
/// Enough for a client certificate.
const V2_MAX_BYTES: usize = 16 * 1024;

const MISSING: &str = "the connection does not begin with a PROXY header";
const MALFORMED: &str = "the PROXY header is malformed";

// Types of TLVs. Those of version and cipher are within that of type `SSL`.
const CRC32C: u8 = 0x03;
const SSL: u8 = 0x20;
const SSL_VERSION: u8 = 0x21;
const SSL_CIPHER: u8 = 0x23;

/// What a load balancer sends about its client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The client, never IPv4-mapped. `None` if the load balancer sends a request of its own, such as a health check, or
    /// does not know the address.
    pub client: Option<SocketAddr>,
    /// The TLS session between client and load balancer. `None` if the load balancer reports none: it ends no TLS, uses
    /// version 1, or does not send the TLV.
    pub tls: Option<ProxyHeaderTls>,
}

/// A TLS session that ends at a load balancer, in the load balancer's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyHeaderTls {
    /// Such as `TLSv1.3`.
    pub version: Option<Box<str>>,
    /// Usually OpenSSL's name.
    pub cipher: Option<Box<str>>,
}

impl ProxyHeader {
    /// Reads a header, and nothing that follows it. Fails with an [`io::Error`] if the connection ends or fails first.
    pub async fn read(connection: &mut (impl AsyncRead + Unpin)) -> anyhow::Result<Self> {
        let mut header = Vec::with_capacity(V1_MAX_BYTES);
        while let missing @ 1.. = missing_bytes(&header)? {
            if connection.read_buf(&mut (&mut header).limit(missing)).await? == 0 {
                return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
            }
        }
        let is_v1 = header.starts_with(V1_PREFIX);
        let parsed = if is_v1 { Self::parse_v1(&header) } else { Self::parse_v2(&header) };
        parsed.context(MALFORMED)
    }

    fn parse_v1(header: &[u8]) -> Option<Self> {
        // Whatever follows must be ignored, but `ppp` rejects more than four words.
        if header == b"PROXY UNKNOWN\r\n" || header.starts_with(b"PROXY UNKNOWN ") {
            return Some(Self::default());
        }
        // `ppp` accepts a plus sign before a port.
        if header.contains(&b'+') {
            return None;
        }
        let client = match v1::Header::try_from(header).ok()?.addresses {
            v1::Addresses::Tcp4(tcp) => address(tcp.source_address, tcp.source_port),
            v1::Addresses::Tcp6(tcp) => address(tcp.source_address, tcp.source_port),
            v1::Addresses::Unknown => return None,
        };
        Some(Self { client, tls: None })
    }

    fn parse_v2(bytes: &[u8]) -> Option<Self> {
        // Version 2, command LOCAL: a connection of the load balancer itself. The rest must be ignored.
        if bytes.get(v2::PROTOCOL_PREFIX.len()) == Some(&0x20) {
            return Some(Self::default());
        }
        let header = v2::Header::try_from(bytes).ok()?;
        let client = match (header.protocol, header.addresses) {
            // Addresses of an unknown family may follow, so it is unknown where the TLVs begin.
            (v2::Protocol::Unspecified, v2::Addresses::Unspecified) => return Some(Self::default()),
            (v2::Protocol::Stream, v2::Addresses::IPv4(tcp)) => address(tcp.source_address, tcp.source_port),
            (v2::Protocol::Stream, v2::Addresses::IPv6(tcp)) => address(tcp.source_address, tcp.source_port),
            // The client is on the load balancer's machine.
            (v2::Protocol::Stream, v2::Addresses::Unix(_)) => None,
            // Datagrams do not arrive over TCP. Other combinations do not exist.
            _ => return None,
        };
        let mut tls = None;
        let mut position = bytes.len() - header.tlv_bytes().len();
        for tlv in header.tlvs() {
            let tlv = tlv.ok()?;
            let value_start = position + 3; // One byte is the type, two are the length.
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

fn address(ip: impl Into<IpAddr>, port: u16) -> Option<SocketAddr> {
    Some(SocketAddr::new(ip.into().to_canonical(), port))
}

/// A lower bound of the bytes that are missing from the header; 0 if it is complete. So nothing after it is read.
fn missing_bytes(received: &[u8]) -> anyhow::Result<usize> {
    let length = received.len();
    let begins_like = |prefix: &[u8]| received.iter().zip(prefix).all(|(byte, expected)| byte == expected);
    if begins_like(V1_PREFIX) {
        let line_break = received.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        return match line_break.map(|start| &received[start..]) {
            _ if length < V1_MIN_BYTES => Ok(V1_MIN_BYTES - length),
            None if length + 2 <= V1_MAX_BYTES => Ok(2),
            Some(b"\r\n") => Ok(0),
            Some(b"\r") if length < V1_MAX_BYTES => Ok(1),
            _ => bail!(MALFORMED),
        };
    }
    ensure!(begins_like(v2::PROTOCOL_PREFIX), MISSING);
    let Some([.., high, low]) = received.first_chunk::<V2_FIXED_BYTES>() else {
        return Ok(V2_FIXED_BYTES - length);
    };
    let total = V2_FIXED_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
    ensure!(total <= V2_MAX_BYTES, "the PROXY header is longer than {V2_MAX_BYTES} bytes");
    Ok(total - length)
}

/// Compares a header with its checksum, which is computed as if its own bytes were 0.
fn check_crc(header: &[u8], start: usize, checksum: &[u8]) -> Option<()> {
    let zeroed = [header.get(..start)?, &[0; 4], header.get(start + 4..)?].concat();
    let expected = Crc::<u32>::new(&CRC_32_ISCSI).checksum(&zeroed).to_be_bytes();
    (checksum == expected).then_some(())
}

/// Parses the TLV `SSL`. The inner `None` is a client without TLS, or with TLS that the load balancer only forwards.
fn parse_ssl(value: &[u8]) -> Option<Option<ProxyHeaderTls>> {
    // One byte with flags, four with the result of the certificate's verification.
    let (&[flags, ..], tlvs) = value.split_first_chunk::<5>()?;
    let mut tls = ProxyHeaderTls::default();
    for tlv in v2::TypeLengthValues::from(tlvs) {
        let tlv = tlv.ok()?;
        let field = match tlv.kind {
            SSL_VERSION => &mut tls.version,
            SSL_CIPHER => &mut tls.cipher,
            _ => continue,
        };
        let name = str::from_utf8(&tlv.value).ok()?;
        let is_valid = (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_valid || field.replace(name.into()).is_some() {
            return None;
        }
    }
    let client_uses_tls = flags & 0x01 != 0;
    Some(client_uses_tls.then_some(tls))
}

#[cfg(test)]
mod tests;
