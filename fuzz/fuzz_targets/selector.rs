//! Label and field selectors: every text is parsed in bounded time, and printed selectors round-trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use apimachinery::{Value, fields, labels};

fuzz_target!(|text: &str| {
    if let Ok(selector) = labels::Selector::parse(text) {
        let printed = selector.to_string();
        let again = labels::Selector::parse(&printed).expect("a printed selector can be parsed");
        assert_eq!(again.to_string(), printed);
        assert_eq!(again.matches_object(&Value::Null), selector.matches_object(&Value::Null));
    }
    if let Ok(selector) = fields::Selector::parse(text) {
        let again = fields::Selector::parse(&selector.to_string()).expect("a printed selector can be parsed");
        assert_eq!(again.requirements().len(), selector.requirements().len());
        assert_eq!(again.matches(|_| None), selector.matches(|_| None));
    }
});
