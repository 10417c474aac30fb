//! See `lab::fuzzing::snapshots_decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lab::fuzzing::snapshots_decode::run(input));
