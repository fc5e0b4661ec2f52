//! PEM and certificate requests: whatever is accepted, every parser reads it alike.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| api::certificates::agreement::check(bytes));
