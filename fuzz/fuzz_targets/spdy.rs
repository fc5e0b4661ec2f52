//! SPDY frames: see `streaming::spdy::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::check("spdy", input));
