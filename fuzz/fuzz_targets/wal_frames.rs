//! Records of the write-ahead log: see `store::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::check("wal_frames", input));
