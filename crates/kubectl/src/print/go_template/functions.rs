//! The functions of templates.

use std::cmp::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::value::{Datum, Kind};
use super::{escape, printf};

/// A function and the types of its parameters.
pub(super) struct Function {
    pub name: &'static str,
    pub parameters: &'static [Parameter],
    /// The type of any number of further arguments.
    pub variadic: Option<Parameter>,
    pub run: Run,
}

type Run = for<'a> fn(&[Datum<'a>]) -> Result<Datum<'a>, String>;

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    /// `reflect.Value`: the unchanged value.
    Value,
    /// `interface{}`
    Any,
    /// `string`
    Text,
}

impl Function {
    const fn new(name: &'static str, parameters: &'static [Parameter], variadic: Option<Parameter>, run: Run) -> Self {
        Self { name, parameters, variadic, run }
    }

    /// Returns the type of an argument by its position.
    pub(super) fn parameter(&self, at: usize) -> Parameter {
        self.parameters.get(at).copied().or(self.variadic).unwrap_or(Parameter::Value)
    }
}

const VALUE: &[Parameter] = &[Parameter::Value];
const VALUES: Option<Parameter> = Some(Parameter::Value);
const ANY: Option<Parameter> = Some(Parameter::Any);

static FUNCTIONS: &[Function] = &[
    // `and` and `or` are evaluated elsewhere, because they stop at the first argument that decides the result.
    Function::new("and", VALUE, VALUES, |arguments| Ok(arguments[0].clone())),
    Function::new("or", VALUE, VALUES, |arguments| Ok(arguments[0].clone())),
    Function::new("not", VALUE, None, |arguments| Ok(Datum::new(Kind::Bool(!arguments[0].is_true())))),
    Function::new("call", VALUE, VALUES, |arguments| match arguments[0].clone().unboxed() {
        absent if absent.is_absent() => Err("call of nil".to_owned()),
        other => Err(format!("non-function of type {}", other.type_name())),
    }),
    Function::new("html", &[], ANY, |arguments| Ok(Datum::text(escape::html(&printf::escaped_text(arguments))))),
    Function::new("js", &[], ANY, |arguments| Ok(Datum::text(escape::js(&printf::escaped_text(arguments))))),
    Function::new("urlquery", &[], ANY, |arguments| {
        Ok(Datum::text(escape::url_query(&printf::escaped_text(arguments))))
    }),
    Function::new("index", VALUE, VALUES, index),
    Function::new("slice", VALUE, VALUES, slice),
    Function::new("len", VALUE, None, length),
    Function::new("print", &[], ANY, |arguments| Ok(Datum::text(printf::print(arguments)))),
    Function::new("println", &[], ANY, |arguments| Ok(Datum::text(printf::println(arguments)))),
    Function::new("printf", &[Parameter::Text], ANY, |arguments| {
        Ok(Datum::text(printf::printf(&printf::sprint(&arguments[0]), &arguments[1..])))
    }),
    Function::new("eq", VALUE, VALUES, |arguments| equal(&arguments[0], &arguments[1..]).map(bool)),
    Function::new("ne", &[Parameter::Value; 2], None, |arguments| {
        equal(&arguments[0], &arguments[1..]).map(|equal| bool(!equal))
    }),
    Function::new("lt", &[Parameter::Value; 2], None, |arguments| compare(arguments).map(|order| bool(order.is_lt()))),
    Function::new("le", &[Parameter::Value; 2], None, |arguments| compare(arguments).map(|order| bool(order.is_le()))),
    Function::new("gt", &[Parameter::Value; 2], None, |arguments| compare(arguments).map(|order| bool(order.is_gt()))),
    Function::new("ge", &[Parameter::Value; 2], None, |arguments| compare(arguments).map(|order| bool(order.is_ge()))),
    Function::new("exists", &[Parameter::Any], ANY, |arguments| Ok(bool(exists(arguments)))),
    Function::new("base64decode", &[Parameter::Text], None, base64decode),
];

/// Returns a function by its name.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

const fn bool<'a>(value: bool) -> Datum<'a> {
    Datum::new(Kind::Bool(value))
}

fn index<'a>(arguments: &[Datum<'a>]) -> Result<Datum<'a>, String> {
    let mut item = arguments[0].clone();
    if item.is_nil() {
        return Err("index of untyped nil".to_owned());
    }
    for index in &arguments[1..] {
        let index = index.clone().unboxed();
        item = match &item.kind {
            Kind::Absent | Kind::Nil => return Err("index of nil pointer".to_owned()),
            Kind::List(items) => {
                let at = position(&index, items.len())?;
                items.get(at).map(Datum::of).ok_or("reflect: slice index out of range")?
            }
            Kind::Text(text) => {
                let at = position(&index, text.len())?;
                let byte = text.as_bytes().get(at).ok_or("reflect: string index out of range")?;
                Datum::new(Kind::Byte(*byte))
            }
            Kind::Map(object) => match &index.kind {
                Kind::Text(key) => object.get(key).map_or(Datum::NIL, Datum::of),
                Kind::Absent | Kind::Nil => return Err("value is nil; should be of type string".to_owned()),
                _ => return Err(format!("value has type {}; should be string", index.type_name())),
            },
            _ => return Err(format!("can't index item of type {}", item.type_name())),
        };
    }
    Ok(item)
}

/// Converts an index; the end of the list passes.
fn position(index: &Datum<'_>, length: usize) -> Result<usize, String> {
    match index.as_int() {
        Some(int) if !index.boxed => {
            let at = usize::try_from(int).ok().filter(|at| *at <= length);
            at.ok_or_else(|| format!("index out of range: {int}"))
        }
        _ if index.is_absent() => Err("cannot index slice/array with nil".to_owned()),
        _ => Err(format!("cannot index slice/array with type {}", index.static_type())),
    }
}

fn slice<'a>(arguments: &[Datum<'a>]) -> Result<Datum<'a>, String> {
    let (item, indexes) = (&arguments[0], &arguments[1..]);
    if item.is_nil() {
        return Err("slice of untyped nil".to_owned());
    }
    if indexes.len() > 3 {
        return Err(format!("too many slice indexes: {}", indexes.len()));
    }
    let length = match &item.kind {
        Kind::Text(_) if indexes.len() == 3 => return Err("cannot 3-index slice a string".to_owned()),
        Kind::Text(text) => text.len(),
        Kind::List(items) => items.len(),
        _ => return Err(format!("can't slice item of type {}", item.type_name())),
    };
    let mut bounds = [0, length, length];
    for (bound, index) in bounds.iter_mut().zip(indexes) {
        *bound = position(index, length)?;
    }
    let [start, end, capacity] = bounds;
    if start > end {
        return Err(format!("invalid slice index: {start} > {end}"));
    }
    if end > capacity {
        return Err(format!("invalid slice index: {end} > {capacity}"));
    }
    Ok(match &item.kind {
        Kind::List(items) => Datum::new(Kind::List(&items[start..end])),
        Kind::Text(text) => Datum::text(String::from_utf8_lossy(&text.as_bytes()[start..end]).into_owned()),
        _ => Datum::ABSENT,
    })
}

fn length<'a>(arguments: &[Datum<'a>]) -> Result<Datum<'a>, String> {
    let length = match &arguments[0].kind {
        Kind::Text(text) => text.len(),
        Kind::List(items) => items.len(),
        Kind::Map(object) => object.len(),
        Kind::Nil => return Err("len of nil pointer".to_owned()),
        Kind::Absent => return Err("reflect: call of reflect.Value.Type on zero Value".to_owned()),
        _ => return Err(format!("len of type {}", arguments[0].type_name())),
    };
    Ok(Datum::new(Kind::Int(i64::try_from(length).unwrap_or(i64::MAX))))
}

/// Whether the first value equals one of the others.
fn equal(first: &Datum<'_>, others: &[Datum<'_>]) -> Result<bool, String> {
    if others.is_empty() {
        return Err("missing argument for comparison".to_owned());
    }
    for other in others {
        let equal = match (&first.kind, &other.kind) {
            (Kind::Bool(a), Kind::Bool(b)) => a == b,
            (Kind::Float(a), Kind::Float(b)) => a == b,
            (Kind::Text(a), Kind::Text(b)) => a == b,
            _ if first.is_nil() || other.is_nil() => first.is_nil() == other.is_nil(),
            (Kind::Map(_), Kind::Map(_)) | (Kind::List(_), Kind::List(_)) => {
                return Err(format!("non-comparable type {}: {}", printf::verb_s(other), other.type_name()));
            }
            (Kind::Map(_), Kind::List(_)) | (Kind::List(_), Kind::Map(_)) => {
                return Err(format!(
                    "non-comparable types {}: {}, {}: {}",
                    printf::verb_s(first),
                    first.type_name(),
                    other.type_name(),
                    printf::sprint(other)
                ));
            }
            _ => match (first.as_int(), other.as_int()) {
                (Some(a), Some(b)) => a == b,
                _ => return Err(incompatible(first, other)),
            },
        };
        if equal {
            return Ok(true);
        }
    }
    Ok(false)
}

fn compare(arguments: &[Datum<'_>]) -> Result<Ordering, String> {
    let [a, b] = arguments else { return Err("missing argument for comparison".to_owned()) };
    let basic = |value: &Datum<'_>| !matches!(value.kind, Kind::Absent | Kind::Nil | Kind::List(_) | Kind::Map(_));
    let invalid = || "invalid type for comparison".to_owned();
    if !basic(a) || !basic(b) {
        return Err(invalid());
    }
    match (&a.kind, &b.kind) {
        (Kind::Bool(_), Kind::Bool(_)) => Err(invalid()),
        (Kind::Float(a), Kind::Float(b)) => a.partial_cmp(b).ok_or_else(invalid),
        (Kind::Text(a), Kind::Text(b)) => Ok(a.cmp(b)),
        _ => match (a.as_int(), b.as_int()) {
            (Some(a), Some(b)) => Ok(a.cmp(&b)),
            _ => Err(incompatible(a, b)),
        },
    }
}

fn incompatible(a: &Datum<'_>, b: &Datum<'_>) -> String {
    format!("incompatible types for comparison: {} and {}", a.type_name(), b.type_name())
}

/// Whether a path of keys and indexes leads to a value.
fn exists(arguments: &[Datum<'_>]) -> bool {
    let mut item = arguments[0].clone();
    for index in &arguments[1..] {
        let found = match &item.kind {
            Kind::List(items) => index.as_int().and_then(|at| items.get(usize::try_from(at).ok()?)).map(Datum::of),
            Kind::Text(text) => index
                .as_int()
                .and_then(|at| text.as_bytes().get(usize::try_from(at).ok()?))
                .map(|byte| Datum::new(Kind::Byte(*byte))),
            Kind::Map(object) => match &index.kind {
                Kind::Text(key) => Some(object.get(key).map_or(Datum::NIL, Datum::of)),
                Kind::Absent | Kind::Nil => Some(object.get("").map_or(Datum::NIL, Datum::of)),
                _ => None,
            },
            _ => None,
        };
        let Some(found) = found else { return false };
        item = found;
    }
    !item.is_nil()
}

fn base64decode<'a>(arguments: &[Datum<'a>]) -> Result<Datum<'a>, String> {
    let Kind::Text(text) = &arguments[0].kind else { return Ok(Datum::ABSENT) };
    // Go's decoder skips line breaks.
    let plain = text.replace(['\r', '\n'], "");
    let decoded = STANDARD.decode(plain.as_bytes()).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => plain.len() / 4 * 4,
        };
        format!("base64 decode failed: illegal base64 data at input byte {at}")
    })?;
    // DEVIATION: kubectl prints bytes that are not UTF-8 unchanged.
    Ok(Datum::text(String::from_utf8_lossy(&decoded).into_owned()))
}
