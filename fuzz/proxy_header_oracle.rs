//! Decides from the specification of the PROXY protocol whether bytes begin with a valid header, independent of the
//! parser of the services. Shared by the fuzz target, the replay of its corpus and the test with mutated headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidHeader {
    /// The number of its bytes.
    pub length: usize,
    /// The client that it names.
    pub client: Option<IpAddr>,
}

/// The header at the start of `bytes`. `None` if it is malformed, incomplete, or something else.
pub fn valid_header(bytes: &[u8]) -> Option<ValidHeader> {
    if bytes.starts_with(b"\r\n\r\n\0\r\nQUIT\n") { version_2(bytes) } else { version_1(bytes) }
}

fn version_1(bytes: &[u8]) -> Option<ValidHeader> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n").filter(|end| *end <= 105)?;
    let line = str::from_utf8(&bytes[..end]).ok();
    let words: Vec<&[u8]> = bytes[..end].split(|byte| *byte == b' ').collect();
    let client = match words[..] {
        [b"PROXY", b"UNKNOWN", ..] if !bytes[..end].iter().any(|byte| b"\r\n".contains(byte)) => None,
        [b"PROXY", family, _, _, from_port, to_port] => {
            let words: Vec<&str> = line?.split(' ').collect();
            let (from, to) = (words[2], words[3]);
            let from = match family {
                b"TCP4" => to.parse::<Ipv4Addr>().and_then(|_| from.parse::<Ipv4Addr>()).ok()?.into(),
                b"TCP6" => to.parse::<Ipv6Addr>().and_then(|_| from.parse::<Ipv6Addr>()).ok()?.into(),
                _ => return None,
            };
            if !is_port(from_port) || !is_port(to_port) {
                return None;
            }
            Some(IpAddr::to_canonical(&from))
        }
        _ => return None,
    };
    Some(ValidHeader { length: end + 2, client })
}

fn is_port(digits: &[u8]) -> bool {
    let number = digits.iter().try_fold(0_u32, |number, digit| match digit {
        b'0'..=b'9' if number < 65_536 => Some(number * 10 + u32::from(digit - b'0')),
        _ => None,
    });
    !digits.is_empty()
        && (digits == b"0" || digits[0] != b'0')
        && number.is_some_and(|number| number < 65_536)
}

fn version_2(bytes: &[u8]) -> Option<ValidHeader> {
    let length = 16 + usize::from(u16::from_be_bytes([*bytes.get(14)?, *bytes.get(15)?]));
    let header = bytes.get(..length).filter(|_| length <= 16_384)?;
    let body = &header[16..];
    let (client, addresses) = match (header[12], header[13]) {
        (0x20, _) | (0x21, 0x00) => return Some(ValidHeader { length, client: None }),
        (0x21, 0x11) => (Some(IpAddr::from(<[u8; 4]>::try_from(body.get(..4)?).ok()?)), 12),
        (0x21, 0x21) => (Some(IpAddr::from(<[u8; 16]>::try_from(body.get(..16)?).ok()?)), 36),
        (0x21, 0x31) => (None, 216),
        _ => return None,
    };
    let mut sessions = 0;
    for (kind, value) in tlvs(body.get(addresses..)?)? {
        match kind {
            0x03 => check_checksum(header, value)?,
            0x20 => {
                sessions += 1;
                check_tls(value)?;
            }
            _ => {}
        }
    }
    let client = client.map(|client| client.to_canonical());
    (sessions <= 1).then_some(ValidHeader { length, client })
}

/// Splits bytes into TLVs, completely.
fn tlvs(mut bytes: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut tlvs = Vec::new();
    while !bytes.is_empty() {
        let length = usize::from(u16::from_be_bytes([*bytes.get(1)?, *bytes.get(2)?]));
        tlvs.push((bytes[0], bytes.get(3..3 + length)?));
        bytes = &bytes[3 + length..];
    }
    Some(tlvs)
}

fn check_tls(value: &[u8]) -> Option<()> {
    let (mut versions, mut ciphers) = (0, 0);
    for (kind, value) in tlvs(value.get(5..)?)? {
        *match kind {
            0x21 => &mut versions,
            0x23 => &mut ciphers,
            _ => continue,
        } += 1;
        if !(1..=64).contains(&value.len()) || value.iter().any(|byte| !(b'!'..=b'~').contains(byte)) {
            return None;
        }
    }
    (versions <= 1 && ciphers <= 1).then_some(())
}

/// CRC-32C, bit by bit. The checksum's own bytes count as 0.
fn check_checksum(header: &[u8], value: &[u8]) -> Option<()> {
    let expected = u32::from_be_bytes(value.try_into().ok()?);
    let start = value.as_ptr() as usize - header.as_ptr() as usize;
    let mut crc = u32::MAX;
    for (position, byte) in header.iter().enumerate() {
        crc ^= if (start..start + 4).contains(&position) { 0 } else { u32::from(*byte) };
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
        }
    }
    (!crc == expected).then_some(())
}
