//! See `lab::fuzzing::export_decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lab::fuzzing::export_decode::run(input));
