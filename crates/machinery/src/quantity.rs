//! Resource quantities: exact decimal numbers with the suffixes of Kubernetes, such as `100m`, `1.5Gi` or `1e3`.
//!
//! A quantity remembers which of three notations it was written in and prints itself in the canonical form of that
//! notation: no fraction, the largest suffix that loses nothing.
//!
//! Upstream keeps the text as it was written where a quick look says that it is canonical, and that look is not
//! thorough: `1.500`, `+1` and `007` are stored and served as they came, while `1.5Gi` becomes `1536Mi` and `1000m`
//! becomes `1`. Clients see what is stored, so [`canonical`] does the same.

mod parse;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::{Value, json};

/// An exact amount and the notation it prints in.
///
/// Two quantities are equal if their amounts are, whatever their notation: `1Ki` equals `1024`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    /// Never a multiple of ten, except zero, and smaller than [`MANTISSA_END`].
    mantissa: i128,
    /// The power of ten that the mantissa is multiplied by: from -9 (nano) up.
    exponent: i32,
    format: Format,
}

/// The notation of a quantity.
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

/// Why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It does not look like one.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// Its number is none, or has too many digits.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// Its suffix is none of the known ones.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// 10^36: two digits fewer than `i128` holds, so that a mantissa can always be shifted to an exponent divisible by 3.
const MANTISSA_END: u128 = 10_u128.pow(36);

/// The finest power of ten that is told apart.
const NANO: i32 = -9;

const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The text that Kubernetes stores for a quantity written as `text`: see the module's documentation for when that is
/// the same text.
///
/// ```
/// use machinery::quantity::canonical;
/// assert_eq!(canonical("1.5Gi").unwrap(), "1536Mi");
/// assert_eq!(canonical("0.1").unwrap(), "100m");
/// assert_eq!(canonical("1.500").unwrap(), "1.500");
/// ```
pub fn canonical(text: &str) -> Result<Cow<'_, str>, Error> {
    let text = text.trim();
    let parsed = parse::parse(text)?;
    Ok(if parsed.keeps_text { text.into() } else { parsed.quantity.to_string().into() })
}

/// What [`canonical`] gives for a quantity in JSON, which may be a number, and `null` for zero. `None` for any other
/// value, which is no quantity at all.
// DEVIATION: a number such as 1e3 has lost its notation here and is kept as 1k, where upstream keeps the digits sent.
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
    /// Nothing.
    pub const ZERO: Self = Self { mantissa: 0, exponent: 0, format: Format::DecimalSI };

    /// A whole number.
    pub fn new(value: i64, format: Format) -> Self {
        Self::scaled(value, 0, format)
    }

    /// A number of thousandths.
    pub fn milli(value: i64, format: Format) -> Self {
        Self::scaled(value, -3, format)
    }

    /// `value` × 10^`exponent`; what is finer than nano is rounded away from zero.
    pub fn scaled(value: i64, exponent: i32, format: Format) -> Self {
        Self::rounded(value < 0, value.unsigned_abs().into(), exponent.into(), format)
    }

    /// The notation it prints in.
    pub const fn format(self) -> Format {
        self.format
    }

    /// The same amount in another notation.
    pub const fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// Whether it is nothing.
    pub const fn is_zero(self) -> bool {
        self.mantissa == 0
    }

    /// Whether it is less than nothing.
    pub const fn is_negative(self) -> bool {
        self.mantissa < 0
    }

    /// The amount as a whole number, rounded away from zero, at most what `i64` holds.
    pub fn value(self) -> i64 {
        self.scaled_value(0)
    }

    /// The amount in thousandths, rounded away from zero, at most what `i64` holds.
    pub fn milli_value(self) -> i64 {
        self.scaled_value(-3)
    }

    /// The amount in units of 10^`exponent`, rounded away from zero, at most what `i64` holds.
    // DEVIATION: upstream leaves undefined what an amount beyond 64 bits gives; here it is the nearest end of the range.
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

    /// The amount as a whole number if it is one and fits `i64`.
    pub fn as_i64(self) -> Option<i64> {
        let whole = Self::new(self.value(), self.format);
        (whole == self).then(|| self.value())
    }

    /// The amount as a float, as near as one gets.
    pub fn as_f64(self) -> f64 {
        // The standard parser rounds once, where a multiplication by a power of ten would round twice.
        format!("{}e{}", self.mantissa, self.exponent).parse().expect("an integer with an exponent is a float")
    }

    /// The sum, in the notation of `self`, or of `other` if `self` is nothing.
    ///
    /// Sums are exact as long as they have at most 36 significant digits; beyond that they are rounded away from zero.
    // DEVIATION: upstream's sums have any number of digits.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "the notation follows the left side: not what `+` promises")]
    pub fn add(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        let (high, low) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        if high.is_zero() || low.is_zero() {
            let sum = if high.is_zero() { low } else { high };
            return sum.with_format(format);
        }
        // The coarser amount goes down as far as it fits, the finer one comes up the rest of the way. If that loses
        // digits, the coarser amount is the larger by far and alone decides the sign.
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

    /// The difference, by the same rules as [`Quantity::add`].
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "the notation follows the left side: not what `-` promises")]
    pub fn sub(self, other: Self) -> Self {
        self.add(other.neg())
    }

    /// The amount with the other sign.
    #[must_use]
    pub const fn neg(self) -> Self {
        Self { mantissa: -self.mantissa, ..self }
    }

    /// The amount times `factor`, rounded away from zero beyond 36 significant digits.
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

    /// Brings any amount into the form that the fields promise.
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

    /// Mantissa and index of the suffix, if the amount is one that binary notation shows: whole and not small.
    fn canonical_binary(self) -> Option<(i128, usize)> {
        if self.exponent < 0 || self.exponent > 38 {
            return None;
        }
        let mut whole = self.mantissa.checked_mul(10_i128.checked_pow(self.exponent.unsigned_abs())?)?;
        if whole.unsigned_abs() < 1024 {
            return None;
        }
        let mut suffix = 0;
        // There is no suffix beyond Ei; upstream goes on dividing and prints none.
        while whole % 1024 == 0 && suffix < BINARY_SUFFIXES.len() - 1 {
            whole /= 1024;
            suffix += 1;
        }
        Some((whole, suffix))
    }
}

/// `size` × 10^`shift`, rounded up. `None` on overflow.
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
            // Of equal magnitude, so the one with the higher exponent has the fewer digits and can be shifted.
            let base = self.exponent.min(other.exponent);
            let digits = |it: &Self| shifted(it.mantissa.unsigned_abs(), i64::from(it.exponent) - i64::from(base));
            digits(self).cmp(&digits(other))
        });
        if self.is_negative() { order.reverse() } else { order }
    }
}

/// The power of ten of the leading digit.
fn magnitude(quantity: Quantity) -> i64 {
    i64::from(quantity.mantissa.unsigned_abs().ilog10()) + i64::from(quantity.exponent)
}

#[cfg(test)]
mod tests;
