//! JSON: every input is parsed in bounded time, and serialized values round-trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use apimachinery::json;

fuzz_target!(|bytes: &[u8]| {
    let Ok((value, _)) = json::parse_strict(bytes) else { return };
    // Go prints a whole float without a decimal point, so the first serialization may turn it into an integer.
    let settled = json::parse(&json::to_vec(&value)).expect("the writer produces valid JSON");
    assert_eq!(json::parse(&json::to_vec(&settled)).expect("the writer produces valid JSON"), settled);
    assert_eq!(json::parse(json::to_string_pretty(&value).as_bytes()).expect("the writer produces valid JSON"), settled);
});
