//! CEL cost: estimated before and measured during the evaluation.
//!
//! The units and rules are upstream's, since the limits visible to users are stated in them.

pub mod estimate;
pub mod limits;
mod runtime;

pub use estimate::{Estimate, SizeEstimate, estimate};

pub(crate) use runtime::call_cost;

/// Traversing a string costs 0.1 units per character.
pub(crate) const STRING_FACTOR: f64 = 0.1;
/// Four characters of a regular expression count as one state.
pub(crate) const REGEX_FACTOR: f64 = 0.25;
pub(crate) const LIST_BASE: u64 = 10;
pub(crate) const MAP_BASE: u64 = 30;
pub(crate) const STRUCT_BASE: u64 = 40;

/// The cost rule of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    Unit,
    Fixed(u64),
    /// The first string is read once.
    Scan,
    /// The first string is read once, and the result has the same length.
    ScanSame,
    /// The first string is read twice.
    ScanTwice,
    /// Each item of the first list, or each character, is visited.
    Traverse,
    /// `replace`
    Replace,
    /// `split`
    Split,
    /// `join`
    Join,
    /// `format`
    Format,
    /// `strings.quote`
    Quote,
    /// `startsWith`, `endsWith`
    Affix,
    /// `contains`
    Contains,
    /// `matches`
    Match,
    /// `find`, `findAll`
    Find,
    /// `<` and the like on strings and bytes.
    Compare,
    /// `==`, `!=`
    Equal,
    /// `+` on strings and bytes.
    Concat,
    /// `+` on lists.
    ConcatList,
    /// `in` a list.
    InList,
    /// `list[i]`
    IndexList,
    /// `map[k]`
    IndexMap,
    /// `bytes(string)`
    StringToBytes,
    /// `string(bytes)`
    BytesToString,
    /// `&&`, `||`
    Logic,
    /// `? :`
    Conditional,
    /// Containment of an address in a CIDR.
    ContainsIp,
    /// Containment of an address in a CIDR, including parsing the address.
    ContainsIpText,
    /// Containment of a CIDR in a CIDR.
    ContainsCidr,
    /// Containment of a CIDR in a CIDR, including parsing the inner one.
    ContainsCidrText,
    /// Parsing of a selector.
    Selector,
    /// Validation of a text against a named format.
    Validate,
    /// Creation of a list with the length of the result.
    ListResult,
    /// Flattening of a list of lists.
    ListFlatten,
    /// Pairwise comparison of the items of the argument with this index.
    ListSquare(usize),
    /// Comparison of each item of one list with each item of the other, times the factor.
    Product(u64),
}
