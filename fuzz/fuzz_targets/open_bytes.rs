//! See `lab::fuzzing::open_bytes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lab::fuzzing::open_bytes::run(input));
