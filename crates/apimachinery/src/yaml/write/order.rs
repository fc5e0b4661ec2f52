//! Natural order of YAML keys: letters after other characters, and numbers inside keys by value.

use crate::{Object, Value};

/// Returns the entries in the order of Go's library.
pub(super) fn natural(object: &Object) -> Vec<(&str, &Value)> {
    let entries: Vec<_> = object.iter().collect();
    // Keys sorted by bytes are mostly in this order already.
    if entries.is_sorted_by(|a, b| !is_less(b.0, a.0)) { entries } else { sorted(entries) }
}

/// Sorts by merge sort: the order is not total for every set of keys, and the standard library's sort may panic on such
/// an order.
fn sorted<'o>(mut entries: Vec<(&'o str, &'o Value)>) -> Vec<(&'o str, &'o Value)> {
    if entries.len() < 2 {
        return entries;
    }
    let mut left = sorted(entries.drain(..entries.len() / 2).collect()).into_iter().peekable();
    let mut right = sorted(entries).into_iter().peekable();
    let mut merged = Vec::with_capacity(left.len() + right.len());
    loop {
        let next = match (left.peek(), right.peek()) {
            (Some(a), Some(b)) if is_less(b.0, a.0) => right.next(),
            (Some(_), _) => left.next(),
            (None, _) => right.next(),
        };
        match next {
            Some(entry) => merged.push(entry),
            None => return merged,
        }
    }
}

fn is_less(a: &str, b: &str) -> bool {
    let same: usize = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(it, _)| it.len_utf8()).sum();
    let (Some(x), Some(y)) = (a[same..].chars().next(), b[same..].chars().next()) else { return a.len() < b.len() };
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x < y,
        (false, true) => return true,
        (true, false) => return false,
        (false, false) => {}
    }
    // A zero counts only after a non-zero digit: 10 is greater than 1, but 01 is not.
    let zero = x == '0' || y == '0';
    let before = a[..same].chars().rev().take_while(char::is_ascii_digit);
    let start = i64::from(zero && before.into_iter().any(|digit| digit != '0'));
    let ((x_number, x_digits), (y_number, y_digits)) = (run(&a[same..], start), run(&b[same..], start));
    (x_number, x_digits, x) < (y_number, y_digits, y)
}

/// Returns the number formed by `start` and the leading digits of a text, and the count of these digits.
fn run(text: &str, start: i64) -> (i64, usize) {
    let digits = text.bytes().take_while(u8::is_ascii_digit);
    digits.fold((start, 0), |(number, count), digit| {
        (number.wrapping_mul(10).wrapping_add(i64::from(digit - b'0')), count + 1)
    })
}
