//! Records of the write-ahead log: see `store::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| store::fuzz::wal_frames(input));
