use proptest::prelude::*;

use super::*;
use crate::value;

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn canonical_form_is_exact_and_has_the_largest_suffix() {
    let check = |text: &str, expect: &str| assert_eq!(canonical(text), Ok(Cow::Borrowed(expect)), "{text}");
    check("0", "0");
    check("0.0", "0");
    check("-0", "0");
    check("1000m", "1");
    check("1500m", "1500m");
    check("0.1", "100m");
    check(".5", "500m");
    check("1024Ki", "1Mi");
    check("1025Ki", "1025Ki");
    check("1.5Gi", "1536Mi");
    check("0.5Gi", "512Mi");
    check("0.5Ki", "512");
    check("1.1Ki", "1126400m");
    check("0.0001Ki", "102400u");
    check("512Ki", "512Ki");
    check("8Ki", "8Ki");
    check("2048Mi", "2Gi");
    check("1e3", "1e3");
    check("1E3", "1E3");
    check("1e2", "100");
    check("1000e0", "1e3");
    check("1.5e-3", "1500e-6");
    check("1000000", "1M");
    check("12345678", "12345678");
    check("1000k", "1M");
    check("1000E", "1e21");
    check("100E", "100E");
    check("1Ei", "1Ei");
    check("8Ei", "9223372036854775807");
    check("-9Ei", "-9223372036854775807");
    check("99999999999999999999999999999999999999Ki", "9223372036854775807");
    check("18446744073709551616", "18446744073709551616");
    check("9223372036854775808", "9223372036854775808");
    check("0.9n", "1n");
    check("-0.9n", "-1n");
    check("1.0000000001", "1000000001n");
    check("10.0000000001", "10000000001n");
    check("1e-100", "1e-9");
    check(" 1Gi ", "1Gi");
}

#[test]
fn texts_that_pass_upstreams_quick_check_are_unchanged() {
    for text in ["1.500", "1.001", "+1", "007", "1.", "1e+3", "001Ki", "1.234567"] {
        assert_eq!(canonical(text), Ok(Cow::Borrowed(text)));
        assert_ne!(quantity(text).to_string(), text);
    }
}

#[test]
fn texts_without_a_number_parse_like_upstream() {
    let check =
        |text: &str, expect: Result<&str, Error>| assert_eq!(canonical(text), expect.map(Cow::Borrowed), "{text}");
    check("", Err(Error::Format));
    check("1 Gi", Err(Error::Format));
    check("1.2.3", Err(Error::Format));
    check("1Gib", Err(Error::Format));
    check("é", Err(Error::Format));
    check("1g", Err(Error::Format));
    check("1ki", Err(Error::Suffix));
    check("1mi", Err(Error::Suffix));
    check("1e", Err(Error::Suffix));
    check("1i", Err(Error::Suffix));
    check("1e9223372036854775808", Err(Error::Suffix));
    check("Pi", Err(Error::Numeric));
    check(".Ei", Err(Error::Numeric));
    check("e-10", Err(Error::Numeric));
    check("Ti", Ok("0"));
    check(".", Ok("0"));
    check("-", Ok("0"));
    check("m", Ok("0"));
    check("1e4294967297", Ok("10"));
}

#[test]
fn numbers_and_null_are_quantities_in_json() {
    let check = |value: Value, expect: &str| {
        assert_eq!(canonical_value(&value).unwrap(), Ok(Cow::Borrowed(expect)));
    };
    check(value!(1), "1");
    check(value!(1000), "1k");
    check(Value::Float(0.1), "100m");
    check(Value::Null, "0");
    check(value!("1Gi"), "1Gi");
    assert_eq!(canonical_value(&value!(true)), None);
}

#[test]
fn whole_numbers_round_away_from_zero_and_saturate_at_64_bits() {
    let check = |text: &str, value: i64, milli: i64| {
        assert_eq!((quantity(text).value(), quantity(text).milli_value()), (value, milli), "{text}");
    };
    check("1500m", 2, 1500);
    check("-1500m", -2, -1500);
    check("1n", 1, 1);
    check("0", 0, 0);
    check("1Gi", 1 << 30, 1000 << 30);
    check("1e30", i64::MAX, i64::MAX);
    check("-1e2147483647", i64::MIN, i64::MIN);
    assert_eq!(quantity("2k").scaled_value(3), 2);
    assert_eq!(quantity("2001").scaled_value(3), 3);
    assert_eq!(quantity("1500m").as_i64(), None);
    assert_eq!(quantity("2000m").as_i64(), Some(2));
    assert_eq!(quantity("1.5").as_f64().to_bits(), 1.5_f64.to_bits());
}

#[test]
fn sums_keep_the_notation_of_the_left_side_unless_it_is_zero() {
    let check = |left: &str, right: &str, sum: &str, difference: &str| {
        assert_eq!(quantity(left).add(quantity(right)).to_string(), sum, "{left} + {right}");
        assert_eq!(quantity(left).sub(quantity(right)).to_string(), difference, "{left} - {right}");
    };
    check("1Gi", "1Mi", "1025Mi", "1023Mi");
    check("1", "1Ki", "1025", "-1023");
    check("0", "1Ki", "1Ki", "-1Ki");
    check("1Ki", "1m", "1024001m", "1023999m");
    check("100m", "900m", "1", "-800m");
    check("1e30", "1", "1000000000000000000000000000001", "999999999999999999999999999999");
}

#[test]
fn amounts_beyond_36_digits_are_rounded_away_from_zero() {
    let huge = quantity("1e2147483647");
    assert!(huge.add(quantity("1n")) > huge);
    assert_eq!(huge.sub(quantity("1n")), huge);
    assert!(huge.add(huge).times(i64::MAX) > huge);
    assert!(!quantity("1e30").sub(quantity("999999999999999999999999999999.999999")).is_zero());
    assert_eq!(quantity("3m").times(-1000), quantity("-3"));
    assert_eq!(quantity("1001m").round_up(0), quantity("2"));
    assert_eq!("1234567890123456789012345678901234567".parse::<Quantity>(), Err(Error::Numeric));
}

fn any_quantity() -> impl Strategy<Value = Quantity> {
    let format = prop_oneof![Just(Format::DecimalSI), Just(Format::BinarySI), Just(Format::DecimalExponent)];
    (any::<i64>(), -9..=6_i32, format).prop_map(|(value, exponent, format)| Quantity::scaled(value, exponent, format))
}

proptest! {
    #[test]
    fn printed_quantities_parse_back_and_reach_a_fixed_point(quantity in any_quantity()) {
        let text = quantity.to_string();
        let again: Quantity = text.parse().unwrap();
        // Parsing a binary suffix saturates at 63 bits.
        let limit = Quantity::new(i64::MAX, Format::BinarySI);
        prop_assert_eq!(again, if text.ends_with('i') { quantity.clamp(limit.neg(), limit) } else { quantity });
        // A binary amount without a suffix parses as a decimal one, and from then on prints as decimal.
        let canonical_text = again.to_string();
        prop_assert_eq!(canonical(&canonical_text).unwrap(), canonical_text.as_str());
        if quantity.format() != Format::BinarySI {
            prop_assert_eq!(canonical_text, text);
        }
    }

    #[test]
    fn order_agrees_with_the_sign_of_the_difference(a in any_quantity(), b in any_quantity()) {
        let difference = a.sub(b);
        prop_assert_eq!(a < b, difference.is_negative());
        prop_assert_eq!(a == b, difference.is_zero());
        prop_assert_eq!(a.sub(b).add(b), a);
    }

    #[test]
    fn sums_do_not_depend_on_order(a in any_quantity(), b in any_quantity(), c in any_quantity()) {
        prop_assert_eq!(a.add(b), b.add(a));
        prop_assert_eq!(a.add(b).add(c), a.add(b.add(c)));
    }

    #[test]
    fn parser_never_panics(text in "[-+0-9.eEinumkKMGTPi é]{0,60}") {
        if let Ok(canonical) = canonical(&text) {
            prop_assert_eq!(canonical.parse::<Quantity>().unwrap(), text.trim().parse().unwrap());
        }
    }
}
