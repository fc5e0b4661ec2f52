//! Quantity parser.

use super::{BINARY_SUFFIXES, DECIMAL_SUFFIXES, Error, Format, MANTISSA_END, NANO, Quantity};

/// A quantity, and whether upstream keeps its original text.
pub(super) struct ParsedQuantity {
    pub(super) quantity: Quantity,
    pub(super) keeps_text: bool,
}

/// The parts of `-12.50Mi`.
struct Parts<'a> {
    negative: bool,
    /// Digits before the decimal point, without leading zeros.
    whole: &'a str,
    /// Digits after the decimal point.
    fraction: &'a str,
    /// Whether the number has any digit.
    digits: bool,
    suffix: &'a str,
}

/// The factor of a suffix.
enum Unit {
    Ten { exponent: i32, format: Format },
    Two { exponent: u32 },
}

/// Maximum number of decimal digits in upstream's fast path, which accepts different texts than its slow path.
const SHORT_DIGITS: usize = 18;

pub(super) fn parse(text: &str) -> Result<ParsedQuantity, Error> {
    if text.is_empty() {
        return Err(Error::Format);
    }
    let parts = split(text)?;
    let unit = interpret(parts.suffix)?;
    let short = is_short(&parts, &unit);
    if !parts.digits && !short {
        return Err(Error::Numeric);
    }
    let quantity = match unit {
        Unit::Ten { exponent, format } => decimal(&parts, exponent, format)?,
        Unit::Two { exponent } => binary(&parts, exponent)?,
    };
    Ok(ParsedQuantity { quantity, keeps_text: text == "0" || short && looks_canonical(&parts, &unit) })
}

fn split(text: &str) -> Result<Parts<'_>, Error> {
    let (negative, unsigned) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, rest) = take(unsigned, |c| c.is_ascii_digit());
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => take(rest, |c| c.is_ascii_digit()),
        None => ("", rest),
    };
    let (_, rest) = take(suffix, |c| b"eEinumkKMGTP".contains(&c));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    if !take(rest, |c| c.is_ascii_digit()).1.is_empty() {
        return Err(Error::Format);
    }
    let digits = !whole.is_empty() || !fraction.is_empty();
    Ok(Parts { negative, whole: whole.trim_start_matches('0'), fraction, digits, suffix })
}

/// Splits after the leading ASCII bytes for which `predicate` returns true.
fn take(text: &str, predicate: impl Fn(u8) -> bool) -> (&str, &str) {
    let end = text.bytes().position(|byte| !predicate(byte)).unwrap_or(text.len());
    text.split_at(end)
}

fn interpret(suffix: &str) -> Result<Unit, Error> {
    if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(known, _)| *known == suffix) {
        return Ok(Unit::Ten { exponent: *exponent, format: Format::DecimalSI });
    }
    if let Some(exponent) =
        (0..).step_by(10).zip(BINARY_SUFFIXES).find_map(|(at, known)| (known == suffix).then_some(at))
    {
        return Ok(Unit::Two { exponent });
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(Error::Suffix)?;
    let exponent: i64 = exponent.parse().map_err(|_| Error::Suffix)?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "upstream keeps the low 32 bits, and stored objects were read in this way"
    )]
    Ok(Unit::Ten { exponent: exponent as i32, format: Format::DecimalExponent })
}

fn is_short(parts: &Parts<'_>, unit: &Unit) -> bool {
    let digits = parts.whole.len().max(1) + parts.fraction.len();
    match unit {
        Unit::Ten { exponent, .. } => {
            digits <= SHORT_DIGITS && i64::from(*exponent) - parts.fraction.len() as i64 >= NANO.into()
        }
        Unit::Two { exponent } => parts.fraction.is_empty() && digits + (*exponent as usize) * 3 / 10 < 15,
    }
}

fn looks_canonical(parts: &Parts<'_>, unit: &Unit) -> bool {
    match unit {
        Unit::Ten { exponent, .. } => {
            let ends_in_thousands = {
                let mut last = parts.whole.bytes().chain(parts.fraction.bytes()).rev();
                (0..3).all(|_| last.next() == Some(b'0'))
            };
            let scale = i64::from(*exponent) - parts.fraction.len() as i64;
            !parts.whole.is_empty() && scale % 3 == 0 && !ends_in_thousands
        }
        // The low three bits of the number as written: upstream's heuristic for "no larger suffix fits".
        Unit::Two { .. } => parts.whole.parse().is_ok_and(|whole: u64| whole & 7 != 0),
    }
}

fn decimal(parts: &Parts<'_>, exponent: i32, format: Format) -> Result<Quantity, Error> {
    let digits: Vec<u8> = parts.whole.bytes().chain(parts.fraction.bytes()).map(|digit| digit - b'0').collect();
    let exponent = i64::from(exponent) - parts.fraction.len() as i64;
    let (size, exponent) = round_up(&digits, exponent)?;
    Ok(Quantity::rounded(parts.negative, size, exponent, format))
}

fn binary(parts: &Parts<'_>, exponent: u32) -> Result<Quantity, Error> {
    let mut digits: Vec<u8> = parts.whole.bytes().chain(parts.fraction.bytes()).map(|digit| digit - b'0').collect();
    double(&mut digits, exponent);
    let leading = digits.iter().take_while(|digit| **digit == 0).count();
    let limit = Quantity::new(i64::MAX, Format::BinarySI);
    let quantity = if digits.len() - leading > parts.fraction.len() + 19 {
        // More than 19 digits before the decimal point always exceed 2^63.
        limit
    } else {
        let (size, exponent) = round_up(&digits, -(parts.fraction.len() as i64))?;
        Quantity::rounded(false, size, exponent, Format::BinarySI).min(limit)
    };
    let small = quantity < Quantity::new(1, Format::BinarySI) && !quantity.is_zero();
    let signed = if parts.negative { quantity.neg() } else { quantity };
    Ok(signed.with_format(if small { Format::DecimalSI } else { Format::BinarySI }))
}

/// Multiplies a decimal number, most significant digit first, by 2^`times`, at most 2^60.
fn double(digits: &mut Vec<u8>, times: u32) {
    let mut carry = 0_u64;
    for digit in digits.iter_mut().rev() {
        // At most 9 × 2^60 + 2^60 + 1, which fits `u64`.
        let product = (u64::from(*digit) << times) + carry;
        *digit = (product % 10) as u8;
        carry = product / 10;
    }
    let mut lead = Vec::new();
    while carry > 0 {
        lead.push((carry % 10) as u8);
        carry /= 10;
    }
    lead.reverse();
    digits.splice(0..0, lead);
}

/// Returns `digits` × 10^`exponent`; digits below nano are rounded up.
// DEVIATION: more than 36 significant digits are rejected; upstream accepts any number of digits.
fn round_up(digits: &[u8], exponent: i64) -> Result<(u128, i64), Error> {
    let leading = digits.iter().take_while(|digit| **digit == 0).count();
    let digits = &digits[leading..];
    let fine = usize::try_from(i64::from(NANO) - exponent).unwrap_or(0).min(digits.len());
    let (mut retained, dropped) = digits.split_at(digits.len() - fine);
    let mut exponent = if dropped.len() == digits.len() { i64::from(NANO) } else { exponent + fine as i64 };
    while let [rest @ .., 0] = retained {
        retained = rest;
        exponent += 1;
    }
    let up = dropped.iter().any(|digit| *digit != 0);
    if up && exponent > NANO.into() {
        // The zeros just removed are between the last digit and the rounded one.
        let zeros = usize::try_from(exponent - i64::from(NANO)).map_err(|_| Error::Numeric)?;
        retained = &digits[..retained.len() + zeros];
        exponent = NANO.into();
    }
    if retained.len() > MANTISSA_END.ilog10() as usize {
        return Err(Error::Numeric);
    }
    let size = retained.iter().fold(0, |size, digit| size * 10 + u128::from(*digit));
    Ok((size + u128::from(up), exponent))
}
