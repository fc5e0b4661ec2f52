//! Quantity library: resource quantities such as `500m`, `1.5Gi`.

use std::cmp::Ordering;
use std::sync::Arc;

use apimachinery::quantity::{Format, Quantity};

use super::opaque::Opaque;
use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

pub const ROWS: &[Row] = &[
    row("quantity(string) -> Quantity", Cost::Scan, quantity),
    row("isQuantity(string) -> bool", Cost::Scan, is_quantity),
    row("Quantity.sign() -> int", Cost::Unit, |args| Ok(Val::Int(sign(*receiver(args)?)))),
    row("Quantity.isInteger() -> bool", Cost::Unit, |args| Ok(Val::Bool(receiver(args)?.as_i64().is_some()))),
    row("Quantity.asInteger() -> int", Cost::Unit, as_integer),
    row("Quantity.asApproximateFloat() -> double", Cost::Unit, |args| Ok(Val::Double(receiver(args)?.as_f64()))),
    row("Quantity.add(Quantity) -> Quantity", Cost::Unit, |args| combine(args, Quantity::add)),
    row("Quantity.add(int) -> Quantity", Cost::Unit, |args| combine(args, Quantity::add)),
    row("Quantity.sub(Quantity) -> Quantity", Cost::Unit, |args| combine(args, Quantity::sub)),
    row("Quantity.sub(int) -> Quantity", Cost::Unit, |args| combine(args, Quantity::sub)),
    row("Quantity.isLessThan(Quantity) -> bool", Cost::Unit, |args| Ok(Val::Bool(order(args)? == Ordering::Less))),
    row("Quantity.isGreaterThan(Quantity) -> bool", Cost::Unit, |args| {
        Ok(Val::Bool(order(args)? == Ordering::Greater))
    }),
    row("Quantity.compareTo(Quantity) -> int", Cost::Unit, |args| Ok(Val::Int(order(args)? as i64))),
];

fn quantity<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    match parse(args.str(0)?) {
        Ok(quantity) => Ok(Val::Opaque(Opaque::Quantity(Arc::new(quantity)))),
        Err(error) => Err(Failure::message(error.to_string())),
    }
}

/// Maximum number of significant digits of a stored quantity; expressions may contain more.
const DIGITS_MAX: usize = 36;

// DEVIATION: digits beyond the 36th significant one count as zeros; upstream keeps any number of digits.
fn parse(text: &str) -> std::result::Result<Quantity, apimachinery::quantity::Error> {
    text.parse::<Quantity>().or_else(|error| {
        let (mut seen, mut number) = (0, true);
        let cut: String = text
            .chars()
            .map(|c| {
                number &= c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
                seen += usize::from(number && c.is_ascii_digit() && (seen > 0 || c != '0'));
                if number && c.is_ascii_digit() && seen > DIGITS_MAX { '0' } else { c }
            })
            .collect();
        if seen > DIGITS_MAX { cut.parse() } else { Err(error) }
    })
}

fn is_quantity<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::Bool(parse(args.str(0)?).is_ok()))
}

fn receiver<'c>(args: Args<'c, '_>) -> Result<&'c Quantity> {
    operand(&args.args[0])
}

fn operand<'c>(value: &'c Val<'_>) -> Result<&'c Quantity> {
    match value {
        Val::Opaque(Opaque::Quantity(quantity)) => Ok(quantity),
        _ => Err(Failure::no_overload()),
    }
}

fn sign(quantity: Quantity) -> i64 {
    if quantity.is_zero() {
        0
    } else if quantity.is_negative() {
        -1
    } else {
        1
    }
}

fn as_integer<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    receiver(args)?.as_i64().map(Val::Int).ok_or_else(|| Failure::message("cannot convert value to integer"))
}

fn combine<'a>(args: Args<'_, 'a>, how: fn(Quantity, Quantity) -> Quantity) -> Result<Val<'a>> {
    let other = match &args.args[1] {
        Val::Int(int) => Quantity::new(*int, Format::DecimalSI),
        other => *operand(other)?,
    };
    Ok(Val::Opaque(Opaque::Quantity(Arc::new(how(*receiver(args)?, other)))))
}

fn order(args: Args<'_, '_>) -> Result<Ordering> {
    Ok(receiver(args)?.cmp(operand(&args.args[1])?))
}
