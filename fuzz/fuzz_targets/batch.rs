//! Fuzzes the decoders of charges and verdicts.
#![no_main]

#[path = "../checks.rs"]
#[expect(dead_code, reason = "each target uses one of the checks")]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    checks::batch(data);
});
