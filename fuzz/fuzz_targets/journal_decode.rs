//! See `lab::fuzzing::journal_decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lab::fuzzing::journal_decode::run(input));
