//! Protobuf: every input is decoded as any kind in bounded time, and decoded objects round-trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use apimachinery::{json, protobuf};

fuzz_target!(|input: (u16, &[u8])| {
    let kinds = api::catalogue::kinds();
    let at = usize::from(input.0) % kinds.len();
    let (kind, schema) = api::catalogue::kinds().nth(at).expect("a kind of the catalogue");
    let Ok(decoded) = protobuf::decode_with(input.1, schema, &api::catalogue::schema) else { return };
    // Embedded JSON may contain a whole float, which becomes an integer at the first serialization.
    let first = json::parse(&json::to_vec(&decoded)).expect("a decoded object is JSON");
    let settled = |object| {
        let mut bytes = Vec::new();
        protobuf::encode(object, schema, &mut bytes).ok()?;
        Some(protobuf::decode(&bytes, schema).expect("an encoded object can be decoded"))
    };
    // A time after the year 9999 can be printed but not parsed, as in Go.
    let Some(second) = settled(&first) else { return };
    assert_eq!(settled(&second).as_ref(), Some(&second), "{kind}");
});
