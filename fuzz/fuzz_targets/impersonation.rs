//! Impersonation headers: see `fuzzing::impersonation`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::check("impersonation", input));
