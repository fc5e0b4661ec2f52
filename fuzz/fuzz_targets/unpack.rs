//! Layers: whatever an archive holds, unpacking and publishing it changes nothing outside of its layer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::check("unpack", input));
