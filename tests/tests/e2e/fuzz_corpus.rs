//! Replays the fuzzing corpus without a fuzzer: no input causes a panic, and each is accepted or rejected as its
//! file name requires.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/checks.rs"]
mod checks;

/// File names start with `ok-` (must be accepted) or `no-` (must be rejected). Inputs found by a fuzzer have other
/// names: they may be accepted or rejected, but must not cause a panic.
fn replay(target: &str, check: fn(&[u8]) -> bool) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let (mut accepted_count, mut rejected_count) = (0, 0);
    for entry in fs::read_dir(&dir).expect("target has a corpus") {
        let path = entry.expect("readable directory").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8 file name").to_owned();
        let accepted = check(&fs::read(&path).expect("readable file"));
        match name.split('-').next() {
            Some("ok") => assert!(accepted, "{target}/{name} was rejected"),
            Some("no") => assert!(!accepted, "{target}/{name} was accepted"),
            _ => {}
        }
        *(if accepted { &mut accepted_count } else { &mut rejected_count }) += 1;
    }
    assert!(
        accepted_count > 0 && rejected_count > 5,
        "{target}: too few inputs: {accepted_count} accepted, {rejected_count} rejected"
    );
}

#[test]
fn key_inputs_are_accepted_or_rejected_as_named() {
    replay("key", checks::key);
}

#[test]
fn address_inputs_are_accepted_or_rejected_as_named() {
    replay("address", checks::address);
}

#[test]
fn batch_inputs_are_accepted_or_rejected_as_named() {
    replay("batch", checks::batch);
}

#[test]
fn proxy_header_inputs_are_accepted_or_rejected_as_named() {
    replay("proxy_header", checks::proxy_header);
}

#[test]
fn record_inputs_are_accepted_or_rejected_as_named() {
    replay("record", checks::record);
}
