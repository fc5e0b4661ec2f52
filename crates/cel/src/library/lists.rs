//! Lists library: Kubernetes' functions and those of cel-go's lists extension.

use std::cmp::Ordering;

use super::operators::operator;
use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

macro_rules! comparable {
    ($($type:literal),* $(,)?) => {
        [$(
            row(concat!("list<", $type, ">.isSorted() -> bool"), Cost::Traverse, is_sorted),
            row(concat!("list<", $type, ">.min() -> ", $type), Cost::Traverse, min),
            row(concat!("list<", $type, ">.max() -> ", $type), Cost::Traverse, max),
        )*]
    };
}

const COMPARABLE: [Row; 24] = comparable!["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"];

const OTHERS: [Row; 6] = [
    row("list<int>.sum() -> int", Cost::Traverse, |args| sum(args, Val::Int(0))),
    row("list<uint>.sum() -> uint", Cost::Traverse, |args| sum(args, Val::Uint(0))),
    row("list<double>.sum() -> double", Cost::Traverse, |args| sum(args, Val::Double(0.0))),
    row("list<duration>.sum() -> duration", Cost::Traverse, |args| sum(args, Val::Duration(0))),
    row("list<T>.indexOf(T) -> int", Cost::Traverse, index_of),
    row("list<T>.lastIndexOf(T) -> int", Cost::Traverse, last_index_of),
];

/// Kubernetes' functions.
pub(super) const ROWS: &[Row] = &{
    let mut rows = [OTHERS[0]; 30];
    let mut at = 0;
    while at < 30 {
        rows[at] = if at < 24 { COMPARABLE[at] } else { OTHERS[at - 24] };
        at += 1;
    }
    rows
};

/// The functions of cel-go's lists extension.
pub(super) const EXTENDED: &[Row] = &[
    row("list<T>.slice(int, int) -> list<T>", Cost::ListResult, slice),
    row("list<T>.flatten() -> list<dyn>", Cost::ListFlatten, flatten),
    row("list<T>.flatten(int) -> list<dyn>", Cost::ListFlatten, flatten),
    row("list<T>.reverse() -> list<T>", Cost::ListResult, reverse),
    row("list<T>.distinct() -> list<T>", Cost::ListSquare(0), distinct),
    row("list<T>.sort() -> list<T>", Cost::ListSquare(0), sort),
    row("list<T>.@sortByAssociatedKeys(list<U>) -> list<T>", Cost::ListSquare(1), sort_by_keys),
    row("lists.range(int) -> list<int>", Cost::ListResult, range),
];

fn order<'a>(a: &Val<'a>, b: &Val<'a>) -> Result<Ordering> {
    a.order(b).ok_or_else(Failure::no_overload)
}

fn is_sorted<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let mut previous: Option<Val<'a>> = None;
    for item in args.list(0)?.iter() {
        let item = item?;
        if let Some(previous) = &previous
            && order(previous, &item)? == Ordering::Greater
        {
            return Ok(Val::Bool(false));
        }
        previous = Some(item);
    }
    Ok(Val::Bool(true))
}

fn min<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    extreme(args, Ordering::Less, "min called on empty list")
}

fn max<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    extreme(args, Ordering::Greater, "max called on empty list")
}

fn extreme<'a>(args: Args<'_, 'a>, ordering: Ordering, empty: &'static str) -> Result<Val<'a>> {
    let mut best: Option<Val<'a>> = None;
    for item in args.list(0)?.iter() {
        let item = item?;
        let better = match &best {
            Some(best) => order(&item, best)? == ordering,
            None => true,
        };
        if better {
            best = Some(item);
        }
    }
    best.ok_or_else(|| Failure::message(empty))
}

/// Adds all items; `zero` is the sum of an empty list.
fn sum<'a>(args: Args<'_, 'a>, zero: Val<'a>) -> Result<Val<'a>> {
    let (add, _) = operator("_+_").ok_or_else(Failure::no_overload)?;
    let mut items = args.list(0)?.iter();
    let Some(first) = items.next() else { return Ok(zero) };
    items.try_fold(first?, |total, item| add(Args { args: &[total, item?], ..args }))
}

fn index_of<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    for (at, item) in args.list(0)?.iter().enumerate() {
        if item?.equals(&args.args[1], args.meter)? {
            return Ok(Val::Int(at as i64));
        }
    }
    Ok(Val::Int(-1))
}

fn last_index_of<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let mut found = -1;
    for (at, item) in args.list(0)?.iter().enumerate() {
        if item?.equals(&args.args[1], args.meter)? {
            found = at as i64;
        }
    }
    Ok(Val::Int(found))
}

fn slice<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let (list, start, end) = (args.list(0)?, args.int(1)?, args.int(2)?);
    let fail = |message: String| Err(Failure::message(format!("cannot slice({start}, {end}), {message}")));
    let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
        return fail("negative indexes not supported".into());
    };
    if from > to {
        return fail("start index must be less than or equal to end index".into());
    }
    if to > list.len() {
        return fail(format!("list is length {}", list.len()));
    }
    args.meter.allocate((to - from) * size_of::<Val<'_>>())?;
    Ok(Val::list((from..to).filter_map(|at| list.get(at)).collect::<Result<_>>()?))
}

fn flatten<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let depth = if args.args.len() > 1 { args.int(1)? } else { 1 };
    if depth < 0 {
        return Err(Failure::message("level must be non-negative"));
    }
    let mut items = args.list(0)?.to_vec()?;
    for _ in 0..depth {
        if !items.iter().any(|item| matches!(item, Val::List(_))) {
            break;
        }
        let mut flat = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Val::List(list) => flat.extend(list.to_vec()?),
                other => flat.push(other),
            }
            args.meter.allocate(size_of::<Val<'_>>())?;
        }
        items = flat;
    }
    Ok(Val::list(items))
}

fn reverse<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let mut items = args.list(0)?.to_vec()?;
    args.meter.allocate(items.len() * size_of::<Val<'_>>())?;
    items.reverse();
    Ok(Val::list(items))
}

fn distinct<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let mut unique: Vec<Val<'a>> = Vec::new();
    'items: for item in args.list(0)?.iter() {
        let item = item?;
        args.meter.work(unique.len())?;
        for have in &unique {
            if have.equals(&item, args.meter)? {
                continue 'items;
            }
        }
        unique.push(item);
    }
    Ok(Val::list(unique))
}

fn sort<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let items = args.list(0)?.to_vec()?;
    sorted(args, items.clone(), items)
}

fn sort_by_keys<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    sorted(args, args.list(0)?.to_vec()?, args.list(1)?.to_vec()?)
}

fn sorted<'a>(args: Args<'_, 'a>, items: Vec<Val<'a>>, keys: Vec<Val<'a>>) -> Result<Val<'a>> {
    if items.len() != keys.len() {
        return Err(Failure::message(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list",
        ));
    }
    if let Some(first) = keys.first() {
        if !first.comparable(first) {
            return Err(Failure::message("list elements must be comparable"));
        }
        if keys.iter().any(|key| key.type_of() != first.type_of()) {
            return Err(Failure::message("list elements must have the same type"));
        }
    }
    args.meter.allocate(items.len() * 2 * size_of::<Val<'_>>())?;
    let mut pairs: Vec<_> = keys.into_iter().zip(items).collect();
    pairs.sort_by(|(a, _), (b, _)| a.order(b).unwrap_or(Ordering::Equal));
    Ok(Val::list(pairs.into_iter().map(|(_, item)| item).collect()))
}

fn range<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let end = args.int(0)?.max(0);
    let count = usize::try_from(end).unwrap_or(usize::MAX);
    args.meter.allocate(count.saturating_mul(size_of::<Val<'_>>()))?;
    args.meter.work(count / super::ITEMS_A_STEP)?;
    Ok(Val::list((0..end).map(Val::Int).collect()))
}
