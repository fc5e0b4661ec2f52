//! Patches: any patch on any object returns a readable object or an error.
//!
//! The input is an object and a patch, one per line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use apimachinery::patch::strategic::{OnConflict, create_three_way, create_two_way};
use apimachinery::patch::{PatchType, apply_patch, merge};
use apimachinery::{GroupVersionKind, Value, json};

fuzz_target!(|input: &[u8]| {
    let Some(at) = input.iter().position(|byte| *byte == b'\n') else { return };
    let (current, patch) = (&input[..at], &input[at + 1..]);
    let Ok(current) = json::parse(current) else { return };
    let pod = GroupVersionKind { group: "".into(), version: "v1".into(), kind: "Pod".into() };
    let schema = api::catalogue::schema(&pod);
    for kind in [PatchType::Json, PatchType::Merge, PatchType::Strategic] {
        if let Ok(patched) = apply_patch(kind, current.clone(), patch, schema) {
            json::parse(&json::to_vec(&patched)).expect("a patched object can be read again");
        }
    }
    let Ok(modified) = json::parse(patch) else { return };
    // A merge patch cannot set null. Applying the object to null removes such fields.
    let wanted = merge::apply(Value::Null, modified.clone());
    if !wanted.is_null() {
        assert_eq!(merge::apply(current.clone(), merge::diff(&current, &wanted)), wanted);
    }
    if let (Value::Object(current), Value::Object(modified), Some(schema)) = (&current, &modified, schema) {
        let _ = create_two_way(current, modified, schema);
        let _ = create_three_way(current, modified, current, schema, OnConflict::Refuse);
    }
});
