//! URL to RequestInfo: see `fuzzing::request_info`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::check("request_info", input));
