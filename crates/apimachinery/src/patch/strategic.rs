//! Strategic Merge Patch: a merge patch that knows from the schema which lists are sets or maps.
//!
//! | in a patch | means |
//! |---|---|
//! | `field: null` | the field is removed |
//! | `$patch: replace` or `delete` in an object | the object becomes the rest of the patch, or empty |
//! | `$patch: delete` in an item of a merged list | the item with its merge key is removed |
//! | `$patch: replace` as an item of a merged list | the list becomes the other items |
//! | `$retainKeys: [a, b]` | all fields except these are removed |
//! | `$setElementOrder/list: […]` | the order of the listed items |
//! | `$deleteFromPrimitiveList/list: […]` | these scalars are removed from the list |
//!
//! Fields that the schema does not declare are merged as in a JSON merge patch. Added values contain no directives and
//! no nulls.
// DEVIATION: upstream rejects merging two objects of unknown type (such as raw extensions).

mod conflict;
mod diff;
mod list;
mod merge;
mod restore;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use crate::patch::{ErrorClass, gofmt};
use crate::schema::{self, Schema, Shape};
use crate::{Object, Path, Str, Value};

pub use restore::{TypeMismatch, check_types, quoted};

/// A strategic merge patch cannot be applied or created. Displays upstream's message, which has no path.
#[derive(Debug, thiserror::Error)]
#[error("{fault}")]
pub struct Error {
    pub path: String,
    pub fault: Fault,
}

/// The reason why a strategic merge patch, or the object it is for, is invalid.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Fault {
    #[error("map: {map} does not contain declared merge key: {key}")]
    NoMergeKey {
        /// The item as printed by Go.
        map: String,
        key: Str,
    },
    /// A list of objects with the merge strategy has no merge key.
    #[error("cannot merge lists without merge key for struct")]
    NoMergeKeyDeclared,
    /// A merge key or set item is a list or an object.
    #[error("cannot identify items by a {0}")]
    NotComparable(&'static str),
    #[error("unknown patch type: {directive} in map: {map}")]
    UnknownDirective {
        /// The value as printed by Go.
        directive: String,
        /// The object as printed by Go.
        map: String,
    },
    /// `$patch: merge` in a list item.
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirective,
    /// A directive is not a string where two objects with directives are compared.
    #[error("invalid value for special key: $patch")]
    BadDirective,
    /// `$retainKeys` is not a list of names, or the patch has a field that is not in it.
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    /// Two patches that are merged into one retain different fields.
    #[error("{0} and {1} are not deep equal: this may happen when calculating the 3-way diff patch")]
    RetainKeysDiffer(String, String),
    /// `$deleteFromPrimitiveList` has no list name, or is not a list.
    #[error("invalid patch format of primitive list")]
    DeleteFromPrimitiveList,
    /// `$setElementOrder` has no list name, or two of them differ.
    #[error("invalid patch format of setElementOrder list")]
    SetElementOrder,
    /// The items of a patch have a different order than its `$setElementOrder`, or some are missing in it.
    #[error("the order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n")]
    Order {
        /// The items as printed by Go.
        patch: String,
        /// The order as printed by Go.
        order: String,
    },
    #[error("unable to find api field in struct {ty} for the json field {field:?}")]
    UnknownField {
        /// The Go type.
        ty: Str,
        field: Str,
    },
    #[error("expected a {expected}, but received a {found}")]
    Type {
        /// The expected Go type.
        expected: &'static str,
        /// The found Go type.
        found: &'static str,
    },
    #[error("list element types are not identical: {0}")]
    MixedTypes(String),
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("no elements in any of the given slices")]
    NoElements,
    /// Fields that the patch changes were changed concurrently.
    #[error("patch:\n{patch}\nconflicts with changes made from original to current:\n{changed}\n")]
    Conflict {
        patch: Value,
        /// The changes from the original to the current object.
        changed: Value,
    },
}

/// The handling of conflicts: fields that both the current object and the patch change, to different values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// The patch's values win.
    Overwrite,
    /// Creating the patch fails.
    Fail,
}

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";

const LIST: &str = "[]interface {}";
const OBJECT: &str = "map[string]interface {}";

/// Applies `patch` to `current`, which is of type `schema`.
pub fn apply(current: Object, patch: Object, schema: Schema<'_>) -> Result<Object, Error> {
    merge::objects(current, patch, Spot::root(schema), merge::Onto::Object)
}

/// Returns the patch from `original` to `modified`.
pub fn create_two_way(original: &Object, modified: &Object, schema: Schema<'_>) -> Result<Object, Error> {
    let options = diff::Options { order: true, changes: true, deletions: true };
    diff::objects(original, modified, Spot::root(schema), options)
}

/// Returns the patch that brings `current` to `modified`: fields that `modified` adds or changes are set, fields that
/// `original` has and `modified` lacks are removed, and fields that only `current` has stay.
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
    if on_conflict == OnConflict::Fail {
        let options = diff::Options { order: false, changes: true, deletions: true };
        let changed = diff::objects(original, current, root, options)?;
        if conflict::objects(&patch, &changed, root)? {
            return Err(root.error(Fault::Conflict { patch: patch.into(), changed: changed.into() }));
        }
    }
    Ok(patch)
}

/// The path and the type at a node of a walk. The type is unknown below a field that the schema does not declare.
#[derive(Clone, Copy)]
struct Spot<'a> {
    schema: Option<Schema<'a>>,
    path: &'a Path<'a>,
}

/// The patch strategy and the type of a field.
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

    /// Returns the strategy of a field like [`Spot::strategy`], but fails if a struct does not declare the field.
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
    pub(super) const fn blame(&self) -> ErrorClass {
        match self {
            Self::RetainKeys | Self::DeleteFromPrimitiveList | Self::SetElementOrder => ErrorClass::BadRequest,
            Self::ListOfLists => ErrorClass::Unprocessable,
            _ => ErrorClass::Internal,
        }
    }
}

/// Returns the `$patch` directive of an object, if it is a string.
fn directive(value: &Value) -> Option<&str> {
    value.get(DIRECTIVE).and_then(Value::as_str)
}

fn is_directive(key: &str) -> bool {
    key == DIRECTIVE
        || key == RETAIN_KEYS
        || key.starts_with(SET_ELEMENT_ORDER)
        || key.starts_with(DELETE_FROM_PRIMITIVE_LIST)
}
