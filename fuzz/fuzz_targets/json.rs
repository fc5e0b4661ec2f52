//! JSON: whatever the bytes, reading them ends, and what is written reads back as the same tree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use machinery::json;

fuzz_target!(|bytes: &[u8]| {
    let Ok((value, _)) = json::parse_strict(bytes) else { return };
    assert_eq!(json::parse(&json::to_vec(&value)).expect("what is written is JSON"), value);
    assert_eq!(json::parse(json::to_string_pretty(&value).as_bytes()).expect("what is written is JSON"), value);
});
