//! Checks that must hold for any input. Shared by the fuzz targets and the test that replays their corpus on stable
//! Rust. Each returns whether the input was accepted.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use api_key::{ApiKey, KeyDigest};
use http_server::ProxyHeader;
use quota_client::wire::{Limits, decode_charges, decode_verdicts, encode_charges, encode_verdicts};
use quota_svc::domain::record;

#[path = "proxy_header_oracle.rs"]
mod proxy_header_oracle;

/// API keys: a parsed key round-trips, and its `Debug` output does not reveal it.
pub fn key(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(key) = ApiKey::parse(text) else { return false };
    assert_eq!(key.expose(), text);
    assert!(!format!("{key:?}").contains(&text[4..]));
    let digest = key.digest();
    assert_eq!(KeyDigest::from_hex(&digest.to_hex()), Ok(digest));
    assert!(key.hint().len() < text.len() / 2, "the hint must reveal less than half of the key");
    true
}

/// Forwarding header entries: a parsed address is canonical and round-trips.
pub fn address(data: &[u8]) -> bool {
    let Some(ip) = edge::parse_entry(data) else { return false };
    assert_eq!(ip, ip.to_canonical());
    assert_eq!(edge::parse_entry(ip.to_string().as_bytes()), Some(ip));
    true
}

/// The bodies of charge calls: bytes that decode as charges or as verdicts are encoded as the same bytes.
pub fn batch(data: &[u8]) -> bool {
    let charges = decode_charges(data).map(|charges| encode_charges(&charges));
    let verdicts = decode_verdicts(data).map(|verdicts| encode_verdicts(&verdicts));
    let encoded: Vec<_> = charges.into_iter().chain(verdicts).collect();
    assert!(encoded.iter().all(|bytes| bytes == data));
    !encoded.is_empty()
}

/// Stored records: a decoded record round-trips, before and after charges.
pub fn record(data: &[u8]) -> bool {
    let Ok(decoded) = record::decode(data) else { return false };
    assert_eq!(record::decode(&record::encode(&decoded)), Ok(decoded.clone()));
    // A different burst limit empties the ring, so the stored arrivals matter only under the record's own limit.
    let own_limits = Limits { burst: u16::from_le_bytes([data[32], data[33]]), ..Limits::default() };
    for limits in [Limits::default(), own_limits] {
        let mut charged = decoded.clone();
        for now in [0, 1_763_164_800_000, 1_763_164_800_000, MAX_TIME] {
            charged.charge(now, &limits);
        }
        assert_eq!(record::decode(&record::encode(&charged)), Ok(charged));
    }
    true
}

/// PROXY headers: exactly those that the specification allows are accepted, with the client that they name, and nothing
/// after them is read.
pub fn proxy_header(data: &[u8]) -> bool {
    let mut rest = data;
    // All bytes are there, so reading never waits.
    let Poll::Ready(header) =
        pin!(ProxyHeader::read(&mut rest)).as_mut().poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("reading waits for bytes");
    };
    let valid = proxy_header_oracle::valid_header(data);
    match (&header, valid) {
        (Ok(header), Some(valid)) => {
            assert_eq!(header.client.map(|client| client.ip()), valid.client);
            assert_eq!(rest, &data[valid.length..]);
        }
        (Err(_), None) => {}
        _ => panic!("{header:?}, but by the specification {valid:?}"),
    }
    header.is_ok()
}

/// The end of the year 9999, in milliseconds.
const MAX_TIME: i64 = 253_402_300_799_999;
