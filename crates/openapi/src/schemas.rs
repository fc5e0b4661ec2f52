//! OpenAPI schemas of types, collected while documents refer to them.

mod custom;
mod descriptions;
mod unions;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use api::catalogue;
use apimachinery::schema::{Field, List, ListKind, Patch, Schema, Shape, Struct, TypeId};
use apimachinery::{GroupVersionKind, Object, Str, Value, value};

pub(crate) use descriptions::Descriptions;

/// The OpenAPI version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Version 2: schemas have no defaults, and a description may stand beside a `$ref`.
    V2,
    V3,
}

/// The schemas of a document by name. Referring to a type adds its schema and those of all types it refers to.
pub(crate) struct Definitions {
    dialect: Dialect,
    descriptions: Descriptions,
    kinds: BTreeMap<TypeId, Vec<GroupVersionKind>>,
    done: BTreeMap<String, Value>,
}

impl Definitions {
    /// Creates an empty collection. Some types, such as DeleteOptions, belong to every group version. In a document for
    /// one group version (`about`), their schemas list only that one and `v1`.
    pub(crate) fn new(dialect: Dialect, about: Option<(&str, &str)>) -> Self {
        let mut kinds: BTreeMap<TypeId, Vec<GroupVersionKind>> = BTreeMap::new();
        for (kind, schema) in catalogue::kinds().filter(|(kind, _)| !UNNAMED.contains(&kind.group.as_str())) {
            kinds.entry(schema.id()).or_default().push(kind.clone());
        }
        for kinds in kinds.values_mut().filter(|kinds| kinds.len() > 1) {
            match about {
                Some(about) => kinds.retain(|kind| {
                    let version = (kind.group.as_str(), kind.version.as_str());
                    version == ("", "v1") || version == about
                }),
                None => kinds.extend(
                    // Upstream lists these versions although it no longer serves them.
                    [("apiextensions.k8s.io", "v1beta1"), ("apiregistration.k8s.io", "v1beta1")].map(
                        |(group, version)| GroupVersionKind {
                            kind: kinds[0].kind.clone(),
                            ..GroupVersionKind::of(group, version, "")
                        },
                    ),
                ),
            }
            kinds.sort();
        }
        Self { dialect, descriptions: Descriptions::open(), kinds, done: BTreeMap::new() }
    }

    /// Returns the collected schemas.
    pub(crate) fn finish(self) -> Object {
        self.done.into_iter().collect()
    }

    /// Returns a reference to a built-in kind, or `None` if the catalogue does not have it.
    pub(crate) fn kind(&mut self, kind: &GroupVersionKind) -> Option<Value> {
        Some(self.reference(catalogue::schema(kind)?))
    }

    /// Returns a reference to the patch body, which is not a type of the catalogue.
    pub(crate) fn patch(&mut self) -> Value {
        let name = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
        let description = self.descriptions.of_type(name);
        self.done.entry(name.to_owned()).or_insert_with(|| value!({"description": description, "type": "object"}));
        self.to(name)
    }

    /// Returns a reference to the version document, which is not a type of the catalogue.
    pub(crate) fn version(&mut self) -> Value {
        let name = "io.k8s.apimachinery.pkg.version.Info";
        let text = |field: &str| {
            let mut out = of_type("string", None);
            insert_description(&mut out, self.descriptions.of_field(name, field));
            self.insert_default(&mut out, REQUIRED_VERSIONS.contains(&field).then_some(&Value::from("")));
            (Str::from(field), Value::Object(out))
        };
        let properties: Object = REQUIRED_VERSIONS.iter().chain(&OTHER_VERSIONS).map(|field| text(field)).collect();
        let required: Vec<_> = REQUIRED_VERSIONS.iter().map(|field| Value::from(*field)).collect();
        let mut schema = of_type("object", None);
        insert_description(&mut schema, self.descriptions.of_type(name));
        schema.insert("properties", properties);
        schema.insert("required", required);
        self.add(name, Value::Object(schema))
    }

    /// Adds a schema that is not a type of the catalogue, and returns a reference to it.
    pub(crate) fn add(&mut self, name: &str, schema: Value) -> Value {
        self.done.insert(name.to_owned(), schema);
        self.to(name)
    }

    /// Whether a schema of that name was added.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.done.contains_key(name)
    }

    fn to(&self, name: &str) -> Value {
        let prefix = match self.dialect {
            Dialect::V2 => "#/definitions/",
            Dialect::V3 => "#/components/schemas/",
        };
        value!({"$ref": (format!("{prefix}{name}"))})
    }

    fn reference(&mut self, schema: Schema<'static>) -> Value {
        let declared = catalogue::declared(schema).expect("only types with a name are referred to");
        let name = type_name(declared.package, declared.name);
        if !self.done.contains_key(&name) {
            // Types can be recursive: the name is reserved before its schema is generated.
            self.done.insert(name.clone(), Value::Null);
            let definition = self.definition(&name, declared.schema);
            self.done.insert(name.clone(), definition);
        }
        self.to(&name)
    }

    fn definition(&mut self, name: &str, schema: Schema<'static>) -> Value {
        let mut out = match schema.shape() {
            Shape::Struct(shape) => self.structure(name, shape, schema),
            Shape::Any | Shape::Either(_) => Object::new(),
            Shape::RawExtension | Shape::FieldsV1 => of_type("object", None),
            Shape::Time | Shape::MicroTime => of_type("string", Some("date-time")),
            Shape::Quantity if self.dialect == Dialect::V3 => one_of(&["string", "number"]),
            Shape::Quantity => of_type("string", None),
            Shape::IntOrString if self.dialect == Dialect::V3 => {
                let mut out = one_of(&["integer", "string"]);
                out.insert("format", "int-or-string");
                out
            }
            Shape::IntOrString => of_type("string", Some("int-or-string")),
            Shape::Bool
            | Shape::Int32
            | Shape::Int64
            | Shape::Double
            | Shape::String
            | Shape::Bytes
            | Shape::List(_)
            | Shape::Map(_) => unreachable!("{name} is written where it is used"),
        };
        insert_description(&mut out, self.type_description(name, schema));
        if matches!(schema.shape(), Shape::Struct(shape) if shape.atomic) {
            out.insert("x-kubernetes-map-type", "atomic");
        }
        if let Some(kinds) = self.kinds.get(&schema.id()) {
            out.insert("x-kubernetes-group-version-kind", kinds.iter().map(gvk).collect::<Vec<_>>());
        }
        if let Some(union) = unions::of(name) {
            out.insert("x-kubernetes-unions", union);
        }
        Value::Object(out)
    }

    /// Returns the description of a type. List kinds share one generated description, as in upstream.
    fn type_description(&self, name: &str, schema: Schema<'static>) -> String {
        let description = self.descriptions.of_type(name);
        match (
            description.is_empty(),
            schema.field("items"),
            name.rsplit('.').next().and_then(|own| own.strip_suffix("List")),
        ) {
            (true, Some(_), Some(item)) => format!("{item}List is a list of {item} objects."),
            _ => description,
        }
    }

    fn field_description(&self, name: &str, field: &str) -> String {
        let description = self.descriptions.of_field(name, field);
        if (name, field) == ("io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent", "object") {
            return "The object after the change, its last state if it was deleted, or a Status for an ERROR event."
                .to_owned();
        }
        if !description.is_empty() || !name.ends_with("List") {
            return description;
        }
        match field {
            "items" => {
                let item = name.rsplit('.').next().and_then(|own| own.strip_suffix("List")).unwrap_or_default();
                format!("List of {}.", plural(item))
            }
            "metadata" => "Standard list metadata.".to_owned(),
            _ => self.descriptions.of_field("io.k8s.api.core.v1.Pod", field),
        }
    }

    fn structure(&mut self, name: &str, shape: &'static Struct, schema: Schema<'static>) -> Object {
        let mut out = of_type("object", None);
        if !shape.fields.is_empty() {
            let fields = shape.fields.iter();
            let properties: Object =
                fields.map(|field| (field.name.clone(), self.property(name, field, schema.other(field.ty)))).collect();
            out.insert("properties", properties);
        }
        let required: Vec<_> =
            shape.fields.iter().filter(|field| field.required).map(|field| field.name.clone().into()).collect();
        if !required.is_empty() {
            out.insert("required", Value::Array(required));
        }
        out
    }

    fn property(&mut self, name: &str, field: &Field, ty: Schema<'static>) -> Value {
        let mut out = Object::new();
        insert_description(&mut out, self.field_description(name, &field.name));
        self.insert_default(&mut out, field.default.as_ref());
        insert_patch(&mut out, &field.patch);
        if !field.inlined.is_empty() && matches!(ty.shape(), Shape::List(List { kind: ListKind::Atomic, .. })) {
            // Lists of inlined structs are atomic; the catalogue only has the list types of named types.
            out.insert("x-kubernetes-list-type", "atomic");
        }
        self.used(out, ty)
    }

    /// Returns the schema of a field, list item or map value. `out` already has its description and default.
    fn used(&mut self, mut out: Object, ty: Schema<'static>) -> Value {
        if let Some(word) = catalogue::merge_word(ty) {
            let key = if ty.item().is_some() { "x-kubernetes-list-type" } else { "x-kubernetes-map-type" };
            out.insert(key, word);
        }
        let (json_type, format) = match ty.shape() {
            Shape::List(list) => {
                match &list.kind {
                    ListKind::Map(keys) => {
                        out.insert("x-kubernetes-list-type", "map");
                        let keys = keys.iter().map(|key| Value::from(key.clone()));
                        out.insert("x-kubernetes-list-map-keys", keys.collect::<Vec<_>>());
                    }
                    ListKind::Set => drop(out.insert("x-kubernetes-list-type", "set")),
                    ListKind::Atomic => {}
                }
                let items = self.element(ty.other(list.item));
                out.insert("items", items);
                ("array", None)
            }
            Shape::Map(map) => {
                let values = self.element(ty.other(map.value));
                out.insert("additionalProperties", values);
                ("object", None)
            }
            Shape::Bool => ("boolean", None),
            Shape::Int32 => ("integer", Some("int32")),
            Shape::Int64 => ("integer", Some("int64")),
            Shape::Double => ("number", Some("double")),
            Shape::String => ("string", None),
            Shape::Bytes => ("string", Some("byte")),
            _ => return self.refer(out, ty),
        };
        out.insert("type", json_type);
        if let Some(format) = format {
            out.insert("format", format);
        }
        Value::Object(out)
    }

    fn refer(&mut self, mut out: Object, ty: Schema<'static>) -> Value {
        let reference = self.reference(ty);
        if out.is_empty() {
            return reference;
        }
        match (self.dialect, reference) {
            // In version 3 the siblings of a `$ref` are ignored, so the reference is nested in `allOf`.
            (Dialect::V3, reference) => drop(out.insert("allOf", vec![reference])),
            (Dialect::V2, Value::Object(reference)) => {
                for (key, value) in reference {
                    out.insert(key, value);
                }
            }
            (Dialect::V2, _) => unreachable!("a reference is an object"),
        }
        Value::Object(out)
    }

    /// Returns the schema of a list item or map value, whose default is Go's zero value.
    fn element(&mut self, ty: Schema<'static>) -> Value {
        let default = match ty.shape() {
            Shape::String => Some(Value::from("")),
            Shape::Int32 | Shape::Int64 => Some(Value::Int(0)),
            Shape::Bool => Some(Value::Bool(false)),
            Shape::Struct(_) => Some(Value::object()),
            _ => None,
        };
        let mut out = Object::new();
        self.insert_default(&mut out, default.as_ref());
        self.used(out, ty)
    }

    fn insert_default(&self, out: &mut Object, default: Option<&Value>) {
        if let (Dialect::V3, Some(default)) = (self.dialect, default) {
            out.insert("default", default.clone());
        }
    }
}

/// Groups of response formats such as Table. Schemas do not list them in x-kubernetes-group-version-kind.
const UNNAMED: [&str; 2] = ["apidiscovery.k8s.io", "meta.k8s.io"];

/// Required fields of the version document.
const REQUIRED_VERSIONS: [&str; 9] =
    ["buildDate", "compiler", "gitCommit", "gitTreeState", "gitVersion", "goVersion", "major", "minor", "platform"];

/// Optional fields of the version document.
const OTHER_VERSIONS: [&str; 4] =
    ["emulationMajor", "emulationMinor", "minCompatibilityMajor", "minCompatibilityMinor"];

/// Returns `io.k8s.api.core.v1.Pod` for `Pod` of `k8s.io/api/core/v1`.
pub(crate) fn type_name(package: &str, name: &str) -> String {
    let (host, path) = package.split_once('/').unwrap_or((package, ""));
    let mut out = String::with_capacity(package.len() + name.len() + 1);
    for label in host.rsplit('.') {
        write!(out, "{label}.").expect("writing to a String cannot fail");
    }
    for part in path.split('/').filter(|part| !part.is_empty()) {
        write!(out, "{part}.").expect("writing to a String cannot fail");
    }
    out.push_str(name);
    out
}

/// Returns a kind in the form of x-kubernetes-group-version-kind.
pub(crate) fn gvk(kind: &GroupVersionKind) -> Value {
    value!({"group": (kind.group.clone()), "version": (kind.version.clone()), "kind": (kind.kind.clone())})
}

pub(crate) fn of_type(json_type: &str, format: Option<&str>) -> Object {
    let mut out = Object::new();
    out.insert("type", json_type);
    if let Some(format) = format {
        out.insert("format", format);
    }
    out
}

fn one_of(types: &[&str]) -> Object {
    let types: Vec<_> = types.iter().map(|one| Value::Object(of_type(one, None))).collect();
    [("oneOf", types)].into_iter().collect()
}

fn insert_description(out: &mut Object, description: String) {
    if !description.is_empty() {
        out.insert("description", description);
    }
}

fn insert_patch(out: &mut Object, patch: &Patch) {
    let strategies = [(patch.merge, "merge"), (patch.replace, "replace"), (patch.retain_keys, "retainKeys")];
    let strategies: Vec<_> = strategies.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
    if !strategies.is_empty() {
        out.insert("x-kubernetes-patch-strategy", strategies.join(","));
    }
    if let Some(key) = &patch.merge_key {
        out.insert("x-kubernetes-patch-merge-key", key.clone());
    }
}

/// Returns the plural of a kind in lower case: `services`, `ingresses`, `networkpolicies`.
fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    if kind == "endpoints" {
        kind
    } else if let Some(stem) = kind.strip_suffix('y') {
        format!("{stem}ies")
    } else if kind.ends_with('s') {
        format!("{kind}es")
    } else {
        format!("{kind}s")
    }
}
