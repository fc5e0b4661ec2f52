//! Test notation for types: `{"name": "string", "ports": {"$keys": ["port"], "$items": {"port": "int"}}}`.
//!
//! A text is a scalar or a free form. An object is a struct of its fields, unless it has `$items` (a list; `$keys` or
//! `$set` determines how it is merged), `$values` (a map), or `$of` (a type with marks: `$atomic`, `$open`,
//! `$default`).

use apimachinery::schema::{Field, List, ListKind, Map, Omit, Patch, Shape, Struct, Type, TypeId, Types};
use apimachinery::{Schema, Value};

/// A type and its arena.
pub(crate) struct Notation {
    types: Types,
    root: TypeId,
}

impl Notation {
    pub(crate) fn new(notation: &Value) -> Self {
        let mut types = Types::new();
        let root = add(&mut types, notation);
        Self { types, root }
    }

    /// Returns an object kind with these fields in addition to `apiVersion`, `kind` and `metadata`.
    pub(crate) fn kind(fields: &Value) -> Self {
        let mut all = apimachinery::value!({
            "apiVersion": "string",
            "kind": "string",
            "metadata": {
                "name": "string", "namespace": "string", "uid": "string", "resourceVersion": "string",
                "generation": "int", "creationTimestamp": "string", "managedFields": {"$items": "any"},
                "labels": {"$values": "string"}, "annotations": {"$values": "string"},
                "finalizers": {"$items": "string", "$set": true}
            }
        });
        let object = all.as_object_mut().expect("an object");
        for (name, ty) in fields.as_object().expect("fields are an object").iter() {
            object.insert(name, ty.clone());
        }
        Self::new(&all)
    }

    pub(crate) fn schema(&self) -> Schema<'_> {
        self.types.schema(self.root)
    }
}

fn add(types: &mut Types, notation: &Value) -> TypeId {
    let shape = match notation {
        Value::String(name) => match name.as_str() {
            "string" => Shape::String,
            "int" => Shape::Int64,
            "number" => Shape::Double,
            "bool" => Shape::Bool,
            "quantity" => Shape::Quantity,
            "int-or-string" => Shape::IntOrString,
            "any" => Shape::Any,
            "raw" => Shape::RawExtension,
            other => panic!("unknown type {other}"),
        },
        Value::Object(object) => match (object.get("$items"), object.get("$values"), object.get("$of")) {
            (Some(items), ..) => {
                let item = add(types, items);
                let keys = object.get("$keys").and_then(Value::as_array);
                let kind = match keys {
                    Some(keys) => ListKind::Map(keys.iter().map(|key| key.as_str().expect("a name").into()).collect()),
                    None if object.contains_key("$set") => ListKind::Set,
                    None => ListKind::Atomic,
                };
                Shape::List(List { item, kind, item_default: None })
            }
            (_, Some(values), _) => {
                let value = add(types, values);
                Shape::Map(Map { value, atomic: object.contains_key("$atomic"), value_default: None })
            }
            (_, _, Some(of)) if object.contains_key("$atomic") || object.contains_key("$open") => {
                let Shape::Struct(mut fields) = structure(types, of) else { panic!("only structs are marked") };
                fields.atomic = object.contains_key("$atomic");
                fields.open = object.contains_key("$open");
                Shape::Struct(fields)
            }
            (_, _, Some(of)) => return add(types, of),
            _ => structure(types, notation),
        },
        other => panic!("no type: {other}"),
    };
    types.add(Type::new("", shape))
}

fn structure(types: &mut Types, notation: &Value) -> Shape {
    let fields = notation.as_object().expect("a struct is an object").iter().map(|(name, ty)| Field {
        name: name.into(),
        ty: add(types, ty),
        required: false,
        omit: Omit::Zero,
        pointer: false,
        default: ty.get("$default").cloned(),
        patch: Patch::default(),
        inlined: [].into(),
    });
    Shape::Struct(Struct { fields: fields.collect(), ..Struct::default() })
}
