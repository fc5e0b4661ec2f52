//! Operators: arithmetic, comparison, membership and indexing.

use std::cmp::Ordering;
use std::sync::Arc;

use apimachinery::schema::ListKind;

use super::{Args, Function, Row, row, time};
use crate::cost::Cost;
use crate::eval::{Failure, Meter};
use crate::value::{Entries, Key, List, Map, Val, list_kind};

type Result<T> = std::result::Result<T, Failure>;

macro_rules! comparisons {
    ($($type:literal $cost:ident),* $(,)?) => {
        &[$(
            row(concat!("_<_(", $type, ") -> bool"), Cost::$cost, less),
            row(concat!("_<=_(", $type, ") -> bool"), Cost::$cost, less_or_equal),
            row(concat!("_>_(", $type, ") -> bool"), Cost::$cost, greater),
            row(concat!("_>=_(", $type, ") -> bool"), Cost::$cost, greater_or_equal),
        )*]
    };
}

const ORDER: &[Row] = comparisons![
    "bool, bool" Unit, "int, int" Unit, "uint, uint" Unit, "double, double" Unit, "string, string" Compare,
    "bytes, bytes" Compare, "timestamp, timestamp" Unit, "duration, duration" Unit,
];

/// Comparisons of numbers of different types by numeric value.
pub(crate) const CROSS_TYPE: &[Row] = comparisons![
    "int, double" Unit, "double, int" Unit, "uint, double" Unit, "double, uint" Unit, "int, uint" Unit,
    "uint, int" Unit,
];

const OTHERS: &[Row] = &[
    row("_+_(int, int) -> int", Cost::Unit, add),
    row("_+_(uint, uint) -> uint", Cost::Unit, add),
    row("_+_(double, double) -> double", Cost::Unit, add),
    row("_+_(string, string) -> string", Cost::Concat, add),
    row("_+_(bytes, bytes) -> bytes", Cost::Concat, add),
    row("_+_(list<A>, list<A>) -> list<A>", Cost::ConcatList, add),
    row("_+_(timestamp, duration) -> timestamp", Cost::Unit, add),
    row("_+_(duration, timestamp) -> timestamp", Cost::Unit, add),
    row("_+_(duration, duration) -> duration", Cost::Unit, add),
    row("_-_(int, int) -> int", Cost::Unit, subtract),
    row("_-_(uint, uint) -> uint", Cost::Unit, subtract),
    row("_-_(double, double) -> double", Cost::Unit, subtract),
    row("_-_(timestamp, timestamp) -> duration", Cost::Unit, subtract),
    row("_-_(timestamp, duration) -> timestamp", Cost::Unit, subtract),
    row("_-_(duration, duration) -> duration", Cost::Unit, subtract),
    row("_*_(int, int) -> int", Cost::Unit, multiply),
    row("_*_(uint, uint) -> uint", Cost::Unit, multiply),
    row("_*_(double, double) -> double", Cost::Unit, multiply),
    row("_/_(int, int) -> int", Cost::Unit, divide),
    row("_/_(uint, uint) -> uint", Cost::Unit, divide),
    row("_/_(double, double) -> double", Cost::Unit, divide),
    row("_%_(int, int) -> int", Cost::Unit, remainder),
    row("_%_(uint, uint) -> uint", Cost::Unit, remainder),
    row("-_(int) -> int", Cost::Unit, negate),
    row("-_(double) -> double", Cost::Unit, negate),
    row("!_(bool) -> bool", Cost::Unit, not),
    row("_==_(A, A) -> bool", Cost::Equal, equal),
    row("_!=_(A, A) -> bool", Cost::Equal, not_equal),
    row("@in(A, list<A>) -> bool", Cost::InList, contains),
    row("@in(A, map<A, B>) -> bool", Cost::Unit, contains),
    row("_[_](list<A>, int) -> A", Cost::IndexList, index),
    row("_[_](map<A, B>, A) -> B", Cost::IndexMap, index),
    row("_&&_(bool, bool) -> bool", Cost::Logic, evaluated_elsewhere),
    row("_||_(bool, bool) -> bool", Cost::Logic, evaluated_elsewhere),
    row("_?_:_(bool, A, A) -> A", Cost::Conditional, evaluated_elsewhere),
    row("@not_strictly_false(bool) -> bool", Cost::Unit, evaluated_elsewhere),
];

const COUNT: usize = ORDER.len() + OTHERS.len();

/// Operators of every environment.
pub(crate) const ROWS: &[Row] = &{
    let mut rows = [ORDER[0]; COUNT];
    let mut at = 0;
    while at < COUNT {
        rows[at] = if at < ORDER.len() { ORDER[at] } else { OTHERS[at - ORDER.len()] };
        at += 1;
    }
    rows
};

/// The functions of macros that build maps.
pub(crate) const MAP_INSERT: &[Row] = &[
    row("cel.@mapInsert(map<A, B>, A, B) -> map<A, B>", Cost::Unit, map_insert),
    row("cel.@mapInsert(map<A, B>, map<A, B>) -> map<A, B>", Cost::Unit, map_insert),
];

/// Returns the function and the runtime cost of an operator whose overloads all share one function.
pub(crate) fn operator(name: &str) -> Option<(Function, Cost)> {
    Some(match name {
        "_+_" => (add, Cost::Concat),
        "_-_" => (subtract, Cost::Unit),
        "_*_" => (multiply, Cost::Unit),
        "_/_" => (divide, Cost::Unit),
        "_%_" => (remainder, Cost::Unit),
        "_<_" => (less, Cost::Compare),
        "_<=_" => (less_or_equal, Cost::Compare),
        "_>_" => (greater, Cost::Compare),
        "_>=_" => (greater_or_equal, Cost::Compare),
        "_==_" => (equal, Cost::Equal),
        "_!=_" => (not_equal, Cost::Equal),
        "@in" => (contains, Cost::InList),
        "_[_]" => (index, Cost::Unit),
        "-_" => (negate, Cost::Unit),
        "!_" => (not, Cost::Unit),
        _ => return None,
    })
}

fn add<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(match args.args {
        [Val::Int(a), Val::Int(b)] => Val::Int(a.checked_add(*b).ok_or_else(int_overflow)?),
        [Val::Uint(a), Val::Uint(b)] => Val::Uint(a.checked_add(*b).ok_or_else(uint_overflow)?),
        [Val::Double(a), Val::Double(b)] => Val::Double(a + b),
        [Val::String(a), Val::String(b)] => {
            made(a.len() + b.len(), args.meter)?;
            Val::String(a.followed_by(b))
        }
        [Val::Bytes(a), Val::Bytes(b)] => {
            made(a.len() + b.len(), args.meter)?;
            Val::Bytes([&**a, &**b].concat().into())
        }
        [Val::List(a), Val::List(b)] => concat(a, b, args.meter)?,
        [Val::Timestamp(at), Val::Duration(by)] | [Val::Duration(by), Val::Timestamp(at)] => time::shift(*at, *by)?,
        [Val::Duration(a), Val::Duration(b)] => Val::Duration(a.checked_add(*b).ok_or_else(duration_overflow)?),
        _ => return Err(Failure::no_overload()),
    })
}

/// Meters the creation of a value of `bytes` bytes, for which upstream charges one unit regardless of its size.
fn made(bytes: usize, meter: &Meter<'_>) -> Result<()> {
    const STEPS: usize = 4;
    meter.work(STEPS)?;
    meter.allocate(bytes)
}

/// Concatenates two lists; lists that the schema declares as sets or maps are united or merged.
fn concat<'a>(a: &List<'a>, b: &List<'a>, meter: &Meter<'_>) -> Result<Val<'a>> {
    made((a.len() + b.len()).saturating_mul(size_of::<Val<'_>>()), meter)?;
    let mut items = a.to_vec()?;
    match list_kind(a) {
        ListKind::Atomic => items.extend(b.to_vec()?),
        ListKind::Set => {
            for item in b.iter() {
                let item = item?;
                if !holds(&items, &item, meter)? {
                    items.push(item);
                }
            }
        }
        ListKind::Map(keys) => {
            for item in b.iter() {
                let item = item?;
                let same = items.iter().position(|have| {
                    keys.iter().all(|key| match (field(have, key), field(&item, key)) {
                        (Some(a), Some(b)) => a.equals(&b, meter).unwrap_or(false),
                        (None, None) => true,
                        _ => false,
                    })
                });
                match same {
                    Some(at) => items[at] = item,
                    None => items.push(item),
                }
            }
        }
    }
    Ok(Val::list(items))
}

fn field<'a>(value: &Val<'a>, name: &str) -> Option<Val<'a>> {
    match value {
        Val::Map(map) => map.field(name)?.ok(),
        _ => None,
    }
}

fn holds<'a>(items: &[Val<'a>], needle: &Val<'a>, meter: &Meter<'_>) -> Result<bool> {
    for item in items {
        if item.equals(needle, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn subtract<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(match args.args {
        [Val::Int(a), Val::Int(b)] => Val::Int(a.checked_sub(*b).ok_or_else(int_overflow)?),
        [Val::Uint(a), Val::Uint(b)] => Val::Uint(a.checked_sub(*b).ok_or_else(uint_overflow)?),
        [Val::Double(a), Val::Double(b)] => Val::Double(a - b),
        [Val::Timestamp(a), Val::Timestamp(b)] => {
            let nanos = a.nanos() - b.nanos();
            Val::Duration(i64::try_from(nanos).map_err(|_| Failure::message("timestamp overflow"))?)
        }
        [Val::Timestamp(at), Val::Duration(by)] => time::shift(*at, by.checked_neg().ok_or_else(duration_overflow)?)?,
        [Val::Duration(a), Val::Duration(b)] => Val::Duration(a.checked_sub(*b).ok_or_else(duration_overflow)?),
        _ => return Err(Failure::no_overload()),
    })
}

fn multiply<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(match args.args {
        [Val::Int(a), Val::Int(b)] => Val::Int(a.checked_mul(*b).ok_or_else(int_overflow)?),
        [Val::Uint(a), Val::Uint(b)] => Val::Uint(a.checked_mul(*b).ok_or_else(uint_overflow)?),
        [Val::Double(a), Val::Double(b)] => Val::Double(a * b),
        _ => return Err(Failure::no_overload()),
    })
}

fn divide<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(match args.args {
        [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => return Err(Failure::message("division by zero")),
        [Val::Int(a), Val::Int(b)] => Val::Int(a.checked_div(*b).ok_or_else(int_overflow)?),
        [Val::Uint(a), Val::Uint(b)] => Val::Uint(a / b),
        [Val::Double(a), Val::Double(b)] => Val::Double(a / b),
        _ => return Err(Failure::no_overload()),
    })
}

fn remainder<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(match args.args {
        [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => return Err(Failure::message("modulus by zero")),
        [Val::Int(a), Val::Int(b)] => Val::Int(a.checked_rem(*b).ok_or_else(int_overflow)?),
        [Val::Uint(a), Val::Uint(b)] => Val::Uint(a % b),
        _ => return Err(Failure::no_overload()),
    })
}

fn negate<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(match args.args {
        [Val::Int(int)] => Val::Int(int.checked_neg().ok_or_else(int_overflow)?),
        [Val::Double(double)] => Val::Double(-double),
        _ => return Err(Failure::no_overload()),
    })
}

fn not<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    match args.args {
        [Val::Bool(bool)] => Ok(Val::Bool(!bool)),
        _ => Err(Failure::no_overload()),
    }
}

fn equal<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    args.args[0].equals(&args.args[1], args.meter).map(Val::Bool)
}

fn not_equal<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    args.args[0].equals(&args.args[1], args.meter).map(|equal| Val::Bool(!equal))
}

fn less<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    compare(args, |order| order == Ordering::Less)
}

fn less_or_equal<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    compare(args, |order| order != Ordering::Greater)
}

fn greater<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    compare(args, |order| order == Ordering::Greater)
}

fn greater_or_equal<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    compare(args, |order| order != Ordering::Less)
}

fn compare<'a>(args: Args<'_, 'a>, holds: impl Fn(Ordering) -> bool) -> Result<Val<'a>> {
    let (a, b) = (&args.args[0], &args.args[1]);
    match a.order(b) {
        Some(order) => Ok(Val::Bool(holds(order))),
        None if a.comparable(b) => Err(Failure::message("NaN values cannot be ordered")),
        None => Err(Failure::no_overload()),
    }
}

fn contains<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    match args.args {
        [needle, Val::List(list)] => {
            for item in list.iter() {
                if item?.equals(needle, args.meter)? {
                    return Ok(Val::Bool(true));
                }
            }
            Ok(Val::Bool(false))
        }
        [key, Val::Map(map)] => {
            read_key(key, args.meter)?;
            Ok(Val::Bool(map.get(key).is_some()))
        }
        _ => Err(Failure::no_overload()),
    }
}

/// Meters a lookup, which compares a long key with many others.
fn read_key(key: &Val<'_>, meter: &Meter<'_>) -> Result<()> {
    const COMPARISONS: usize = 16;
    meter.read(key.as_str().map_or(0, str::len) * COMPARISONS)
}

fn index<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    read_key(&args.args[1], args.meter)?;
    match args.args {
        [Val::Optional(None), _] => Ok(Val::Optional(None)),
        [Val::Optional(Some(inner)), key] => optional_index(inner, key),
        [container, key] => lookup(container, key)?.ok_or_else(|| match container {
            Val::List(_) => Failure::message(format!("index out of bounds: {}", super::strings::plain(key))),
            _ => Failure::message(format!("no such key: {}", super::strings::plain(key))),
        }),
        _ => Err(Failure::no_overload()),
    }
}

/// Returns the item or entry as an optional; absence is not an error.
pub(crate) fn optional_index<'a>(container: &Val<'a>, key: &Val<'a>) -> Result<Val<'a>> {
    match container {
        Val::Optional(None) => Ok(Val::Optional(None)),
        Val::Optional(Some(inner)) => optional_index(inner, key),
        _ => Ok(lookup(container, key)?.map_or(Val::Optional(None), Val::some)),
    }
}

fn lookup<'a>(container: &Val<'a>, key: &Val<'a>) -> Result<Option<Val<'a>>> {
    match container {
        Val::List(list) => {
            let at = match key {
                Val::Int(int) => i128::from(*int),
                Val::Uint(uint) => i128::from(*uint),
                Val::Double(double) if double.fract() == 0.0 => *double as i128,
                Val::Double(_) => return Err(Failure::message("unsupported index value: double with a fraction")),
                _ => {
                    return Err(Failure::message(format!(
                        "unsupported index type '{}' in list",
                        key.type_of().runtime_name()
                    )));
                }
            };
            usize::try_from(at).ok().and_then(|at| list.get(at)).transpose()
        }
        Val::Map(map) => map.get(key).or_else(|| map.otherwise()).transpose(),
        Val::PartialObject(built) => {
            let name = key.as_str().ok_or_else(Failure::no_overload)?;
            Ok(built.fields.iter().find(|(have, _)| **have == *name).map(|(_, value)| value.clone()))
        }
        _ => Err(Failure::no_overload()),
    }
}

fn map_insert<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    args.meter.allocate(size_of::<(Key<'_>, Val<'_>)>())?;
    let (Val::Map(map), more) = (&args.args[0], &args.args[1..]) else { return Err(Failure::no_overload()) };
    let mut entries = match map {
        Map::Owned(entries) => (**entries).clone(),
        Map::Json(..) => return Err(Failure::no_overload()),
    };
    insert(&mut entries, more)?;
    Ok(Val::Map(Map::Owned(Arc::new(entries))))
}

/// Adds `[key, value]`, or all entries of `[map]`; an existing key is an error.
pub(crate) fn insert<'a>(entries: &mut Entries<'a>, more: &[Val<'a>]) -> Result<()> {
    let mut one = |key: &Val<'a>, value: Val<'a>| {
        let made = Key::of(key).ok_or_else(|| Failure::message("unsupported key type"))?;
        if entries.insert(made, value) {
            return Ok(());
        }
        Err(Failure::message(format!("insert failed: key {} already exists", super::strings::plain(key))))
    };
    match more {
        [key, value] => one(key, value.clone()),
        [Val::Map(map)] => {
            for key in map.keys() {
                if let Some(value) = map.get(&key) {
                    one(&key, value?)?;
                }
            }
            Ok(())
        }
        _ => Err(Failure::no_overload()),
    }
}

/// Fails if called: the row serves the checker and the cost rules, and the evaluator decides which operands are
/// evaluated.
fn evaluated_elsewhere<'a>(_: Args<'_, 'a>) -> Result<Val<'a>> {
    Err(Failure::no_overload())
}

pub(crate) fn int_overflow() -> Failure {
    Failure::message("integer overflow")
}

pub(crate) fn uint_overflow() -> Failure {
    Failure::message("unsigned integer overflow")
}

fn duration_overflow() -> Failure {
    Failure::message("duration overflow")
}
