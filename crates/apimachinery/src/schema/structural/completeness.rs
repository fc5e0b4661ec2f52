//! Completeness of structural schemas: every part mentioned in a junctor must be described outside of it.

use super::{list, properties, schema_at};
use crate::field::{Error, Errors};
use crate::{Path, Value};

/// Reports each part that only a junctor of the schema at `path` mentions. Like upstream, it checks the junctors of the
/// root object only, not those of its parts.
pub(super) fn check(schema: &Value, path: &Path, errors: &mut Errors) {
    junctors(schema, schema, path, path, errors);
}

/// Compares `restriction` at `restriction_path` with `schema` at `path`, which describes the same value.
fn junctors(restriction: &Value, schema: &Value, path: &Path, restriction_path: &Path, errors: &mut Errors) {
    if let Some(inner) = schema_at(restriction, "not") {
        nested(inner, schema, path, &restriction_path.field("not"), errors);
    }
    for word in ["allOf", "anyOf", "oneOf"] {
        let below = restriction_path.field(word);
        for (at, inner) in list(restriction, word).iter().enumerate() {
            nested(inner, schema, path, &below.index(at), errors);
        }
    }
}

fn nested(restriction: &Value, schema: &Value, path: &Path, restriction_path: &Path, errors: &mut Errors) {
    junctors(restriction, schema, path, restriction_path, errors);
    let mut part = |inner: &Value, described: Option<&Value>, path: &Path, restriction_path: &Path| match described {
        Some(described) => nested(inner, described, path, restriction_path, errors),
        None => errors.push(Error::required(path, format!("because it is defined in {restriction_path}"))),
    };
    if let Some(items) = schema_at(restriction, "items") {
        part(items, schema_at(schema, "items"), &path.field("items"), &restriction_path.field("items"));
    }
    let (described, mentioned) = (path.field("properties"), restriction_path.field("properties"));
    for (name, property) in properties(restriction) {
        part(property, schema.at(&["properties", name]), &described.key(name), &mentioned.key(name));
    }
}
