//! Image layers: unpacking and publishing any archive changes nothing outside of its layer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::check("unpack", input));
