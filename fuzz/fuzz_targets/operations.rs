//! See `lab::fuzzing::operations`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lab::fuzzing::operations::run(input));
