//! What running an expression costs: estimated before, counted while it runs.
//!
//! The units and rules are upstream's, since the limits that users meet are stated in them.

pub mod estimate;
pub mod limits;
mod runtime;

pub use estimate::{Estimate, SizeEstimate, estimate};

pub(crate) use runtime::call_cost;

/// Walking a string costs a tenth of a unit a character.
pub(crate) const STRING_FACTOR: f64 = 0.1;
/// Four characters of a pattern are taken for one of its states.
pub(crate) const REGEX_FACTOR: f64 = 0.25;
pub(crate) const LIST_BASE: u64 = 10;
pub(crate) const MAP_BASE: u64 = 30;
pub(crate) const STRUCT_BASE: u64 = 40;

/// How a call's cost follows from its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// One unit.
    Unit,
    /// So many units.
    Fixed(u64),
    /// The first string is read once.
    Scan,
    /// The first string is read once, and the result is as long.
    ScanSame,
    /// The first string is read twice.
    ScanTwice,
    /// Each item of the first list, or each character, is looked at.
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
    /// Whether an address is in a block.
    ContainsIp,
    /// The same, the address still to be read.
    ContainsIpText,
    /// Whether a block is in a block.
    ContainsCidr,
    /// The same, the block still to be read.
    ContainsCidrText,
    /// A selector is parsed.
    Selector,
    /// A text is held against a named format.
    Validate,
    /// A list is made, as long as the result.
    ListResult,
    /// A list of lists becomes one list.
    ListFlatten,
    /// Each item of the argument with this number is compared with each.
    ListSquare(usize),
    /// Each item of one list is compared with each of the other, so many times.
    Product(u64),
}
