//! Quantities: parsing is bounded, the canonical form has the same value, and addition reverses subtraction.
#![no_main]

use libfuzzer_sys::fuzz_target;
use apimachinery::quantity::{Quantity, canonical};

fuzz_target!(|texts: (&str, &str)| {
    let read = |text: &str| text.trim().parse::<Quantity>().ok();
    let Some(one) = read(texts.0) else { return };
    let settled = canonical(texts.0).expect("a parsed quantity has a canonical form");
    assert_eq!(read(&settled), Some(one), "{settled}");
    let _ = (one.value(), one.milli_value(), one.as_f64());
    let Some(other) = read(texts.1) else { return };
    assert_eq!(one.cmp(&other), other.cmp(&one).reverse());
    let difference = one.sub(other);
    assert_eq!(difference.is_negative(), one < other, "{one} - {other}");
    assert_eq!(difference.is_zero(), one == other, "{one} - {other}");
});
