//! PEM and certificate requests: whatever is accepted, every parser reads it alike.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::check("csr", input));
