//! Math library: rounding, extremes and bit operations.

use std::cmp::Ordering;

use super::operators::int_overflow;
use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

macro_rules! extremes {
    ($name:literal, $function:ident) => {
        [
            row(concat!("math.", $name, "(int) -> int"), Cost::Unit, $function),
            row(concat!("math.", $name, "(uint) -> uint"), Cost::Unit, $function),
            row(concat!("math.", $name, "(double) -> double"), Cost::Unit, $function),
            row(concat!("math.", $name, "(int, int) -> int"), Cost::Unit, $function),
            row(concat!("math.", $name, "(uint, uint) -> uint"), Cost::Unit, $function),
            row(concat!("math.", $name, "(double, double) -> double"), Cost::Unit, $function),
            row(concat!("math.", $name, "(int, uint) -> dyn"), Cost::Unit, $function),
            row(concat!("math.", $name, "(int, double) -> dyn"), Cost::Unit, $function),
            row(concat!("math.", $name, "(uint, int) -> dyn"), Cost::Unit, $function),
            row(concat!("math.", $name, "(uint, double) -> dyn"), Cost::Unit, $function),
            row(concat!("math.", $name, "(double, int) -> dyn"), Cost::Unit, $function),
            row(concat!("math.", $name, "(double, uint) -> dyn"), Cost::Unit, $function),
            row(concat!("math.", $name, "(list<int>) -> int"), Cost::Unit, $function),
            row(concat!("math.", $name, "(list<uint>) -> uint"), Cost::Unit, $function),
            row(concat!("math.", $name, "(list<double>) -> double"), Cost::Unit, $function),
        ]
    };
}

const GREATEST: [Row; 15] = extremes!("greatest", greatest);
const LEAST: [Row; 15] = extremes!("least", least);

const OTHERS: [Row; 26] = [
    row("math.ceil(double) -> double", Cost::Unit, |args| round(args, f64::ceil)),
    row("math.floor(double) -> double", Cost::Unit, |args| round(args, f64::floor)),
    row("math.round(double) -> double", Cost::Unit, |args| round(args, f64::round)),
    row("math.trunc(double) -> double", Cost::Unit, |args| round(args, f64::trunc)),
    row("math.abs(int) -> int", Cost::Unit, abs),
    row("math.abs(uint) -> uint", Cost::Unit, abs),
    row("math.abs(double) -> double", Cost::Unit, abs),
    row("math.sign(int) -> int", Cost::Unit, sign),
    row("math.sign(uint) -> uint", Cost::Unit, sign),
    row("math.sign(double) -> double", Cost::Unit, sign),
    row("math.isNaN(double) -> bool", Cost::Unit, |args| test(args, f64::is_nan)),
    row("math.isInf(double) -> bool", Cost::Unit, |args| test(args, f64::is_infinite)),
    row("math.isFinite(double) -> bool", Cost::Unit, |args| test(args, f64::is_finite)),
    row("math.sqrt(int) -> double", Cost::Unit, sqrt),
    row("math.sqrt(uint) -> double", Cost::Unit, sqrt),
    row("math.sqrt(double) -> double", Cost::Unit, sqrt),
    row("math.bitAnd(int, int) -> int", Cost::Unit, |args| bits(args, |a, b| a & b)),
    row("math.bitAnd(uint, uint) -> uint", Cost::Unit, |args| bits(args, |a, b| a & b)),
    row("math.bitOr(int, int) -> int", Cost::Unit, |args| bits(args, |a, b| a | b)),
    row("math.bitOr(uint, uint) -> uint", Cost::Unit, |args| bits(args, |a, b| a | b)),
    row("math.bitXor(int, int) -> int", Cost::Unit, |args| bits(args, |a, b| a ^ b)),
    row("math.bitXor(uint, uint) -> uint", Cost::Unit, |args| bits(args, |a, b| a ^ b)),
    row("math.bitNot(int) -> int", Cost::Unit, bit_not),
    row("math.bitNot(uint) -> uint", Cost::Unit, bit_not),
    row("math.bitShiftLeft(int, int) -> int", Cost::Unit, |args| shift(args, u64::checked_shl)),
    row("math.bitShiftRight(int, int) -> int", Cost::Unit, |args| shift(args, u64::checked_shr)),
];

const SHIFTS: [Row; 2] = [
    row("math.bitShiftLeft(uint, int) -> uint", Cost::Unit, |args| shift(args, u64::checked_shl)),
    row("math.bitShiftRight(uint, int) -> uint", Cost::Unit, |args| shift(args, u64::checked_shr)),
];

pub(super) const ROWS: &[Row] = &{
    let mut rows = [OTHERS[0]; 58];
    let mut at = 0;
    while at < 58 {
        rows[at] = match at {
            0..15 => GREATEST[at],
            15..30 => LEAST[at - 15],
            30..56 => OTHERS[at - 30],
            _ => SHIFTS[at - 56],
        };
        at += 1;
    }
    rows
};

fn greatest<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    extreme(args, Ordering::Greater)
}

fn least<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    extreme(args, Ordering::Less)
}

fn extreme<'a>(args: Args<'_, 'a>, ordering: Ordering) -> Result<Val<'a>> {
    let items = match args.args {
        [Val::List(list)] => {
            args.meter.work(list.len())?;
            list.to_vec()?
        }
        items => items.to_vec(),
    };
    let mut items = items.into_iter();
    let mut best = items.next().ok_or_else(|| Failure::message("math function called on empty list"))?;
    for item in items {
        if item.order(&best).ok_or_else(Failure::no_overload)? == ordering {
            best = item;
        }
    }
    match best {
        Val::Int(_) | Val::Uint(_) | Val::Double(_) => Ok(best),
        _ => Err(Failure::no_overload()),
    }
}

fn double(args: Args<'_, '_>) -> Result<f64> {
    match args.args {
        [Val::Double(double)] => Ok(*double),
        _ => Err(Failure::no_overload()),
    }
}

fn round<'a>(args: Args<'_, 'a>, how: fn(f64) -> f64) -> Result<Val<'a>> {
    double(args).map(|double| Val::Double(how(double)))
}

fn test<'a>(args: Args<'_, 'a>, what: fn(f64) -> bool) -> Result<Val<'a>> {
    double(args).map(|double| Val::Bool(what(double)))
}

fn abs<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(match args.args {
        [Val::Int(int)] => Val::Int(int.checked_abs().ok_or_else(int_overflow)?),
        [Val::Uint(uint)] => Val::Uint(*uint),
        _ => Val::Double(double(args)?.abs()),
    })
}

fn sign<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(match args.args {
        [Val::Int(int)] => Val::Int(int.signum()),
        [Val::Uint(uint)] => Val::Uint(u64::from(*uint > 0)),
        _ => match double(args)? {
            double if double.is_nan() || double == 0.0 => Val::Double(double),
            double => Val::Double(double.signum()),
        },
    })
}

fn sqrt<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::Double(match args.args {
        [Val::Int(int)] => (*int as f64).sqrt(),
        [Val::Uint(uint)] => (*uint as f64).sqrt(),
        _ => double(args)?.sqrt(),
    }))
}

fn bits<'a>(args: Args<'_, 'a>, how: fn(u64, u64) -> u64) -> Result<Val<'a>> {
    match args.args {
        [Val::Int(a), Val::Int(b)] => Ok(Val::Int(how(a.cast_unsigned(), b.cast_unsigned()).cast_signed())),
        [Val::Uint(a), Val::Uint(b)] => Ok(Val::Uint(how(*a, *b))),
        _ => Err(Failure::no_overload()),
    }
}

fn bit_not<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    match args.args {
        [Val::Int(int)] => Ok(Val::Int(!int)),
        [Val::Uint(uint)] => Ok(Val::Uint(!uint)),
        _ => Err(Failure::no_overload()),
    }
}

/// Shifts logically: the sign bit is treated like any other bit.
fn shift<'a>(args: Args<'_, 'a>, how: fn(u64, u32) -> Option<u64>) -> Result<Val<'a>> {
    let by = args.int(1)?;
    let Ok(by) = u32::try_from(by) else {
        return Err(if by < 0 {
            Failure::message(format!("math.bitShift() negative offset: {by}"))
        } else {
            return shifted(&args.args[0], |_| 0);
        });
    };
    shifted(&args.args[0], |bits| how(bits, by).unwrap_or(0))
}

fn shifted<'a>(value: &Val<'a>, how: impl Fn(u64) -> u64) -> Result<Val<'a>> {
    match value {
        Val::Int(int) => Ok(Val::Int(how(int.cast_unsigned()).cast_signed())),
        Val::Uint(uint) => Ok(Val::Uint(how(*uint))),
        _ => Err(Failure::no_overload()),
    }
}
