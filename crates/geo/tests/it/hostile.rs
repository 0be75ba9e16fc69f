//! Files crafted to overflow the stack, loop forever or exhaust memory are rejected quickly.

use std::time::{Duration, Instant};

use geo::{GeoError, verify};
use tempfile::TempDir;
use testkit::mmdb::{Builder, Value};

/// A test fails if verifying one file takes longer than this.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Verifies a record in a file that has a description and in a file that has none. The two take different code paths.
fn verify_record(record: &[u8]) -> [Result<(), GeoError>; 2] {
    let builder = Builder::new("GeoLite2-City").add_raw("81.2.69.0/24", record.to_vec());
    let described = verify_bytes(&builder.finish());
    [described, verify_bytes(&builder.without_description().finish())]
}

/// Asserts that both files with this record are rejected.
fn assert_rejected(record: &[u8], what: &str) {
    let results = verify_record(record);
    assert!(results.iter().all(Result::is_err), "{what}: with and without a description: {results:?}");
}

fn verify_bytes(bytes: &[u8]) -> Result<(), GeoError> {
    let dir = TempDir::new().expect("temp dir");
    let path = dir.path().join("x.mmdb");
    std::fs::write(&path, bytes).expect("write");
    let started = Instant::now();
    // A small stack, so that deep recursion overflows it.
    let thread = std::thread::Builder::new().stack_size(512 << 10);
    let result = thread.spawn(move || verify(&path).map(drop)).expect("spawn thread").join();
    assert!(started.elapsed() < TIME_LIMIT, "took {:?}", started.elapsed());
    result.expect("no panic")
}

/// The start of a map with one entry, `key`. Its value must be appended.
fn map_with(key: &str) -> Vec<u8> {
    let mut bytes = vec![0xe1, 0x40 | key.len() as u8];
    bytes.extend_from_slice(key.as_bytes());
    bytes
}

/// A pointer into the data section, in the short form (for targets below 2048).
fn pointer(target: u16) -> [u8; 2] {
    [0x20 | (target >> 8) as u8, target as u8]
}

#[test]
fn deeply_nested_arrays_and_maps_are_rejected() {
    for key in ["subdivisions", "unknown", "city", "country"] {
        let mut arrays = map_with(key);
        arrays.extend([0x01, 0x04].repeat(1_000_000));
        arrays.extend([0x00, 0x04]);
        assert_rejected(&arrays, &format!("arrays in {key}"));
        let mut maps = map_with(key);
        maps.extend(map_with("names").repeat(200_000));
        maps.extend([0xe0]);
        assert_rejected(&maps, &format!("maps in {key}"));
    }
}

#[test]
fn cyclic_pointers_are_rejected() {
    let mut cycle = map_with("city");
    let here = cycle.len() as u16;
    cycle.extend([0x01, 0x04]);
    cycle.extend(pointer(here));
    assert_rejected(&cycle, "cycle");
    let mut to_itself = map_with("city");
    let here = to_itself.len() as u16;
    to_itself.extend(pointer(here));
    assert_rejected(&to_itself, "pointer to itself");
}

#[test]
fn doubling_pointers_do_not_take_exponential_time() {
    // The city is a pointer to level 60. Each level is an array of two pointers to the level below; level 0 is an array
    // of two scalars.
    let mut bytes = map_with("city");
    let first = bytes.len() + 2;
    bytes.extend(pointer((first + 6 * 60) as u16));
    bytes.extend([0x02, 0x04, 0x40, 0x40, 0xc0, 0xc0]);
    for level in 0..60_usize {
        let below = pointer((first + 6 * level) as u16);
        bytes.extend([0x02, 0x04]);
        bytes.extend(below);
        bytes.extend(below);
    }
    // Only the time matters, not whether the file is accepted.
    drop(verify_record(&bytes));
}

#[test]
fn oversized_lengths_are_rejected() {
    for record in
        [vec![0xff, 0xff, 0xff, 0xff], vec![0x5f, 0xff, 0xff, 0xff], vec![0x1f, 0x04, 0xff, 0xff, 0xff]]
    {
        assert_rejected(&record, &format!("{record:?}"));
    }
}

#[test]
fn tree_with_loop_to_root_is_rejected() {
    let good =
        Builder::new("GeoLite2-City").add("81.2.69.0/24", &Value::map([("city", Value::from("x"))])).finish();
    for node in 0..100 {
        let mut looped = good.clone();
        looped[node * 6..node * 6 + 6].fill(0);
        assert!(verify_bytes(&looped).is_err(), "node {node}");
    }
}

#[test]
fn wrong_metadata_is_rejected() {
    let good =
        Builder::new("GeoLite2-City").add("81.2.69.0/24", &Value::map([("city", Value::from("x"))])).finish();
    assert!(verify_bytes(&good).is_ok());
    let end_of = |needle: &[u8]| {
        good.windows(needle.len()).position(|w| w == needle).expect("key in the file") + needle.len()
    };
    for (key, bytes) in
        [("node_count", &[0xc1, 0xff][..]), ("record_size", &[0xa1, 25]), ("ip_version", &[0xa1, 9])]
    {
        let mut wrong = good.clone();
        let at = end_of(key.as_bytes());
        wrong[at..at + bytes.len()].copy_from_slice(bytes);
        assert!(verify_bytes(&wrong).is_err(), "{key}");
    }
}

#[test]
fn directory_and_device_are_rejected() {
    let dir = TempDir::new().expect("temp dir");
    assert!(matches!(verify(dir.path()), Err(GeoError::Io(_))));
    assert!(matches!(verify("/dev/zero".as_ref()), Err(GeoError::Io(_))));
}
