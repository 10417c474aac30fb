//! See `lab::fuzzing::open_mutated`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lab::fuzzing::open_mutated::run(input));
