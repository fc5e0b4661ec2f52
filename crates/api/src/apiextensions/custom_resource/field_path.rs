//! Field paths of `selectableFields` and of `fieldPath` in `x-kubernetes-validations`, resolved against a schema.

use apimachinery::schema::Shape;
use apimachinery::{Schema, Value};

/// The syntax allowed in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// Only `.a.b`.
    Dots,
    /// Also `.a['b']`.
    Brackets,
}

/// A resolved path.
#[derive(Debug)]
pub struct ResolvedPath<'a> {
    pub schema: &'a Value,
    /// The field names from the root to the field.
    pub steps: Vec<String>,
    /// The path as printed in validation errors: `spec.ports[http]`.
    pub printed: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("does not refer to a valid field")]
    NoField,
    #[error("array notation is not allowed")]
    Brackets,
    #[error("unexpected end of JSON path")]
    End,
    #[error("expected single quoted string but got {0}")]
    Unquoted(String),
    #[error("expected ] but got {0}")]
    Unclosed(String),
    #[error("expected [ or . but got: {0}")]
    Step(String),
    #[error("invalid string literal: invalid escape char {0}")]
    Escape(String),
}

/// Resolves a path against `schema`, an `openAPIV3Schema` or a part of one.
pub fn resolve<'a>(path: &str, schema: &'a Value, notation: Notation) -> Result<ResolvedPath<'a>, Error> {
    let mut found = ResolvedPath { schema, steps: Vec::new(), printed: String::new() };
    let mut rest = path;
    while let Some(token) = token(&mut rest) {
        match token {
            "." => {
                let name = self::token(&mut rest).ok_or(Error::End)?;
                found.step(name.to_owned())?;
            }
            "[" if notation == Notation::Dots => return Err(Error::Brackets),
            "[" => {
                let quoted = self::token(&mut rest).ok_or(Error::End)?;
                let inner = quoted
                    .strip_prefix('\'')
                    .and_then(|inner| inner.strip_suffix('\''))
                    .ok_or_else(|| Error::Unquoted(quoted.to_owned()))?;
                found.step(unescape(inner)?)?;
                let close = self::token(&mut rest).ok_or(Error::End)?;
                if close != "]" {
                    return Err(Error::Unclosed(close.to_owned()));
                }
            }
            other => return Err(Error::Step(other.to_owned())),
        }
    }
    Ok(found)
}

/// Formats a path that `schema` is known to have as in validation errors.
pub fn normalize(path: &str, schema: Schema<'_>) -> String {
    let (mut rest, mut out, mut schema) = (path, String::new(), Some(schema));
    while let Some(token) = token(&mut rest) {
        let name = match token {
            "." | "[" | "]" => continue,
            _ => token.strip_prefix('\'').and_then(|name| name.strip_suffix('\'')).unwrap_or(token),
        };
        let name = unescape(name).unwrap_or_else(|_| name.to_owned());
        if schema.is_some_and(|schema| matches!(schema.shape(), Shape::Map(_))) {
            out.extend(["[", &name, "]"]);
        } else {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
        }
        schema = schema.and_then(|schema| schema.child(&name));
    }
    out
}

impl ResolvedPath<'_> {
    fn step(&mut self, name: String) -> Result<(), Error> {
        let properties = self.schema.get("properties").and_then(Value::as_object).filter(|all| !all.is_empty());
        if let Some(properties) = properties {
            self.schema = properties.get(&name).ok_or(Error::NoField)?;
            if !self.printed.is_empty() {
                self.printed.push('.');
            }
            self.printed.push_str(&name);
        } else {
            let values = self.schema.get("additionalProperties").filter(|values| values.as_object().is_some());
            self.schema = values.ok_or(Error::NoField)?;
            self.printed.extend(["[", &name, "]"]);
        }
        self.steps.push(name);
        Ok(())
    }
}

/// Removes and returns the next delimiter, quoted string or name.
fn token<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let first = rest.chars().next()?;
    let end = match first {
        '.' | '[' | ']' => 1,
        '\'' => {
            let bytes = rest.as_bytes();
            (1..bytes.len()).find(|at| bytes[*at] == b'\'' && bytes[at - 1] != b'\\').map_or(rest.len(), |at| at + 1)
        }
        _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
    };
    let (token, after) = rest.split_at(end);
    *rest = after;
    Some(token)
}

fn unescape(text: &str) -> Result<String, Error> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            out.push(char);
            continue;
        }
        out.push(match chars.next() {
            Some('a') => '\x07',
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\x0b',
            Some(same @ ('\'' | '\\')) => same,
            other => return Err(Error::Escape(format!("\\{}", other.map(String::from).unwrap_or_default()))),
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn paths_resolve_to_schema_fields() {
        let schema = value!({"properties": {
            "spec": {"properties": {"a.b": {"type": "string"}, "c": {"type": "integer"}}},
            "map": {"additionalProperties": {"type": "string"}},
        }});
        let check = |path: &str, notation, expect: &str| {
            let found = resolve(path, &schema, notation).map(|found| found.printed);
            assert_eq!(found.unwrap_or_else(|error| error.to_string()), expect, "{path}");
        };
        check(".spec.c", Notation::Dots, "spec.c");
        check(".map.x", Notation::Dots, "map[x]");
        check(".spec['a.b']", Notation::Brackets, "spec.a.b");
        check(".map['it\\'s']", Notation::Brackets, "map[it's]");
        check(".spec['c']", Notation::Dots, "array notation is not allowed");
        check(".spec.d", Notation::Dots, "does not refer to a valid field");
        check(".spec.c.d", Notation::Dots, "does not refer to a valid field");
        check("spec", Notation::Dots, "expected [ or . but got: spec");
        check(".", Notation::Dots, "unexpected end of JSON path");
        check(".spec[c]", Notation::Brackets, "expected single quoted string but got c");
        check(".spec['c'", Notation::Brackets, "unexpected end of JSON path");
        check(".spec['c'.", Notation::Brackets, "expected ] but got .");
        check(".spec['\\q']", Notation::Brackets, "invalid string literal: invalid escape char \\q");
    }
}
