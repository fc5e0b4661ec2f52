//! Go's regular expressions: see `apimachinery::regexp::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::check("regexp", input));
