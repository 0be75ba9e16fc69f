//! What must hold for any bytes: shared by the fuzz targets and the test that replays their corpus on stable.

use api_key::{ApiKey, KeyDigest};
use quota_client::wire::ChargeRequest;
use quota_svc::domain::limits::Limits;
use quota_svc::domain::record;

/// Of any text, a key or an error; what is a key gives itself back and hides itself in `Debug`.
pub fn key(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(key) = ApiKey::parse(text) else { return false };
    assert_eq!(key.expose(), text);
    assert!(!format!("{key:?}").contains(&text[4..]));
    let digest = key.digest();
    assert_eq!(KeyDigest::from_hex(&digest.to_hex()), Ok(digest));
    assert!(key.hint().len() < text.len() / 2, "a hint tells little");
    true
}

/// Of any header entry, an address or none; an address is canonical and reads as itself.
pub fn address(data: &[u8]) -> bool {
    let Some(ip) = edge::parse_entry(data) else { return false };
    assert_eq!(ip, ip.to_canonical());
    assert_eq!(edge::parse_entry(ip.to_string().as_bytes()), Some(ip));
    true
}

/// Of any body, a batch or an error; a batch is the same after it travelled, and its digests are read or refused.
pub fn batch(data: &[u8]) -> bool {
    let Ok(batch) = serde_json::from_slice::<ChargeRequest>(data) else { return false };
    let written = serde_json::to_vec(&batch).expect("what was read can be written");
    let again: ChargeRequest = serde_json::from_slice(&written).expect("what we write can be read");
    assert_eq!(again, batch);
    for hex in batch.charges.iter().filter_map(|charge| charge.key_sha256.as_deref()) {
        if let Ok(digest) = KeyDigest::from_hex(hex) {
            assert_eq!(digest.to_hex(), hex);
        }
    }
    true
}

/// Of any stored bytes, a record or an error; a record is the same after it was written, and can be charged.
pub fn record(data: &[u8]) -> bool {
    let Ok(read) = record::decode(data) else { return false };
    assert_eq!(record::decode(&record::encode(&read)), Ok(read.clone()));
    // Another burst limit empties the ring: only under the record's own does a charge meet what was stored.
    let own = Limits { burst: u16::from_le_bytes([data[32], data[33]]), ..Limits::default() };
    for limits in [Limits::default(), own] {
        let mut charged = read.clone();
        for now in [0, 1_763_164_800_000, 1_763_164_800_000, LAST_TIME] {
            charged.charge(now, &limits);
        }
        assert_eq!(record::decode(&record::encode(&charged)), Ok(charged));
    }
    true
}

/// The end of the year 9999, in milliseconds.
const LAST_TIME: i64 = 253_402_300_799_999;
