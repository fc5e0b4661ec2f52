//! Optional library: values that may be absent.

use super::operators::optional_index;
use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

pub(super) const ROWS: &[Row] = &[
    row("optional.of(V) -> optional<V>", Cost::Unit, |args| Ok(args.args[0].clone().some())),
    row("optional.none() -> optional<V>", Cost::Unit, |_| Ok(Val::Optional(None))),
    row("optional.ofNonZeroValue(V) -> optional<V>", Cost::Unit, of_non_zero),
    row("optional.unwrap(list<optional<V>>) -> list<V>", Cost::Unit, unwrap),
    row("list<optional<V>>.unwrapOpt() -> list<V>", Cost::Unit, unwrap),
    row("optional<V>.hasValue() -> bool", Cost::Unit, has_value),
    row("optional<V>.value() -> V", Cost::Unit, value),
    row("optional<V>.or(optional<V>) -> optional<V>", Cost::Unit, or),
    row("optional<V>.orValue(V) -> V", Cost::Unit, or_value),
    row("list<V>.first() -> optional<V>", Cost::Unit, first),
    row("list<V>.last() -> optional<V>", Cost::Unit, last),
    row("_[?_](list<V>, int) -> optional<V>", Cost::Unit, index),
    row("_[?_](optional<list<V>>, int) -> optional<V>", Cost::Unit, index),
    row("_[?_](map<K, V>, K) -> optional<V>", Cost::Unit, index),
    row("_[?_](optional<map<K, V>>, K) -> optional<V>", Cost::Unit, index),
    row("_[_](optional<list<V>>, int) -> optional<V>", Cost::Unit, index),
    row("_[_](optional<map<K, V>>, K) -> optional<V>", Cost::Unit, index),
];

fn of_non_zero<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let value = &args.args[0];
    Ok(if value.is_zero() { Val::Optional(None) } else { value.clone().some() })
}

fn unwrap<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let mut values = Vec::new();
    args.meter.work(args.list(0)?.len())?;
    for item in args.list(0)?.iter() {
        match item? {
            Val::Optional(Some(inner)) => values.push((*inner).clone()),
            Val::Optional(None) => {}
            _ => return Err(Failure::no_overload()),
        }
    }
    args.meter.allocate(values.len() * size_of::<Val<'_>>())?;
    Ok(Val::list(values))
}

fn has_value<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    match args.args {
        [Val::Optional(inner)] => Ok(Val::Bool(inner.is_some())),
        _ => Err(Failure::no_overload()),
    }
}

fn value<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    match args.args {
        [Val::Optional(Some(inner))] => Ok((**inner).clone()),
        [Val::Optional(None)] => Err(Failure::message("optional.none() dereference")),
        _ => Err(Failure::no_overload()),
    }
}

fn or<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    match args.args {
        [Val::Optional(None), other @ Val::Optional(_)] => Ok(other.clone()),
        [Val::Optional(Some(_)), _] => Ok(args.args[0].clone()),
        _ => Err(Failure::no_overload()),
    }
}

fn or_value<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    match args.args {
        [Val::Optional(Some(inner)), _] => Ok((**inner).clone()),
        [Val::Optional(None), other] => Ok(other.clone()),
        _ => Err(Failure::no_overload()),
    }
}

fn first<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(args.list(0)?.get(0).transpose()?.map_or(Val::Optional(None), Val::some))
}

fn last<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let list = args.list(0)?;
    let at = list.len().checked_sub(1);
    Ok(at.and_then(|at| list.get(at)).transpose()?.map_or(Val::Optional(None), Val::some))
}

fn index<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    optional_index(&args.args[0], &args.args[1])
}
