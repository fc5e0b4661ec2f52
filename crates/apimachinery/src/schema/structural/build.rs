//! Construction of types from a structural schema.

use super::super::{
    Field, Format, JsonType, Junctors, List, ListKind, ListRules, Map, NestedValidation, NumberRules, ObjectRules,
    Omit, Patch, Pattern, PatternError, Rules, Shape, StringRules, Struct, Type, TypeId, Types, Validation,
};
use super::{is_true, list, properties, schema_at, text};
use crate::{Str, Value};

/// A schema cannot be converted to types.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("pattern {pattern:?} is not a regular expression")]
    Pattern {
        /// The source text.
        pattern: String,
        source: PatternError,
    },
    #[error("schema is nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
}

/// Maximum depth: twice the depth limit of the JSON that contains a schema, which no valid schema exceeds.
const DEPTH_MAX: usize = 256;

/// The keywords that create rules; a schema without any of them has no rules.
const RULE_KEYWORDS: [&str; 21] = [
    "format",
    "enum",
    "maximum",
    "minimum",
    "multipleOf",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxProperties",
    "minProperties",
    "required",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "x-kubernetes-validations",
    "x-kubernetes-preserve-unknown-fields",
    "additionalProperties",
];

/// Returns the types that `schema` describes, and the ID of the root type.
pub(super) fn types(schema: &Value) -> Result<(Types, TypeId), Error> {
    let mut builder = Builder { types: Types::new() };
    let mut ty = builder.ty(schema, DEPTH_MAX)?;
    if let Shape::Struct(root) = &mut ty.shape {
        // The root object has `apiVersion`, `kind` and `metadata` regardless of the schema.
        root.embedded = true;
    }
    let root = builder.types.add(ty);
    Ok((builder.types, root))
}

struct Builder {
    types: Types,
}

impl Builder {
    fn add(&mut self, schema: &Value, depth: usize) -> Result<TypeId, Error> {
        let ty = self.ty(schema, depth)?;
        Ok(self.types.add(ty))
    }

    fn ty(&mut self, schema: &Value, depth: usize) -> Result<Type, Error> {
        let depth = depth.checked_sub(1).ok_or(Error::TooDeep)?;
        let json_type = text(schema, "type").and_then(JsonType::named);
        let shape = self.shape(schema, json_type, depth)?;
        let untyped = json_type.is_none() && matches!(shape, Shape::List(_) | Shape::Map(_) | Shape::Struct(_));
        let mut made = if untyped || RULE_KEYWORDS.iter().any(|word| schema.get(word).is_some()) {
            Some(Box::new(rules(schema, json_type, depth)?))
        } else {
            None
        };
        if let Some(rules) = &mut made {
            rules.untyped = untyped;
        }
        Ok(Type { name: Str::default(), shape, nullable: is_true(schema, "nullable"), rules: made })
    }

    fn shape(&mut self, schema: &Value, json_type: Option<JsonType>, depth: usize) -> Result<Shape, Error> {
        if is_true(schema, "x-kubernetes-int-or-string") {
            return Ok(Shape::IntOrString);
        }
        Ok(match json_type {
            Some(JsonType::Boolean) => Shape::Bool,
            Some(JsonType::Integer) if text(schema, "format") == Some("int32") => Shape::Int32,
            Some(JsonType::Integer) => Shape::Int64,
            Some(JsonType::Number) => Shape::Double,
            Some(JsonType::String) => Shape::String,
            Some(JsonType::Array) => Shape::List(self.list(schema, depth)?),
            Some(JsonType::Object) => self.object(schema, depth)?,
            None if schema.get("properties").is_some() || schema.get("additionalProperties").is_some() => {
                self.object(schema, depth)?
            }
            None if schema.get("items").is_some() => Shape::List(self.list(schema, depth)?),
            None => Shape::Any,
        })
    }

    fn list(&mut self, schema: &Value, depth: usize) -> Result<List, Error> {
        let items = schema_at(schema, "items");
        let item = match items {
            Some(items) => self.add(items, depth)?,
            None => self.types.add(Type::new("", Shape::Any)),
        };
        let kind = match text(schema, "x-kubernetes-list-type") {
            Some("set") => ListKind::Set,
            Some("map") => ListKind::Map(strings(schema, "x-kubernetes-list-map-keys")),
            _ => ListKind::Atomic,
        };
        Ok(List { item, kind, item_default: items.and_then(default_of) })
    }

    fn object(&mut self, schema: &Value, depth: usize) -> Result<Shape, Error> {
        let atomic = text(schema, "x-kubernetes-map-type") == Some("atomic");
        let named = properties(schema);
        let others = schema.get("additionalProperties");
        if named.len() == 0
            && let Some(others) = others.filter(|others| !others.is_null())
        {
            let value = match others.as_object() {
                Some(_) => self.add(others, depth)?,
                None => self.types.add(nothing_known()),
            };
            return Ok(Shape::Map(Map { value, atomic, value_default: default_of(others) }));
        }
        let required = strings(schema, "required");
        let mut fields = Vec::with_capacity(named.len());
        for (name, property) in named {
            fields.push(Field {
                name: name.into(),
                ty: self.add(property, depth)?,
                required: required.iter().any(|one| one == name),
                omit: Omit::Empty,
                pointer: true,
                default: default_of(property),
                patch: Patch::default(),
                inlined: Box::default(),
            });
        }
        let preserve = is_true(schema, "x-kubernetes-preserve-unknown-fields");
        Ok(Shape::Struct(Struct {
            fields: fields.into(),
            atomic,
            // DEVIATION: next to `properties`, `additionalProperties: true` keeps unknown fields unchanged; upstream
            // keeps their names and empties the objects in them.
            open: preserve || others.and_then(Value::as_bool) == Some(true),
            embedded: is_true(schema, "x-kubernetes-embedded-resource"),
            ..Struct::default()
        }))
    }
}

/// Returns the type of values that are allowed but not described: any value, with objects emptied by pruning.
fn nothing_known() -> Type {
    let rules = Rules { untyped: true, ..Rules::default() };
    Type { rules: Some(Box::new(rules)), ..Type::new("", Shape::Struct(Struct::default())) }
}

fn default_of(schema: &Value) -> Option<Value> {
    schema.get("default").filter(|default| !default.is_null()).cloned()
}

fn rules(schema: &Value, json_type: Option<JsonType>, depth: usize) -> Result<Rules, Error> {
    let number = |word: &str| schema.get(word).and_then(Value::as_float);
    let count = |word: &str| schema.get(word).and_then(Value::as_int);
    let int_or_string = is_true(schema, "x-kubernetes-int-or-string");
    Ok(Rules {
        untyped: false,
        preserve: is_true(schema, "x-kubernetes-preserve-unknown-fields"),
        closed: schema.get("additionalProperties").and_then(Value::as_bool) == Some(false),
        // An int-or-string has two types; upstream does not validate its format.
        format: text(schema, "format").filter(|_| !int_or_string).and_then(|name| Format::named(name, json_type)),
        values: list(schema, "enum").into(),
        number: NumberRules {
            maximum: number("maximum"),
            exclusive_maximum: is_true(schema, "exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: is_true(schema, "exclusiveMinimum"),
            multiple_of: number("multipleOf"),
        },
        string: StringRules {
            characters_max: count("maxLength"),
            characters_min: count("minLength"),
            pattern: pattern(schema)?,
        },
        list: ListRules {
            items_max: count("maxItems"),
            items_min: count("minItems"),
            unique: is_true(schema, "uniqueItems"),
        },
        object: ObjectRules {
            keys_max: count("maxProperties"),
            keys_min: count("minProperties"),
            required: strings(schema, "required"),
        },
        junctors: junctors(schema, depth)?,
        validations: list(schema, "x-kubernetes-validations").iter().map(validation).collect(),
    })
}

fn pattern(schema: &Value) -> Result<Option<Pattern>, Error> {
    let Some(source) = text(schema, "pattern").filter(|source| !source.is_empty()) else { return Ok(None) };
    Pattern::new(source).map(Some).map_err(|error| Error::Pattern { pattern: source.to_owned(), source: error })
}

fn junctors(schema: &Value, depth: usize) -> Result<Option<Box<Junctors>>, Error> {
    let all = |word: &str| list(schema, word).iter().map(|inner| nested(inner, depth)).collect::<Result<_, _>>();
    if !["allOf", "anyOf", "oneOf", "not"].iter().any(|word| schema.get(word).is_some()) {
        return Ok(None);
    }
    let not = schema_at(schema, "not").map(|inner| nested(inner, depth)).transpose()?;
    Ok(Some(Box::new(Junctors { all_of: all("allOf")?, any_of: all("anyOf")?, one_of: all("oneOf")?, not })))
}

fn nested(schema: &Value, depth: usize) -> Result<NestedValidation, Error> {
    let depth = depth.checked_sub(1).ok_or(Error::TooDeep)?;
    let json_type = text(schema, "type").and_then(JsonType::named);
    let inner = properties(schema).map(|(name, property)| Ok((name.into(), nested(property, depth)?)));
    Ok(NestedValidation {
        json_type,
        rules: rules(schema, json_type, depth)?,
        properties: inner.collect::<Result<_, Error>>()?,
        items: schema_at(schema, "items").map(|items| nested(items, depth).map(Box::new)).transpose()?,
    })
}

fn validation(rule: &Value) -> Validation {
    let word = |key: &str| text(rule, key).unwrap_or_default().into();
    Validation {
        rule: word("rule"),
        message: word("message"),
        message_expression: word("messageExpression"),
        reason: text(rule, "reason").map(Into::into),
        field_path: word("fieldPath"),
        optional_old_self: rule.get("optionalOldSelf").and_then(Value::as_bool),
    }
}

fn strings(schema: &Value, key: &str) -> Box<[Str]> {
    list(schema, key).iter().filter_map(Value::as_str).map(Into::into).collect()
}
