//! YAML: whatever the text, reading it ends, and what is written reads back as the same tree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use machinery::{Value, json, yaml};

fuzz_target!(|text: &str| {
    for document in yaml::documents(text) {
        let Ok(value) = document else { return };
        // A float that is whole has lost its point once it was written.
        let settled: Value = yaml::parse(&yaml::to_string(&value)).expect("what is written is YAML");
        assert_eq!(yaml::parse(&yaml::to_string(&settled)).expect("what is written is YAML"), settled);
        assert!(json::parse(&json::to_vec(&value)).is_ok());
    }
});
