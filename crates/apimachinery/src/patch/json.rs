//! JSON Patch (RFC 6902) with the extensions of the library that Kubernetes uses.
//!
//! The `json-patch` crate works on `serde_json::Value`: converting the object there and back costs more than the patch,
//! and the crate is stricter than Kubernetes. Kubernetes' extensions: negative indexes count from the end of a list;
//! `replace` sets an absent key; `test` for `null` holds for an absent value, and `copy` of an absent value copies
//! `null`; a missing `value` is `null`; a pointer's text before its first `/` is ignored.
//!
//! A patch may be hostile: the number of operations, the copied bytes, the nesting depth and the work are bounded.

use std::borrow::Cow;
use std::fmt;

use crate::patch::DEPTH_MAX;
use crate::{Object, Str, Value, json};

#[cfg(test)]
mod tests;

/// Maximum number of operations in a patch.
pub const OPERATIONS_MAX: usize = 10_000;

/// Maximum total bytes of JSON that the `copy` operations of a patch may add: 3 MiB.
pub const COPIED_MAX: usize = 3 << 20;

/// Maximum number of entries that the operations of a patch may move or read: about a second of work. Reached only by
/// thousands of operations on lists or objects with tens of thousands of entries.
// DEVIATION: upstream does not limit the running time of such a patch.
const WORK_MAX: usize = 1 << 28;

#[derive(Clone, Debug, Default)]
pub struct Patch {
    operations: Vec<Operation>,
    unknown: Vec<String>,
}

/// A tree is not a JSON patch, or the patch does not apply.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("json: cannot unmarshal {0} into Go value of type []handlers.jsonPatchOp")]
    NotAList(&'static str),
    #[error("json: cannot unmarshal {found} into Go value of type handlers.jsonPatchOp")]
    NotAnOperation {
        index: usize,
        /// The JSON type of the entry.
        found: &'static str,
    },
    #[error("json: cannot unmarshal {found} into Go struct field jsonPatchOp.{field} of type string")]
    NotAString {
        index: usize,
        field: &'static str,
        /// The JSON type of the field.
        found: &'static str,
    },
    /// The patch has more than [`OPERATIONS_MAX`] operations.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {0}")]
    TooMany(usize),
    #[error("operation {index} ({op} {path:?}) does not apply")]
    Failed {
        index: usize,
        op: Op,
        path: Str,
        #[source]
        fault: Fault,
    },
}

/// The reason why an operation does not apply to a tree.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("Unexpected kind: {0}")]
    Unknown(Str),
    #[error("operation missing {0} field: missing value")]
    NoPointer(&'static str),
    /// A value on the path of a pointer does not exist, or is not a list or object.
    #[error("doc is missing {role}: {pointer:?}: missing value")]
    Absent {
        /// The role of the pointer: `path`, `from path` or `destination path`.
        role: &'static str,
        pointer: Str,
    },
    #[error("Unable to remove nonexistent key: {0}: missing value")]
    NoKey(Str),
    #[error("Unable to access invalid index: {0}: invalid index referenced")]
    NoIndex(i64),
    #[error("value was not a proper array index: '{0}'")]
    NotAnIndex(Str),
    #[error("testing value {0} failed: test failed")]
    Test(Str),
    /// The document would be replaced by a scalar.
    #[error("replace operation value must be object or array")]
    Scalar,
    /// The copies exceed [`COPIED_MAX`].
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {0}, exceeding the limit {COPIED_MAX}"
    )]
    Copied(usize),
    /// The result would exceed [`DEPTH_MAX`].
    #[error("the result would be nested more than {DEPTH_MAX} levels deep")]
    Depth,
    /// The operations exceed `WORK_MAX`.
    #[error("the operations so far have moved too many entries")]
    Work,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets a key, or inserts into a list.
    Add,
    Remove,
    Replace,
    Move,
    Copy,
    /// Fails unless the value at the path is the given one.
    Test,
    /// An unknown operation.
    Other(Str),
}

#[derive(Clone, Debug)]
struct Operation {
    op: Op,
    path: Option<Str>,
    from: Option<Str>,
    value: Value,
}

impl Patch {
    /// Parses the operations of a patch.
    pub fn new(patch: Value) -> Result<Self, Error> {
        let items = match patch {
            Value::Array(items) => items,
            Value::Null => return Ok(Self::default()),
            other => return Err(Error::NotAList(other.kind())),
        };
        if items.len() > OPERATIONS_MAX {
            return Err(Error::TooMany(items.len()));
        }
        let mut read = Self { operations: Vec::with_capacity(items.len()), unknown: Vec::new() };
        for (index, item) in items.into_iter().enumerate() {
            match item {
                Value::Object(item) => read.push(index, item)?,
                Value::Null => read.push(index, Object::new())?,
                other => return Err(Error::NotAnOperation { index, found: other.kind() }),
            }
        }
        Ok(read)
    }

    /// Returns the paths of unknown fields of operations: `[0].vaule`.
    pub fn unknown_fields(&self) -> &[String] {
        &self.unknown
    }

    /// Applies all operations to `current`, or none.
    pub fn apply(self, current: Value) -> Result<Value, Error> {
        let mut document = Document { root: current, copied: 0, work: 0 };
        for (index, operation) in self.operations.into_iter().enumerate() {
            let (op, path) = (operation.op.clone(), operation.path.clone().unwrap_or_default());
            document.run(operation).map_err(|fault| Error::Failed { index, op, path, fault })?;
        }
        Ok(document.root)
    }

    fn push(&mut self, index: usize, mut item: Object) -> Result<(), Error> {
        let mut text = |field| match item.remove(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(Error::NotAString { index, field, found: other.kind() }),
        };
        let (op, path, from) = (text("op")?, text("path")?, text("from")?);
        let value = item.remove("value").unwrap_or_default();
        self.unknown.extend(item.keys().map(|key| format!("[{index}].{key}")));
        self.operations.push(Operation { op: Op::from(op), path, from, value });
        Ok(())
    }
}

impl From<Option<Str>> for Op {
    fn from(name: Option<Str>) -> Self {
        match name.as_deref() {
            Some("add") => Self::Add,
            Some("remove") => Self::Remove,
            Some("replace") => Self::Replace,
            Some("move") => Self::Move,
            Some("copy") => Self::Copy,
            Some("test") => Self::Test,
            _ => Self::Other(name.unwrap_or_else(|| "unknown".into())),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Replace => "replace",
            Self::Move => "move",
            Self::Copy => "copy",
            Self::Test => "test",
            Self::Other(name) => name,
        })
    }
}

/// A tree under modification, with the cost of the modifications so far.
struct Document {
    root: Value,
    copied: usize,
    work: usize,
}

impl Document {
    fn run(&mut self, operation: Operation) -> Result<(), Fault> {
        let Operation { op, path, from, value } = operation;
        let path = || path.ok_or(Fault::NoPointer("path"));
        let from = || from.ok_or(Fault::NoPointer("from"));
        match op {
            Op::Add => self.add(&path()?, "path", value),
            Op::Remove => self.remove(&path()?, "path").map(drop),
            Op::Replace => self.replace(&path()?, value),
            Op::Move => {
                let value = self.remove(&from()?, "from path")?;
                self.add(&path()?, "destination path", value)
            }
            Op::Copy => {
                let value = self.copied(&from()?)?;
                self.add(&path()?, "destination path", value)
            }
            Op::Test => self.test(&path()?, &value),
            Op::Other(name) => Err(Fault::Unknown(name)),
        }
    }

    fn add(&mut self, pointer: &str, role: &'static str, value: Value) -> Result<(), Fault> {
        let target = PointerTarget::find(&mut self.root, pointer, role)?;
        spend(&mut self.work, target.holder.entries())?;
        check_depth(&target, &value, &mut self.work)?;
        match target.holder {
            Parent::Object(object) => {
                object.insert(target.key, value);
            }
            Parent::Array(items) => {
                let at = if target.key == "-" { items.len() } else { index(&target.key, items.len() + 1)? };
                items.insert(at, value);
            }
        }
        Ok(())
    }

    fn remove(&mut self, pointer: &str, role: &'static str) -> Result<Value, Fault> {
        let target = PointerTarget::find(&mut self.root, pointer, role)?;
        spend(&mut self.work, target.holder.entries())?;
        match target.holder {
            Parent::Object(object) => object.remove(&target.key).ok_or_else(|| Fault::NoKey(target.key.into())),
            Parent::Array(items) => {
                let at = index(&target.key, items.len())?;
                Ok(items.remove(at))
            }
        }
    }

    fn replace(&mut self, pointer: &str, value: Value) -> Result<(), Fault> {
        if pointer.is_empty() {
            if !matches!(value, Value::Object(_) | Value::Array(_)) {
                return Err(Fault::Scalar);
            }
            self.root = value;
            return Ok(());
        }
        let target = PointerTarget::find(&mut self.root, pointer, "path")?;
        check_depth(&target, &value, &mut self.work)?;
        match target.holder {
            Parent::Object(object) => {
                spend(&mut self.work, object.len())?;
                object.insert(target.key, value);
            }
            Parent::Array(items) => {
                let at = index(&target.key, items.len())?;
                items[at] = value;
            }
        }
        Ok(())
    }

    // DEVIATION: strings and numbers are compared as values; upstream compares their text.
    fn test(&mut self, pointer: &str, value: &Value) -> Result<(), Fault> {
        let found = if pointer.is_empty() { &self.root } else { self.read(pointer, "path")? };
        if found == value { Ok(()) } else { Err(Fault::Test(pointer.into())) }
    }

    fn copied(&mut self, pointer: &str) -> Result<Value, Fault> {
        let value = self.read(pointer, "from path")?.clone();
        if !value.is_null() {
            self.copied += json::to_vec(&value).len();
        }
        if self.copied > COPIED_MAX { Err(Fault::Copied(self.copied)) } else { Ok(value) }
    }

    /// Returns the value at a pointer; `null` for an absent key.
    fn read(&mut self, pointer: &str, role: &'static str) -> Result<&Value, Fault> {
        let target = PointerTarget::find(&mut self.root, pointer, role)?;
        match target.holder {
            Parent::Object(object) => Ok(object.get(&target.key).unwrap_or(&Value::Null)),
            Parent::Array(items) => {
                let at = index(&target.key, items.len())?;
                Ok(&items[at])
            }
        }
    }
}

/// The target of a pointer: a list or an object, and the last token.
struct PointerTarget<'t, 'p> {
    holder: Parent<'t>,
    key: Cow<'p, str>,
    depth: usize,
}

enum Parent<'a> {
    Object(&'a mut Object),
    Array(&'a mut Vec<Value>),
}

impl<'t, 'p> PointerTarget<'t, 'p> {
    fn find(root: &'t mut Value, pointer: &'p str, role: &'static str) -> Result<Self, Fault> {
        Self::walk(root, pointer).ok_or_else(|| Fault::Absent { role, pointer: pointer.into() })
    }

    fn walk(mut value: &'t mut Value, pointer: &'p str) -> Option<Self> {
        let (_, tokens) = pointer.split_once('/')?;
        let mut depth = 0;
        let mut tokens = tokens.split('/').map(unescape).peekable();
        loop {
            let key = tokens.next()?;
            depth += 1;
            let holder = match value {
                Value::Object(object) => Parent::Object(object),
                Value::Array(items) => Parent::Array(items),
                _ => return None,
            };
            if tokens.peek().is_none() {
                return Some(Self { holder, key, depth });
            }
            value = match holder {
                Parent::Object(object) => object.get_mut(&key)?,
                Parent::Array(items) => {
                    let at = index(&key, items.len()).ok()?;
                    &mut items[at]
                }
            };
        }
    }
}

impl Parent<'_> {
    const fn entries(&self) -> usize {
        match self {
            Self::Object(object) => object.len(),
            Self::Array(items) => items.len(),
        }
    }
}

fn unescape(token: &str) -> Cow<'_, str> {
    if !token.contains('~') {
        return token.into();
    }
    // `~01` is `~1` and not `/`: slashes are replaced first, and the resulting tilde does not start another escape.
    token.replace("~1", "/").replace("~0", "~").into()
}

/// Returns the index that `key` denotes in a list of `len` items; a negative one counts from the end.
fn index(key: &str, len: usize) -> Result<usize, Fault> {
    let given: i64 = key.parse().map_err(|_| Fault::NotAnIndex(key.into()))?;
    let len = i64::try_from(len).expect("a list in memory has fewer than 2^63 entries");
    let at = if given < 0 { given.saturating_add(len) } else { given };
    if at >= len {
        return Err(Fault::NoIndex(given));
    }
    usize::try_from(at).map_err(|_| Fault::NoIndex(given))
}

fn check_depth(target: &PointerTarget<'_, '_>, value: &Value, work: &mut usize) -> Result<(), Fault> {
    let below = height(value, work);
    spend(work, 0)?;
    if target.depth + below > DEPTH_MAX { Err(Fault::Depth) } else { Ok(()) }
}

fn height(value: &Value, work: &mut usize) -> usize {
    *work += 1;
    match value {
        Value::Array(items) => 1 + items.iter().map(|item| height(item, work)).max().unwrap_or(0),
        Value::Object(object) => 1 + object.values().map(|item| height(item, work)).max().unwrap_or(0),
        _ => 0,
    }
}

fn spend(work: &mut usize, entries: usize) -> Result<(), Fault> {
    *work += entries;
    if *work > WORK_MAX { Err(Fault::Work) } else { Ok(()) }
}
