//! Strategic Merge Patch: a merge patch that knows from the schema which lists are sets or maps.
//!
//! | in a patch | means |
//! |---|---|
//! | `field: null` | the field is removed |
//! | `$patch: replace` or `delete` in an object | the object becomes the rest of the patch, or empty |
//! | `$patch: delete` in an item of a merged list | the item with its merge key is removed |
//! | `$patch: replace` as an item of a merged list | the list becomes the other items |
//! | `$retainKeys: [a, b]` | all fields but these are removed |
//! | `$setElementOrder/list: […]` | the order of the items that it names |
//! | `$deleteFromPrimitiveList/list: […]` | these scalars are removed from the list |
//!
//! Fields that the schema does not know are merged as a JSON merge patch would. What is new comes without directives
//! and nulls.
// DEVIATION: upstream refuses to merge two objects of which it does not know the type (such as raw extensions).

mod conflict;
mod diff;
mod list;
mod merge;
mod restore;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;

use crate::patch::{Blame, gofmt};
use crate::schema::{self, Schema, Shape};
use crate::{Object, Path, Str, Value};

pub use restore::{Mistyped, check_types, quoted};

/// Why a strategic merge patch cannot be applied or made. Reads as upstream's message, which does not say where.
#[derive(Debug, thiserror::Error)]
#[error("{fault}")]
pub struct Error {
    /// The field it is about.
    pub path: String,
    /// What is wrong there.
    pub fault: Fault,
}

/// What is wrong with a strategic merge patch or with an object it is for.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Fault {
    /// An item of a merged list lacks the field that tells it apart.
    #[error("map: {map} does not contain declared merge key: {key}")]
    NoMergeKey {
        /// The item, as Go prints it.
        map: String,
        /// The field.
        key: Str,
    },
    /// A list of objects is to be merged, but nothing tells its items apart.
    #[error("cannot merge lists without merge key for struct")]
    NoMergeKeyDeclared,
    /// A list or an object stands where a scalar is compared.
    #[error("cannot tell items apart by a {0}")]
    NotComparable(&'static str),
    /// `$patch` is none of its values.
    #[error("unknown patch type: {directive} in map: {map}")]
    UnknownDirective {
        /// Its value, as Go prints it.
        directive: String,
        /// Where it is, as Go prints it.
        map: String,
    },
    /// `$patch: merge` in an item.
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirective,
    /// A directive is no string where two objects with directives are compared.
    #[error("invalid value for special key: $patch")]
    BadDirective,
    /// `$retainKeys` is no list of names, or the patch has a field that is not in it.
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    /// Two patches that are to be one retain different fields.
    #[error("{0} and {1} are not deep equal: this may happen when calculating the 3-way diff patch")]
    RetainKeysDiffer(String, String),
    /// `$deleteFromPrimitiveList` without the name of a list, or not a list.
    #[error("invalid patch format of primitive list")]
    DeleteFromPrimitiveList,
    /// `$setElementOrder` without the name of a list, or two that differ.
    #[error("invalid patch format of setElementOrder list")]
    SetElementOrder,
    /// The items of a patch are in another order than its `$setElementOrder` says, or not all of them are there.
    #[error("the order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n")]
    Order {
        /// The items, as Go prints them.
        patch: String,
        /// The order, as Go prints it.
        order: String,
    },
    /// There is no such field to order.
    #[error("unable to find api field in struct {ty} for the json field {field:?}")]
    UnknownField {
        /// The Go type.
        ty: Str,
        /// The field.
        field: Str,
    },
    /// A value is of the wrong type.
    #[error("expected a {expected}, but received a {found}")]
    Type {
        /// What should be there, in Go's words.
        expected: &'static str,
        /// What is there, in Go's words.
        found: &'static str,
    },
    /// A list to be merged has items of more than one type.
    #[error("list element types are not identical: {0}")]
    MixedTypes(String),
    /// A list to be merged has lists for items.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// A list to be put in order is empty.
    #[error("no elements in any of the given slices")]
    NoElements,
    /// The fields that a patch changes have been changed by somebody else.
    #[error("patch:\n{patch}\nconflicts with changes made from original to current:\n{changed}\n")]
    Conflict {
        /// The patch.
        patch: Value,
        /// What has become of the original since.
        changed: Value,
    },
}

/// What to do about fields that were changed since the original, and not to what the patch makes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// They become what the patch says.
    Overwrite,
    /// The patch is not made.
    Refuse,
}

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";

const LIST: &str = "[]interface {}";
const OBJECT: &str = "map[string]interface {}";

/// Changes `current`, of type `schema`, by `patch`.
pub fn apply(current: Object, patch: Object, schema: Schema<'_>) -> Result<Object, Error> {
    merge::objects(current, patch, Spot::root(schema), merge::Onto::Object)
}

/// The patch that makes `modified` out of `original`.
pub fn create_two_way(original: &Object, modified: &Object, schema: Schema<'_>) -> Result<Object, Error> {
    let options = diff::Options { order: true, changes: true, deletions: true };
    diff::objects(original, modified, Spot::root(schema), options)
}

/// The patch that brings `current` to what `modified` says: what `modified` adds or changes is set, what was in
/// `original` and is no longer in `modified` is removed, and what only `current` has stays.
pub fn create_three_way(
    original: &Object,
    modified: &Object,
    current: &Object,
    schema: Schema<'_>,
    on_conflict: OnConflict,
) -> Result<Object, Error> {
    let root = Spot::root(schema);
    let settings = diff::Options { order: true, changes: true, deletions: false };
    let removals = diff::Options { order: true, changes: false, deletions: true };
    let set = diff::objects(current, modified, root, settings)?;
    let removed = diff::objects(original, modified, root, removals)?;
    let patch = merge::objects(removed, set, root, merge::Onto::Patch)?;
    if on_conflict == OnConflict::Refuse {
        let options = diff::Options { order: false, changes: true, deletions: true };
        let changed = diff::objects(original, current, root, options)?;
        if conflict::objects(&patch, &changed, root)? {
            return Err(root.error(Fault::Conflict { patch: patch.into(), changed: changed.into() }));
        }
    }
    Ok(patch)
}

/// Where a walk is, and what is known of the type there: nothing below a field that the schema does not have.
#[derive(Clone, Copy)]
struct Spot<'a> {
    schema: Option<Schema<'a>>,
    path: &'a Path<'a>,
}

/// How a field is patched, and its type.
#[derive(Clone, Copy)]
struct Strategy<'a> {
    patch: &'a schema::Patch,
    schema: Option<Schema<'a>>,
}

static PLAIN: schema::Patch = schema::Patch { merge: false, replace: false, retain_keys: false, merge_key: None };

impl<'a> Spot<'a> {
    const fn root(schema: Schema<'a>) -> Self {
        Self { schema: Some(schema), path: &Path::ROOT }
    }

    fn strategy(self, key: &str) -> Strategy<'a> {
        match self.schema.and_then(|schema| schema.field(key)) {
            Some((field, schema)) => Strategy { patch: &field.patch, schema: Some(schema) },
            None => Strategy { patch: &PLAIN, schema: self.schema.and_then(|schema| schema.child(key)) },
        }
    }

    /// Like [`Spot::strategy`], but a struct must have the field.
    fn known_strategy(self, key: &str) -> Result<Strategy<'a>, Error> {
        match self.schema {
            Some(schema) if matches!(schema.shape(), Shape::Struct(_)) && schema.field(key).is_none() => {
                let name = &schema.ty().name;
                let ty = name.rsplit_once('.').map_or(name.as_str(), |(_, name)| name).into();
                Err(self.error(Fault::UnknownField { ty, field: key.into() }))
            }
            _ => Ok(self.strategy(key)),
        }
    }

    fn error(self, fault: Fault) -> Error {
        Error { path: self.path.to_string(), fault }
    }

    fn wrong_type(self, expected: &'static str, found: &Value) -> Error {
        self.error(Fault::Type { expected, found: gofmt::type_name(found) })
    }
}

impl<'a> Strategy<'a> {
    fn at(self, path: &'a Path<'a>) -> Spot<'a> {
        Spot { schema: self.schema, path }
    }

    fn items_at(self, path: &'a Path<'a>) -> Spot<'a> {
        Spot { schema: self.schema.and_then(Schema::item), path }
    }
}

impl Fault {
    pub(super) const fn blame(&self) -> Blame {
        match self {
            Self::RetainKeys | Self::DeleteFromPrimitiveList | Self::SetElementOrder => Blame::BadRequest,
            Self::ListOfLists => Blame::Unprocessable,
            _ => Blame::Internal,
        }
    }
}

/// The directive of an object, if it has one that is a string.
fn directive(value: &Value) -> Option<&str> {
    value.get(DIRECTIVE).and_then(Value::as_str)
}

fn is_directive(key: &str) -> bool {
    key == DIRECTIVE
        || key == RETAIN_KEYS
        || key.starts_with(SET_ELEMENT_ORDER)
        || key.starts_with(DELETE_FROM_PRIMITIVE_LIST)
}
