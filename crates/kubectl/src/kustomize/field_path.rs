//! Paths to fields in objects, such as `spec/template/spec/containers[]/image`.

use apimachinery::{Object, Value};

use super::Error;
use super::resource::{Gvk, Resource};

/// A field of the objects of some kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSpec {
    /// Empty for any group.
    pub group: String,
    /// Empty for any version.
    pub version: String,
    /// Empty for any kind.
    pub kind: String,
    pub path: String,
    /// Whether an absent field is created.
    pub create: bool,
}

/// The value to create for an absent field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Create {
    Never,
    Scalar,
    Map,
}

impl FieldSpec {
    pub(super) fn new(path: &str) -> Self {
        Self { path: path.to_owned(), ..Self::default() }
    }

    #[must_use]
    pub(super) fn created(self) -> Self {
        Self { create: true, ..self }
    }

    #[must_use]
    pub(super) fn of_kind(self, kind: &str) -> Self {
        Self { kind: kind.to_owned(), ..self }
    }

    #[must_use]
    pub(super) fn of_group(self, group: &str) -> Self {
        Self { group: group.to_owned(), ..self }
    }

    #[must_use]
    pub(super) fn of_version(self, version: &str) -> Self {
        Self { version: version.to_owned(), ..self }
    }

    pub(super) fn selects(&self, gvk: &Gvk) -> bool {
        gvk.is_selected(&self.group, &self.version, &self.kind)
    }

    /// Calls `set` with each field at the path, if the resource is of this kind. Lists on the path are entered.
    pub(super) fn visit(
        &self,
        resource: &mut Resource,
        create: Create,
        set: &mut dyn FnMut(&mut Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if !self.selects(&resource.gvk()) {
            return Ok(());
        }
        let path = split(&self.path, '/');
        let create = if self.create { create } else { Create::Never };
        let outcome = walk(&mut resource.object, &path, create, set);
        outcome.map_err(|error| {
            let id = resource.current_id();
            error.context(format!("considering field '{}' of object {id}", self.path))
        })
    }
}

/// Splits a path; a backslash escapes the delimiter.
pub(super) fn split(path: &str, delimiter: char) -> Vec<String> {
    let path = path.strip_prefix(delimiter).unwrap_or(path);
    let mut parts: Vec<String> = Vec::new();
    for part in path.split(delimiter) {
        match parts.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push(delimiter);
                last.push_str(part);
            }
            _ => parts.push(part.to_owned()),
        }
    }
    parts
}

fn walk(
    value: &mut Value,
    path: &[String],
    create: Create,
    set: &mut dyn FnMut(&mut Value) -> Result<(), Error>,
) -> Result<(), Error> {
    let Some((first, rest)) = path.split_first() else { return set(value) };
    match value {
        Value::Null => Ok(()),
        Value::Array(items) => items.iter_mut().try_for_each(|item| walk(item, path, create, set)),
        Value::Object(object) => enter(object, first, rest, create, set),
        _ => Err(Error::new("expected sequence or mapping node")),
    }
}

fn enter(
    object: &mut Object,
    name: &str,
    rest: &[String],
    create: Create,
    set: &mut dyn FnMut(&mut Value) -> Result<(), Error>,
) -> Result<(), Error> {
    let list = name.ends_with("[]");
    let name = name.trim_end_matches("[]");
    if create == Create::Never || list {
        return object.get_mut(name).map_or(Ok(()), |field| walk(field, rest, create, set));
    }
    let map = create == Create::Map || !rest.is_empty();
    let field = object.get_or_insert_with(name, || Value::Null);
    if field.is_null() && map {
        *field = Value::object();
    }
    walk(field, rest, create, set)
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn lists_on_the_path_are_entered_and_fields_created() {
        let mut resource = Resource::new(value!({"kind": "A", "spec": {"list": [{"n": {}}, {}]}}));
        let mut set = |field: &mut Value| {
            *field = "x".into();
            Ok(())
        };
        FieldSpec::new("spec/list/n/v").created().visit(&mut resource, Create::Scalar, &mut set).unwrap();
        FieldSpec::new("spec/absent/v").visit(&mut resource, Create::Scalar, &mut set).unwrap();
        FieldSpec::new("other").created().of_kind("B").visit(&mut resource, Create::Scalar, &mut set).unwrap();
        assert_eq!(resource.object, value!({"kind": "A", "spec": {"list": [{"n": {"v": "x"}}, {"n": {"v": "x"}}]}}));
    }

    #[test]
    fn backslash_escapes_the_delimiter() {
        assert_eq!(split(r"metadata/annotations/a.io\/b", '/'), ["metadata", "annotations", "a.io/b"]);
    }
}
