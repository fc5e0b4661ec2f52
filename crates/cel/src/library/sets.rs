//! Sets library: lists treated as sets.

use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::{List, Val};

type Result<T> = std::result::Result<T, Failure>;

pub(super) const ROWS: &[Row] = &[
    row("sets.contains(list<T>, list<T>) -> bool", Cost::Product(1), contains),
    row("sets.equivalent(list<T>, list<T>) -> bool", Cost::Product(2), equivalent),
    row("sets.intersects(list<T>, list<T>) -> bool", Cost::Product(1), intersects),
];

fn has<'a>(args: Args<'_, 'a>, list: &List<'a>, needle: &Val<'a>) -> Result<bool> {
    for item in list.iter() {
        if item?.equals(needle, args.meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_all<'a>(args: Args<'_, 'a>, outer: &List<'a>, inner: &List<'a>) -> Result<bool> {
    for item in inner.iter() {
        args.meter.work(outer.len())?;
        if !has(args, outer, &item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn contains<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    has_all(args, args.list(0)?, args.list(1)?).map(Val::Bool)
}

fn equivalent<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let (a, b) = (args.list(0)?, args.list(1)?);
    Ok(Val::Bool(has_all(args, a, b)? && has_all(args, b, a)?))
}

fn intersects<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let (a, b) = (args.list(0)?, args.list(1)?);
    for item in b.iter() {
        args.meter.work(a.len())?;
        if has(args, a, &item?)? {
            return Ok(Val::Bool(true));
        }
    }
    Ok(Val::Bool(false))
}
