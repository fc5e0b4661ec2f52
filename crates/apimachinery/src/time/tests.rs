use proptest::prelude::*;

use super::*;

#[test]
fn times_are_stored_in_utc_to_the_second() {
    let check = |text: &str, expect: &str| assert_eq!(canonical(text), Ok(Cow::Borrowed(expect)), "{text}");
    check("2026-11-15T22:46:30Z", "2026-11-15T22:46:30Z");
    check("2026-11-15T22:46:30.999999999Z", "2026-11-15T22:46:30Z");
    check("2026-11-15T22:46:30,5+02:30", "2026-11-15T20:16:30Z");
    check("2026-11-15T2:46:30Z", "2026-11-15T02:46:30Z");
    check("2024-02-29T00:00:00+24:60", "2024-02-27T23:00:00Z");
    check("0000-01-01T00:00:00+01:00", "-0001-12-31T23:00:00Z");
    check("9999-12-31T23:59:59-01:00", "10000-01-01T00:59:59Z");
    check("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z");
}

#[test]
fn micro_times_have_six_digits() {
    let check = |text: &str, expect: &str| assert_eq!(canonical_micro(text), Ok(Cow::Borrowed(expect)), "{text}");
    check("2026-11-15T22:46:30.123456Z", "2026-11-15T22:46:30.123456Z");
    check("2026-11-15T22:46:30,000001+01:00", "2026-11-15T21:46:30.000001Z");
}

#[test]
fn invalid_times_fail_with_gos_messages() {
    let check = |text: &str, expect: &str| assert_eq!(canonical(text).unwrap_err().to_string(), expect);
    let layout = r#""2006-01-02T15:04:05Z07:00""#;
    check("x", &format!(r#"parsing time "x" as {layout}: cannot parse "x" as "2006""#));
    check("", &format!(r#"parsing time "" as {layout}: cannot parse "" as "2006""#));
    check("2026", &format!(r#"parsing time "2026" as {layout}: cannot parse "" as "-""#));
    check("2026-1-02", &format!(r#"parsing time "2026-1-02" as {layout}: cannot parse "1-02" as "01""#));
    check("2026-01-02 ", &format!(r#"parsing time "2026-01-02 " as {layout}: cannot parse " " as "T""#));
    check(
        "2026-01-02T00:00:00é",
        &format!(r#"parsing time "2026-01-02T00:00:00\xc3\xa9" as {layout}: cannot parse "\xc3\xa9" as "Z07:00""#),
    );
    check(
        "2026-01-02T00:00:00.Z",
        &format!(r#"parsing time "2026-01-02T00:00:00.Z" as {layout}: cannot parse ".Z" as "Z07:00""#),
    );
    check("2026-13-02T00:00:00Z", r#"parsing time "2026-13-02T00:00:00Z": month out of range"#);
    check("2026-02-29T00:00:00Z", r#"parsing time "2026-02-29T00:00:00Z": day out of range"#);
    check("2026-01-02T24:00:00Z", r#"parsing time "2026-01-02T24:00:00Z": hour out of range"#);
    check("2026-01-02T00:60:00Z", r#"parsing time "2026-01-02T00:60:00Z": minute out of range"#);
    check("2016-12-31T23:59:60Z", r#"parsing time "2016-12-31T23:59:60Z": second out of range"#);
    check(
        "2026-01-02T00:00:00+25:00",
        r#"parsing time "2026-01-02T00:00:00+25:00": time zone offset hour out of range"#,
    );
    check("2026-01-02T00:00:00ZZ", r#"parsing time "2026-01-02T00:00:00ZZ": extra text: "Z""#);
    assert_eq!(
        canonical_micro("2026-01-02T00:00:00Z").unwrap_err().to_string(),
        r#"parsing time "2026-01-02T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
    );
}

#[test]
fn durations_print_and_parse_like_go() {
    let check = |text: &str, nanos: i64, printed: &str| {
        assert_eq!(text.parse(), Ok(Duration::from_nanos(nanos)), "{text}");
        assert_eq!(Duration::from_nanos(nanos).to_string(), printed);
    };
    check("0", 0, "0s");
    check("-0s", 0, "0s");
    check("1ns", 1, "1ns");
    check("1us", 1000, "1µs");
    check("1.5µs", 1500, "1.5µs");
    check("1.5μs", 1500, "1.5µs");
    check("100ms", 100_000_000, "100ms");
    check("3.5s", 3_500_000_000, "3.5s");
    check("90s", 90_000_000_000, "1m30s");
    check("1h", 3_600_000_000_000, "1h0m0s");
    check("1h2m3.5s", 3_723_500_000_000, "1h2m3.5s");
    check("+.5h", 1_800_000_000_000, "30m0s");
    check("-1m", -60_000_000_000, "-1m0s");
    check("1s1h", 3_601_000_000_000, "1h0m1s");
    check("2562047h47m16.854775807s", i64::MAX, "2562047h47m16.854775807s");
    check("-2562047h47m16.854775808s", i64::MIN, "-2562047h47m16.854775808s");
}

#[test]
fn invalid_durations_fail_with_gos_messages() {
    let check =
        |text: &str, expect: &str| assert_eq!(text.parse::<Duration>().unwrap_err().to_string(), expect, "{text}");
    check("", r#"time: invalid duration """#);
    check("-", r#"time: invalid duration "-""#);
    check("x", r#"time: invalid duration "x""#);
    check(".s", r#"time: invalid duration ".s""#);
    check("1", r#"time: missing unit in duration "1""#);
    check("1h2", r#"time: missing unit in duration "1h2""#);
    check("1d", r#"time: unknown unit "d" in duration "1d""#);
    check("1 s", r#"time: unknown unit " s" in duration "1 s""#);
    check("9223372036854775808ns", r#"time: invalid duration "9223372036854775808ns""#);
    check("99999999999999999999h", r#"time: invalid duration "99999999999999999999h""#);
}

#[test]
fn adding_and_subtracting_durations() {
    let time = Time::from_unix(10, 500_000_000);
    let earlier = time.plus(Duration::from_nanos(-600_000_000));
    assert_eq!((earlier.unix_seconds(), earlier.nanos()), (9, 900_000_000));
    assert_eq!(time.since(earlier), Duration::from_nanos(600_000_000));
    assert_eq!(time.to_seconds(), Time::from_unix(10, 0));
}

proptest! {
    #[test]
    fn printed_times_parse_back(seconds in -62_167_219_200_i64..=253_402_300_799, micros in 0..1_000_000_u32) {
        let time = Time::from_unix(seconds, micros * 1000);
        prop_assert_eq!(Time::parse_micro(&time.micro().to_string()), Ok(time));
        prop_assert_eq!(Time::parse(&time.to_string()), Ok(time.to_seconds()));
    }

    #[test]
    fn calendar_agrees_with_jiff(seconds in -62_167_219_200_i64..=253_402_207_200) {
        let other = jiff::Timestamp::from_second(seconds).unwrap();
        prop_assert_eq!(Time::from_unix(seconds, 0).to_string(), other.to_string());
    }

    #[test]
    fn printed_durations_parse_back(nanos: i64) {
        let duration = Duration::from_nanos(nanos);
        prop_assert_eq!(duration.to_string().parse(), Ok(duration));
    }

    #[test]
    fn parsers_never_panic(text in "\\PC{0,40}", time in "[0-9TZ:.,+é-]{0,36}", length in "[0-9.hmnsuµ+-]{0,30}") {
        for text in [&text, &time, &length] {
            let _ = (Time::parse(text), Time::parse_micro(text), text.parse::<Duration>());
        }
    }
}
