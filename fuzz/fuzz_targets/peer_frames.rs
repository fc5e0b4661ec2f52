//! Messages between store members: see `store::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::check("peer_frames", input));
