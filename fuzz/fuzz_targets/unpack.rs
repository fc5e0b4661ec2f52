//! Layers: whatever an archive holds, unpacking and publishing it changes nothing outside of its layer.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| image::canary::check(bytes));
