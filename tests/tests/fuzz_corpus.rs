//! The fuzz targets' corpus, replayed without a fuzzer: no input panics, and each is taken or refused as its name says (F23).

use std::fs;
use std::path::Path;

#[path = "../../fuzz/checks.rs"]
mod checks;

/// Names begin with `ok-` or `no-`; an input that a fuzzer found has another name and only must not panic.
fn replay(target: &str, check: fn(&[u8]) -> bool) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let (mut taken, mut refused) = (0, 0);
    for entry in fs::read_dir(&folder).expect("the target has a corpus") {
        let path = entry.expect("a readable folder").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name").to_owned();
        let accepted = check(&fs::read(&path).expect("a readable file"));
        match name.split('-').next() {
            Some("ok") => assert!(accepted, "{target}/{name} is refused"),
            Some("no") => assert!(!accepted, "{target}/{name} is taken"),
            _ => {}
        }
        *(if accepted { &mut taken } else { &mut refused }) += 1;
    }
    assert!(
        taken > 0 && refused > 5,
        "{target}: {taken} taken and {refused} refused: too few to say anything"
    );
}

#[test]
fn keys() {
    replay("key", checks::key);
}

#[test]
fn addresses() {
    replay("address", checks::address);
}

#[test]
fn batches() {
    replay("batch", checks::batch);
}

#[test]
fn records() {
    replay("record", checks::record);
}
