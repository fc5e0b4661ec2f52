//! IntOrString values: a number of pods or a percentage, such as `maxUnavailable`.

use apimachinery::Value;

/// Returns the number, or the percentage of `total` rounded up. Invalid values count as zero.
pub fn up(value: Option<&Value>, total: i64) -> i64 {
    resolve(value, total, |hundredths| hundredths.saturating_add(99) / 100)
}

/// Returns the number, or the percentage of `total` rounded down. Invalid values count as zero.
pub fn down(value: Option<&Value>, total: i64) -> i64 {
    resolve(value, total, |hundredths| hundredths / 100)
}

fn resolve(value: Option<&Value>, total: i64, round: impl Fn(i64) -> i64) -> i64 {
    match value {
        Some(Value::Int(number)) => *number,
        Some(Value::String(text)) => {
            let percent: i64 = text.strip_suffix('%').and_then(|text| text.parse().ok()).unwrap_or(0);
            round(percent.saturating_mul(total))
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_up_or_down() {
        let check = |value: Value, total: i64, expect: (i64, i64)| {
            assert_eq!((down(Some(&value), total), up(Some(&value), total)), expect, "{value} of {total}");
        };
        check(3.into(), 10, (3, 3));
        check("25%".into(), 10, (2, 3));
        check("50%".into(), 10, (5, 5));
        check("many".into(), 10, (0, 0));
        assert_eq!(up(None, 10), 0);
    }
}
