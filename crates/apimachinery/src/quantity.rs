//! Resource quantities: exact decimal numbers with the suffixes of Kubernetes, such as `100m`, `1.5Gi` or `1e3`.
//!
//! A quantity keeps the notation it was written in, one of three, and prints the canonical form of that notation: no
//! fraction, the largest suffix that loses nothing.
//!
//! Upstream keeps the original text if a quick check finds it canonical, and that check is incomplete: `1.500`, `+1`
//! and `007` are stored and returned unchanged, while `1.5Gi` becomes `1536Mi` and `1000m` becomes `1`. Clients see the
//! stored text, so [`canonical`] does the same.

mod parse;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::{Value, json};

/// An exact amount and its notation.
///
/// Quantities compare by amount, regardless of notation: `1Ki` equals `1024`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    /// Never a multiple of ten, except zero, and smaller than [`MANTISSA_END`].
    mantissa: i128,
    /// The power of ten by which the mantissa is multiplied; at least -9 (nano).
    exponent: i32,
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`: 12 × 2^20
    BinarySI,
    /// `12M`: 12 × 10^6
    #[default]
    DecimalSI,
}

/// The text is not a valid quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number is invalid or has too many digits.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// 10^36: two digits fewer than `i128` holds, so that a mantissa can always be shifted to an exponent divisible by 3.
const MANTISSA_END: u128 = 10_u128.pow(36);

/// The smallest supported power of ten.
const NANO: i32 = -9;

const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Returns the text that Kubernetes stores for the quantity `text`. The module documentation explains when the text is
/// unchanged.
///
/// ```
/// use apimachinery::quantity::canonical;
/// assert_eq!(canonical("1.5Gi").unwrap(), "1536Mi");
/// assert_eq!(canonical("0.1").unwrap(), "100m");
/// assert_eq!(canonical("1.500").unwrap(), "1.500");
/// ```
pub fn canonical(text: &str) -> Result<Cow<'_, str>, Error> {
    let text = text.trim();
    let parsed = parse::parse(text)?;
    Ok(if parsed.keeps_text { text.into() } else { parsed.quantity.to_string().into() })
}

/// Returns [`canonical`] of a quantity in JSON, which may be a number, or `null` for zero. `None` for any other type of
/// value.
// DEVIATION: a number such as 1e3 has lost its notation here and is stored as 1k; upstream keeps the original digits.
pub fn canonical_value(value: &Value) -> Option<Result<Cow<'_, str>, Error>> {
    let owned = |text: String| canonical(&text).map(|text| text.into_owned().into());
    match value {
        Value::Null => Some(Ok("0".into())),
        Value::Int(int) => Some(owned(int.to_string())),
        Value::Float(float) => Some(owned(json::format_float(*float).to_string())),
        Value::String(text) => Some(canonical(text)),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

impl Quantity {
    pub const ZERO: Self = Self { mantissa: 0, exponent: 0, format: Format::DecimalSI };

    /// Returns a whole number.
    pub fn new(value: i64, format: Format) -> Self {
        Self::scaled(value, 0, format)
    }

    /// Returns a number of thousandths.
    pub fn milli(value: i64, format: Format) -> Self {
        Self::scaled(value, -3, format)
    }

    /// Returns `value` × 10^`exponent`; digits below nano are rounded away from zero.
    pub fn scaled(value: i64, exponent: i32, format: Format) -> Self {
        Self::rounded(value < 0, value.unsigned_abs().into(), exponent.into(), format)
    }

    pub const fn format(self) -> Format {
        self.format
    }

    /// Returns the same amount in another notation.
    pub const fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    pub const fn is_zero(self) -> bool {
        self.mantissa == 0
    }

    pub const fn is_negative(self) -> bool {
        self.mantissa < 0
    }

    /// Returns the amount as a whole number, rounded away from zero and saturated to `i64`.
    pub fn value(self) -> i64 {
        self.scaled_value(0)
    }

    /// Returns the amount in thousandths, rounded away from zero and saturated to `i64`.
    pub fn milli_value(self) -> i64 {
        self.scaled_value(-3)
    }

    /// Returns the amount in units of 10^`exponent`, rounded away from zero and saturated to `i64`.
    // DEVIATION: an amount beyond 64 bits saturates; in upstream the result is undefined.
    pub fn scaled_value(self, exponent: i32) -> i64 {
        let shift = i64::from(self.exponent) - i64::from(exponent);
        let size = shifted(self.mantissa.unsigned_abs(), shift).unwrap_or(u128::MAX);
        match (i64::try_from(size), self.mantissa < 0) {
            (Ok(size), true) => -size,
            (Ok(size), false) => size,
            (Err(_), true) => i64::MIN,
            (Err(_), false) => i64::MAX,
        }
    }

    /// Returns the amount as an integer if it is whole and fits `i64`.
    pub fn as_i64(self) -> Option<i64> {
        let whole = Self::new(self.value(), self.format);
        (whole == self).then(|| self.value())
    }

    /// Returns the nearest float.
    pub fn as_f64(self) -> f64 {
        // The standard parser rounds once, whereas a multiplication by a power of ten would round twice.
        format!("{}e{}", self.mantissa, self.exponent).parse().expect("an integer with an exponent is a float")
    }

    /// Returns the sum in the notation of `self`, or of `other` if `self` is zero.
    ///
    /// Sums are exact up to 36 significant digits; beyond that they are rounded away from zero.
    // DEVIATION: upstream's sums have unlimited digits.
    #[must_use]
    #[expect(
        clippy::should_implement_trait,
        reason = "the result has the notation of the left side, so `+` would be misleading"
    )]
    pub fn add(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        let (high, low) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        if high.is_zero() || low.is_zero() {
            let sum = if high.is_zero() { low } else { high };
            return sum.with_format(format);
        }
        // The coarser amount is scaled down as far as it fits, then the finer one is scaled up. If that loses digits,
        // the coarser amount is larger by far and alone determines the sign.
        let mut exponent = high.exponent;
        let mut big = high.mantissa;
        while exponent > low.exponent && big.unsigned_abs() < MANTISSA_END * 8 {
            big *= 10;
            exponent -= 1;
        }
        let lift = i64::from(low.exponent) - i64::from(exponent);
        let small = shifted(low.mantissa.unsigned_abs(), lift).unwrap_or(0).cast_signed() * low.mantissa.signum();
        let sum = big + small;
        Self::rounded(sum < 0, sum.unsigned_abs(), exponent.into(), format)
    }

    /// Returns the difference, with the rules of [`Quantity::add`].
    #[must_use]
    #[expect(
        clippy::should_implement_trait,
        reason = "the result has the notation of the left side, so `-` would be misleading"
    )]
    pub fn sub(self, other: Self) -> Self {
        self.add(other.neg())
    }

    /// Returns the negated amount.
    #[must_use]
    pub const fn neg(self) -> Self {
        Self { mantissa: -self.mantissa, ..self }
    }

    /// Returns the amount times `factor`, rounded away from zero beyond 36 significant digits.
    #[must_use]
    pub fn times(self, factor: i64) -> Self {
        let negative = (self.mantissa < 0) != (factor < 0);
        let (mut size, mut exponent) = (self.mantissa.unsigned_abs(), i64::from(self.exponent));
        loop {
            if let Some(product) = size.checked_mul(factor.unsigned_abs().into()) {
                return Self::rounded(negative, product, exponent, self.format);
            }
            size = size.div_ceil(10);
            exponent += 1;
        }
    }

    /// Rounds away from zero to a multiple of 10^`exponent`.
    #[must_use]
    pub fn round_up(self, exponent: i32) -> Self {
        if self.exponent >= exponent {
            return self;
        }
        let lift = i64::from(self.exponent) - i64::from(exponent);
        let size = shifted(self.mantissa.unsigned_abs(), lift).expect("dropping digits cannot overflow");
        Self::rounded(self.mantissa < 0, size, exponent.into(), self.format)
    }

    /// Normalizes an amount to the invariants of the fields.
    fn rounded(negative: bool, mut size: u128, mut exponent: i64, format: Format) -> Self {
        if exponent < NANO.into() {
            size = shifted(size, exponent - i64::from(NANO)).expect("dropping digits cannot overflow");
            exponent = NANO.into();
        }
        while size >= MANTISSA_END {
            size = size.div_ceil(10);
            exponent += 1;
        }
        while size != 0 && size.is_multiple_of(10) {
            size /= 10;
            exponent += 1;
        }
        if size == 0 {
            exponent = 0;
        }
        let mantissa = if negative { -size.cast_signed() } else { size.cast_signed() };
        let exponent = i32::try_from(exponent).unwrap_or(i32::MAX);
        Self { mantissa, exponent, format }
    }

    fn canonical_decimal(self) -> (i128, i32) {
        let over = self.exponent.rem_euclid(3);
        (self.mantissa * 10_i128.pow(over.unsigned_abs()), self.exponent - over)
    }

    /// Returns mantissa and suffix index for binary notation; [`None`] if the amount is fractional or below 1024.
    fn canonical_binary(self) -> Option<(i128, usize)> {
        if self.exponent < 0 || self.exponent > 38 {
            return None;
        }
        let mut whole = self.mantissa.checked_mul(10_i128.checked_pow(self.exponent.unsigned_abs())?)?;
        if whole.unsigned_abs() < 1024 {
            return None;
        }
        let mut suffix = 0;
        // Ei is the largest suffix; upstream continues to divide and prints none.
        while whole % 1024 == 0 && suffix < BINARY_SUFFIXES.len() - 1 {
            whole /= 1024;
            suffix += 1;
        }
        Some((whole, suffix))
    }
}

/// Returns `size` × 10^`shift`, rounded up. `None` on overflow.
fn shifted(size: u128, shift: i64) -> Option<u128> {
    let factor = u32::try_from(shift.unsigned_abs()).ok().and_then(|shift| 10_u128.checked_pow(shift));
    match (factor, shift < 0) {
        _ if size == 0 => Some(0),
        (Some(factor), true) => Some(size.div_ceil(factor)),
        (None, true) => Some(1),
        (Some(factor), false) => size.checked_mul(factor),
        (None, false) => None,
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return out.write_str("0");
        }
        if self.format == Format::BinarySI
            && let Some((number, suffix)) = self.canonical_binary()
        {
            return write!(out, "{number}{}", BINARY_SUFFIXES[suffix]);
        }
        let (number, exponent) = self.canonical_decimal();
        let suffix = DECIMAL_SUFFIXES.iter().find(|(_, of)| *of == exponent);
        match suffix {
            Some((suffix, _)) if self.format != Format::DecimalExponent => write!(out, "{number}{suffix}"),
            _ if exponent == 0 => write!(out, "{number}"),
            _ => write!(out, "{number}e{exponent}"),
        }
    }
}

impl FromStr for Quantity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse::parse(text).map(|parsed| parsed.quantity)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        (self.mantissa, self.exponent) == (other.mantissa, other.exponent)
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs.is_ne() || self.is_zero() {
            return signs;
        }
        let order = magnitude(*self).cmp(&magnitude(*other)).then_with(|| {
            // The magnitudes are equal, so the amount with the higher exponent has fewer digits and can be shifted.
            let base = self.exponent.min(other.exponent);
            let digits = |it: &Self| shifted(it.mantissa.unsigned_abs(), i64::from(it.exponent) - i64::from(base));
            digits(self).cmp(&digits(other))
        });
        if self.is_negative() { order.reverse() } else { order }
    }
}

/// Returns the power of ten of the leading digit.
fn magnitude(quantity: Quantity) -> i64 {
    i64::from(quantity.mantissa.unsigned_abs().ilog10()) + i64::from(quantity.exponent)
}

#[cfg(test)]
mod tests;
