//! See `lab::fuzzing::structures`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lab::fuzzing::structures::run(input));
