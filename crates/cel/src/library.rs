//! The CEL function table, shared by the checker, the cost rules and the evaluator.
//!
//! A row has a signature in the notation of the documentation, a cost rule and a function. A new function is a new row
//! in the table of its library.

pub mod authorizer;
pub mod cidr;
mod conversions;
mod encoders;
pub mod format;
mod format_text;
pub mod ip;
mod jsonpatch;
mod lists;
mod math;
pub mod opaque;
pub(crate) mod operators;
mod optional;
pub mod quantity;
mod regex;
pub mod semver;
mod sets;
mod signature;
mod standard;
mod strings;
pub mod time;
pub mod url;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::cost::Cost;
use crate::eval::{Failure, Meter};
use crate::types::Type;
use crate::value::Val;

pub(crate) use regex::{compile as compile_regex, is_pattern_argument};
pub(crate) use strings::plain as shown;

/// A set of functions that an environment may include.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Library {
    /// The standard functions of the language.
    Standard,
    /// Comparison of numbers of different types.
    CrossTypeNumeric,
    /// `charAt`, `split`, `join` and similar.
    Strings,
    /// `format` and `strings.quote`.
    StringsFormat,
    /// `reverse` of strings.
    StringsReverse,
    /// Kubernetes' `isSorted`, `sum`, `min`, `max`, `indexOf`, `lastIndexOf`.
    Lists,
    /// cel-go's `slice`, `flatten`, `sort`, `distinct`, `range`, `reverse`.
    ListsExtended,
    /// `find`, `findAll`.
    Regex,
    /// `url`, `isURL`.
    Url,
    /// Authorization checks.
    Authorizer,
    /// Selectors in authorization checks.
    AuthorizerSelectors,
    Quantity,
    Optional,
    /// `sets.contains`, `sets.equivalent`, `sets.intersects`.
    Sets,
    Ip,
    Cidr,
    /// Named formats such as `dns1123Label`.
    Format,
    /// Macros with two variables.
    TwoVariables,
    Semver,
    /// `math.greatest` and similar.
    Math,
    /// `base64.encode`, `base64.decode`.
    Encoders,
    /// `jsonpatch.escapeKey`.
    JsonPatch,
    /// `cel.bind`.
    Bind,
}

/// The definition of one function overload.
#[derive(Clone, Copy)]
pub struct Row {
    /// `string.charAt(int) -> string`; the receiver is before the dot. Namespaces are lowercase and not types.
    pub signature: &'static str,
    pub cost: Cost,
    pub call: Function,
}

pub type Function = for<'a> fn(Args<'_, 'a>) -> Result<Val<'a>, Failure>;

#[derive(Clone, Copy)]
pub struct Args<'c, 'a> {
    /// The receiver, if there is one, and the arguments.
    pub args: &'c [Val<'a>],
    pub meter: &'c Meter<'c>,
    /// The compiled pattern, if it is a constant.
    pub pattern: Option<&'c ::regex::Regex>,
}

/// A row with its signature parsed.
pub struct Overload {
    pub library: Library,
    pub name: &'static str,
    /// Whether the first parameter is a receiver.
    pub receiver: bool,
    /// The types of the receiver and the arguments.
    pub params: Vec<Type>,
    pub result: Type,
    pub cost: Cost,
    /// The number of steps of a call with short arguments.
    pub steps: usize,
    /// The number of bytes of text that a call reads in the time of one step.
    pub bytes_a_step: usize,
    pub call: Function,
}

/// The index of an overload in the table.
pub type OverloadId = u16;

pub struct Table {
    overloads: Vec<Overload>,
    by_name: BTreeMap<&'static str, Vec<OverloadId>>,
}

pub static TABLE: LazyLock<Table> = LazyLock::new(Table::build);

const LIBRARIES: &[(Library, &[Row])] = &[
    (Library::Standard, operators::ROWS),
    (Library::Standard, conversions::ROWS),
    (Library::Standard, standard::ROWS),
    (Library::Standard, time::ROWS),
    (Library::CrossTypeNumeric, operators::CROSS_TYPE),
    (Library::Strings, strings::ROWS),
    (Library::StringsFormat, format_text::ROWS),
    (Library::StringsReverse, strings::REVERSE),
    (Library::Lists, lists::ROWS),
    (Library::ListsExtended, lists::EXTENDED),
    (Library::Regex, regex::ROWS),
    (Library::Url, url::ROWS),
    (Library::Authorizer, authorizer::ROWS),
    (Library::AuthorizerSelectors, authorizer::SELECTORS),
    (Library::Quantity, quantity::ROWS),
    (Library::Optional, optional::ROWS),
    (Library::Sets, sets::ROWS),
    (Library::Ip, ip::ROWS),
    (Library::Cidr, cidr::ROWS),
    (Library::Format, format::ROWS),
    (Library::TwoVariables, operators::MAP_INSERT),
    (Library::Semver, semver::ROWS),
    (Library::Math, math::ROWS),
    (Library::Encoders, encoders::ROWS),
    (Library::JsonPatch, jsonpatch::ROWS),
];

/// Creates a row. The tables use it because a struct literal takes more lines.
pub(crate) const fn row(signature: &'static str, cost: Cost, call: Function) -> Row {
    Row { signature, cost, call }
}

impl Table {
    fn build() -> Self {
        let mut table = Self { overloads: Vec::new(), by_name: BTreeMap::new() };
        for (library, rows) in LIBRARIES {
            for row in *rows {
                let overload = signature::parse(*library, row);
                let id = OverloadId::try_from(table.overloads.len()).expect("the table is small");
                table.by_name.entry(overload.name).or_default().push(id);
                table.overloads.push(overload);
            }
        }
        table
    }

    pub fn overload(&self, id: OverloadId) -> &Overload {
        &self.overloads[id as usize]
    }

    pub fn named(&self, name: &str) -> &[OverloadId] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }
}

impl Overload {
    /// Whether the overload accepts the values at runtime, where only the outermost type of a value is known.
    pub fn accepts(&self, args: &[Val<'_>]) -> bool {
        self.params.len() == args.len() && self.params.iter().zip(args).all(|(param, arg)| fits(param, arg))
    }

    /// Returns the number of steps to count for a call before it runs: a base, and more for long arguments.
    pub fn steps(&self, args: &[Val<'_>]) -> usize {
        let long = args.iter().map(|arg| match arg {
            Val::String(text) => text.len() / self.bytes_a_step,
            Val::Bytes(bytes) => bytes.len() / self.bytes_a_step,
            // `size` does not visit the items of a list; all other functions do.
            Val::List(list) if self.name != "size" => list.len() / ITEMS_A_STEP,
            _ => 0,
        });
        self.steps + long.sum::<usize>()
    }
}

/// The number of list items that are visited or created in the time of one step.
pub const ITEMS_A_STEP: usize = 4;

fn fits(param: &Type, value: &Val<'_>) -> bool {
    match param {
        Type::Dyn | Type::Param(_) => true,
        Type::List(_) => matches!(value, Val::List(_)),
        Type::Map(..) => matches!(value, Val::Map(_)),
        Type::Optional(_) => matches!(value, Val::Optional(_)),
        Type::Type(_) => matches!(value, Val::Type(_)),
        Type::Opaque(name) => matches!(value, Val::Opaque(opaque) if opaque.type_name() == *name),
        Type::Int => matches!(value, Val::Int(_)),
        Type::String => matches!(value, Val::String(_)),
        plain => *plain == value.type_of(),
    }
}

impl<'c, 'a> Args<'c, 'a> {
    pub(crate) fn str(self, at: usize) -> Result<&'c str, Failure> {
        self.args.get(at).and_then(Val::as_str).ok_or_else(Failure::no_overload)
    }

    pub(crate) fn int(self, at: usize) -> Result<i64, Failure> {
        match self.args.get(at) {
            Some(Val::Int(int)) => Ok(*int),
            _ => Err(Failure::no_overload()),
        }
    }

    pub(crate) fn list(self, at: usize) -> Result<&'c crate::value::List<'a>, Failure> {
        match self.args.get(at) {
            Some(Val::List(list)) => Ok(list),
            _ => Err(Failure::no_overload()),
        }
    }
}

/// Returns a library type by its name in expressions.
pub(crate) fn named_type(name: &str) -> Option<Type> {
    opaque::NAMES.iter().find(|known| **known == name).map(|known| Type::Opaque(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_valid_signature() {
        assert!(TABLE.overloads.len() > 250, "{}", TABLE.overloads.len());
        for overload in &TABLE.overloads {
            assert!(!overload.name.is_empty());
            assert!(!overload.receiver || !overload.params.is_empty(), "{}", overload.name);
        }
    }

    #[test]
    fn no_two_rows_of_a_function_take_the_same_types() {
        for ids in TABLE.by_name.values() {
            for (at, a) in ids.iter().enumerate() {
                for b in &ids[at + 1..] {
                    let (a, b) = (TABLE.overload(*a), TABLE.overload(*b));
                    assert!(a.params != b.params || a.receiver != b.receiver, "{} {:?}", a.name, a.params);
                }
            }
        }
    }
}
