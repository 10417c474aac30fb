//! See `lab::fuzzing::entry_decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lab::fuzzing::entry_decode::run(input));
