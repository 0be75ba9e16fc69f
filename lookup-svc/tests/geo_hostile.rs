//! Files made to overflow the stack, to loop or to use up memory are refused quickly.

use std::time::{Duration, Instant};

use lookup_svc::geo::writer::{Builder, Value};
use lookup_svc::geo::{GeoError, verify};
use tempfile::TempDir;

/// A test of ours must fail, not hang, should a reader ever loop.
const SOON: Duration = Duration::from_secs(20);

/// Judges a record in a file with a description, which `verify` sees first, and in one without.
fn judge_record(record: &[u8]) -> Result<(), GeoError> {
    let builder = Builder::new("GeoLite2-City").add_raw("192.0.2.0/24", record.to_vec());
    let first = judge(&builder.finish());
    let second = judge(&builder.without_description().finish());
    first.and(second)
}

fn judge(bytes: &[u8]) -> Result<(), GeoError> {
    let folder = TempDir::new().expect("folder");
    let path = folder.path().join("x.mmdb");
    std::fs::write(&path, bytes).expect("writes");
    let started = Instant::now();
    // A small stack, as a server's threads may have.
    let thread = std::thread::Builder::new().stack_size(512 << 10);
    let result = thread.spawn(move || verify(&path).map(drop)).expect("spawns").join();
    assert!(started.elapsed() < SOON, "took {:?}", started.elapsed());
    result.expect("no panic, no overflow")
}

/// A map of one entry whose key is `key` and whose value follows.
fn map_with(key: &str) -> Vec<u8> {
    let mut bytes = vec![0xe1, 0x40 | key.len() as u8];
    bytes.extend_from_slice(key.as_bytes());
    bytes
}

/// A pointer into the data section (the short form, below 2048).
fn pointer(target: u16) -> [u8; 2] {
    [0x20 | (target >> 8) as u8, target as u8]
}

#[test]
fn a_million_nested_arrays_or_maps_do_not_overflow_the_stack() {
    for key in ["subdivisions", "unknown", "city", "country"] {
        let mut arrays = map_with(key);
        arrays.extend([0x01, 0x04].repeat(1_000_000));
        arrays.extend([0x00, 0x04]);
        assert!(judge_record(&arrays).is_err(), "arrays in {key}");
        let mut maps = map_with(key);
        maps.extend(map_with("names").repeat(200_000));
        maps.extend([0xe0]);
        assert!(judge_record(&maps).is_err(), "maps in {key}");
    }
}

#[test]
fn pointers_in_a_circle_end() {
    let mut circle = map_with("city");
    let here = circle.len() as u16;
    circle.extend([0x01, 0x04]);
    circle.extend(pointer(here));
    assert!(judge_record(&circle).is_err());
    let mut to_itself = map_with("city");
    let here = to_itself.len() as u16;
    to_itself.extend(pointer(here));
    assert!(judge_record(&to_itself).is_err());
}

#[test]
fn doubling_pointers_do_not_take_exponential_time() {
    let mut bytes = map_with("city");
    let levels = bytes.len();
    let first = levels + 2;
    bytes.extend(pointer((first + 6 * 60) as u16));
    bytes.extend([0x02, 0x04, 0x40, 0x40, 0xc0, 0xc0]);
    for level in 0..60_usize {
        let below = pointer((first + 6 * level) as u16);
        bytes.extend([0x02, 0x04]);
        bytes.extend(below);
        bytes.extend(below);
    }
    // Accepted or refused is the reader's choice; it must only be quick.
    drop(judge_record(&bytes));
}

#[test]
fn sizes_that_lie_allocate_nothing() {
    for lie in
        [vec![0xff, 0xff, 0xff, 0xff], vec![0x5f, 0xff, 0xff, 0xff], vec![0x1f, 0x04, 0xff, 0xff, 0xff]]
    {
        assert!(judge_record(&lie).is_err());
    }
}

#[test]
fn a_tree_that_leads_back_to_its_root_is_refused() {
    let good =
        Builder::new("GeoLite2-City").add("192.0.2.0/24", &Value::map([("city", Value::from("x"))])).finish();
    for node in 0..100 {
        let mut looped = good.clone();
        looped[node * 6..node * 6 + 6].fill(0);
        assert!(judge(&looped).is_err(), "node {node}");
    }
}

#[test]
fn metadata_that_lies_is_refused() {
    let good =
        Builder::new("GeoLite2-City").add("192.0.2.0/24", &Value::map([("city", Value::from("x"))])).finish();
    assert!(judge(&good).is_ok());
    let text = |needle: &[u8]| {
        good.windows(needle.len()).position(|w| w == needle).expect("in the file") + needle.len()
    };
    for (key, bytes) in
        [("node_count", &[0xc1, 0xff][..]), ("record_size", &[0xa1, 25]), ("ip_version", &[0xa1, 9])]
    {
        let mut lying = good.clone();
        let at = text(key.as_bytes());
        lying[at..at + bytes.len()].copy_from_slice(bytes);
        assert!(judge(&lying).is_err(), "{key}");
    }
}

#[test]
fn a_folder_or_a_device_is_no_database() {
    let folder = TempDir::new().expect("folder");
    assert!(matches!(verify(folder.path()), Err(GeoError::NotAFile)));
    assert!(matches!(verify("/dev/zero".as_ref()), Err(GeoError::NotAFile)));
}
