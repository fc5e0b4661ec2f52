//! PEM and certificate signing requests: every parser reads an accepted input in the same way.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::check("csr", input));
