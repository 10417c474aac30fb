//! See `lab::fuzzing::mismatch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lab::fuzzing::mismatch::run(input));
