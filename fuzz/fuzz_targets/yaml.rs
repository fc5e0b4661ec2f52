//! YAML: every text is parsed in bounded time, and serialized values round-trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use apimachinery::{Value, json, yaml};

fuzz_target!(|text: &str| {
    for document in yaml::documents(text) {
        let Ok(value) = document else { return };
        // A whole float loses its decimal point when it is serialized.
        let settled: Value = yaml::parse(&yaml::to_string(&value)).expect("the writer produces valid YAML");
        assert_eq!(yaml::parse(&yaml::to_string(&settled)).expect("the writer produces valid YAML"), settled);
        assert!(json::parse(&json::to_vec(&value)).is_ok());
    }
});
