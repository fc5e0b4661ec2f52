//! Schema defaulting: sets absent fields to the defaults of their schema.

use crate::schema::{Field, Omit, Schema, Shape, Struct};
use crate::{Object, Str, Value};

/// Sets the schema's defaults, also inside inserted defaults. A `null` in a non-nullable field counts as absent: it
/// becomes the default, or is removed. Idempotent.
pub fn default(value: &mut Value, schema: Schema<'_>) {
    Pass { nulls: Nulls::Absent }.value(value, schema);
}

/// Sets the defaults of a built-in type. Here `null` is Go's encoding of nil; it is replaced only if the field has a
/// default.
pub fn default_built_in(value: &mut Value, schema: Schema<'_>) {
    Pass { nulls: Nulls::Printed }.value(value, schema);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Nulls {
    /// Counts as absent, unless the schema allows `null`.
    Absent,
    /// Go's encoding of nil.
    Printed,
}

#[derive(Clone, Copy)]
struct Pass {
    nulls: Nulls,
}

impl Pass {
    fn value(self, value: &mut Value, schema: Schema<'_>) {
        match (value, schema.shape()) {
            (Value::Object(object), Shape::Struct(shape)) => self.fields(object, shape, schema),
            (Value::Object(object), Shape::Map(map)) => {
                let ty = schema.other(map.value);
                if self.nulls == Nulls::Absent && !ty.ty().nullable && object.values().any(Value::is_null) {
                    match &map.value_default {
                        Some(default) => fill(object.iter_mut().map(|(_, value)| value), default),
                        None => object.retain(|_, value| !value.is_null()),
                    }
                }
                object.iter_mut().for_each(|(_, value)| self.value(value, ty));
            }
            (Value::Array(items), Shape::List(list)) => {
                let ty = schema.other(list.item);
                if let Some(default) = list.item_default.as_ref().filter(|_| !ty.ty().nullable) {
                    fill(items.iter_mut(), default);
                }
                items.iter_mut().for_each(|item| self.value(item, ty));
            }
            _ => {}
        }
    }

    fn fields(self, object: &mut Object, shape: &Struct, schema: Schema<'_>) {
        if object.values().any(Value::is_null) {
            let printed = self.nulls == Nulls::Printed;
            object.retain(|key, value| {
                let keeps_null =
                    |(field, ty): (&Field, Schema<'_>)| ty.ty().nullable || printed && field.default.is_none();
                !value.is_null() || schema.field(key).is_none_or(keeps_null)
            });
        }
        let entries = object.entries_mut();
        let (mut at, mut next, mut misplaced) = (0, 0, false);
        while let Some((key, value)) = entries.get_mut(at) {
            match shape.find(next, key) {
                Some(found) => {
                    self.value(value, schema.other(shape.fields[found].ty));
                    at += self.insert_defaults(entries, at, &shape.fields[next..found], schema);
                    next = found + 1;
                }
                None => misplaced = true,
            }
            at += 1;
        }
        self.insert_defaults(entries, at, &shape.fields[next..], schema);
        if misplaced {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
    }

    /// Inserts the defaults of absent fields; returns the number of inserted fields.
    fn insert_defaults(
        self,
        entries: &mut Vec<(Str, Value)>,
        at: usize,
        fields: &[Field],
        schema: Schema<'_>,
    ) -> usize {
        let mut inserted = 0;
        for field in fields {
            // Go omits an omittable zero value, so such a default has no effect on the encoded object.
            let may_go = self.nulls == Nulls::Printed && field.omit != Omit::Never && !field.pointer;
            let left_out = |value: &Value| match value {
                Value::Int(number) => may_go && *number == 0,
                Value::Bool(flag) => may_go && !flag,
                Value::String(text) => may_go && text.is_empty(),
                _ => false,
            };
            if let Some(value) = field.default.as_ref().filter(|value| !left_out(value)) {
                let mut value = value.clone();
                self.value(&mut value, schema.other(field.ty));
                entries.insert(at + inserted, (field.name.clone(), value));
                inserted += 1;
            }
        }
        inserted
    }
}

fn fill<'a>(values: impl Iterator<Item = &'a mut Value>, default: &Value) {
    values.filter(|value| value.is_null()).for_each(|value| *value = default.clone());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::structural::Structural;
    use crate::value;

    fn check(properties: &Value, mut object: Value, expect: &Value) {
        let mut schema = value!({"type": "object"});
        schema.as_object_mut().unwrap().insert("properties", properties.clone());
        let structural = Structural::new(&schema).unwrap();
        default(&mut object, structural.schema());
        assert_eq!(object, *expect);
        default(&mut object, structural.schema());
        assert_eq!(object, *expect, "defaulting twice is defaulting once");
    }

    #[test]
    fn absent_fields_get_their_defaults_even_within_defaults() {
        let spec = value!({"spec": {"type": "object", "default": {"b": "given"}, "properties": {
            "a": {"type": "integer", "default": 1},
            "b": {"type": "string", "default": "other"},
            "c": {"type": "object", "properties": {"d": {"type": "string", "default": "x"}}},
        }}});
        check(&spec, value!({}), &value!({"spec": {"a": 1, "b": "given"}}));
        check(&spec, value!({"spec": {"a": 0, "c": {}}}), &value!({"spec": {"a": 0, "b": "other", "c": {"d": "x"}}}));
        check(&spec, value!({"spec": "wrong"}), &value!({"spec": "wrong"}));
    }

    #[test]
    fn null_is_absence_unless_the_schema_allows_it() {
        let fields = value!({
            "defaulted": {"type": "string", "default": "x"},
            "nullable": {"type": "string", "nullable": true, "default": "x"},
            "plain": {"type": "string"},
        });
        check(
            &fields,
            value!({"defaulted": null, "nullable": null, "plain": null, "unknown": null}),
            &value!({"defaulted": "x", "nullable": null, "unknown": null}),
        );
    }

    #[test]
    fn items_and_map_values_have_defaults_for_null_only() {
        let fields = value!({
            "list": {"type": "array", "items": {"type": "string", "default": "x"}},
            "plain": {"type": "array", "items": {"type": "string"}},
            "map": {"type": "object", "additionalProperties": {"type": "string", "default": "y"}},
            "gone": {"type": "object", "additionalProperties": {"type": "string"}},
        });
        check(
            &fields,
            value!({"list": ["a", null], "plain": [null], "map": {"k": null}, "gone": {"k": null, "l": ""}}),
            &value!({"list": ["a", "x"], "plain": [null], "map": {"k": "y"}, "gone": {"l": ""}}),
        );
    }
}
