//! OpenAPI schemas of custom resources, built from the schemas in their CRDs.

use api::Kind;
use apimachinery::{Object, Str, Value, value};

use super::{Definitions, Dialect, gvk};

const METADATA: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// Keywords that version 2 does not have.
const V3_ONLY: [&str; 5] = ["anyOf", "oneOf", "not", "allOf", "nullable"];
/// Keywords of a CRD schema that are not published, since they are not part of a structural schema.
const UNTOLD: [&str; 4] = ["$schema", "example", "externalDocs", "id"];
const SELECTABLE: &str = "x-kubernetes-selectable-fields";
const PRESERVES: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

impl Definitions {
    /// Returns a reference to a custom kind.
    pub(crate) fn custom(&mut self, kind: &Kind, version: &str) -> Value {
        let name = custom_name(&kind.group, version, &kind.kind);
        if self.has(&name) {
            return self.to(&name);
        }
        let written = kind.rules.published_schema(version);
        let hides = |schema: &Value| self.dialect == Dialect::V2 && is(schema, PRESERVES);
        let mut schema = match written {
            Some(written) if !hides(written) => self.described(written.clone()),
            // Clients of version 2 reject fields that a schema does not name, so this schema names none.
            _ => value!({"type": "object"}),
        };
        if let Value::Object(out) = &mut schema {
            out.insert("x-kubernetes-group-version-kind", vec![gvk(&kind.gvk(version))]);
            if let Some(selectable) = written.and_then(|written| written.get(SELECTABLE)) {
                out.insert(SELECTABLE, selectable.clone());
            }
        }
        self.add(&name, schema)
    }

    /// Returns a reference to the list of a custom kind.
    pub(crate) fn custom_list(&mut self, kind: &Kind, version: &str) -> Value {
        let item = self.custom(kind, version);
        let list_kind = &kind.list_kind;
        let list_meta = self.list_meta();
        let mut properties = Object::new();
        self.insert_type_fields(&mut properties);
        let items = value!({"type": "array", "items": item, "description": (format!("List of {}.", kind.plural))});
        properties.insert("items", items);
        properties.insert("metadata", list_meta);
        let gvk = gvk(&kind.gvk(version).group_version().kind(list_kind.clone()));
        let schema = value!({
            "description": (format!("{list_kind} is a list of {}", kind.kind)),
            "type": "object",
            "required": ["items"],
            "properties": properties,
            "x-kubernetes-group-version-kind": [gvk],
        });
        self.add(&custom_name(&kind.group, version, list_kind), schema)
    }

    /// Converts the schema of an object to this OpenAPI version.
    fn described(&mut self, mut schema: Value) -> Value {
        each_part(&mut schema, &mut unfold);
        if self.dialect == Dialect::V2 {
            each_part(&mut schema, &mut simplify);
        }
        each_part(&mut schema, &mut |part| self.complete(part));
        if let Value::Object(out) = &mut schema {
            out.insert("type", "object");
            self.insert_object_fields(out);
        }
        schema
    }

    /// Adds apiVersion, kind and metadata to an embedded resource.
    fn complete(&mut self, part: &mut Object) {
        let hides = self.dialect == Dialect::V2 && has(part, PRESERVES);
        if !has(part, EMBEDDED) || hides {
            return;
        }
        self.insert_object_fields(part);
        let required = part.get_or_insert_with("required", || Value::Array(Vec::new()));
        let Value::Array(required) = required else { return };
        for field in ["kind", "apiVersion"] {
            if !required.iter().any(|have| have.as_str() == Some(field)) {
                required.push(field.into());
            }
        }
    }

    fn insert_object_fields(&mut self, schema: &mut Object) {
        let meta = self.object_meta();
        let properties = schema.get_or_insert_with("properties", Value::object);
        let Value::Object(properties) = properties else { return };
        self.insert_type_fields(properties);
        properties.insert("metadata", meta);
    }

    fn insert_type_fields(&self, properties: &mut Object) {
        for field in ["apiVersion", "kind"] {
            let description = self.descriptions.of_field("io.k8s.api.core.v1.Pod", field);
            properties.insert(field, value!({"description": description, "type": "string"}));
        }
    }

    fn object_meta(&mut self) -> Value {
        self.part_of_pod("Pod", METADATA)
    }

    fn list_meta(&mut self) -> Value {
        self.part_of_pod("PodList", "Standard list metadata.")
    }

    /// Returns a reference to the metadata type, with the given description.
    fn part_of_pod(&mut self, kind: &'static str, description: &str) -> Value {
        let schema =
            api::catalogue::schema(&apimachinery::GroupVersionKind::of("", "v1", kind)).expect("pods are built in");
        let (_, metadata) = schema.field("metadata").expect("objects have metadata");
        self.refer([("description", description)].into_iter().collect(), metadata)
    }
}

/// Returns `com.example.v1.Widget` for `Widget` of `example.com/v1`.
fn custom_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<_> = group.rsplit('.').collect();
    parts.extend([version, kind]);
    parts.join(".")
}

/// Calls `change` for every subschema that describes fields, parents before children.
fn each_part(schema: &mut Value, change: &mut dyn FnMut(&mut Object)) {
    let Value::Object(object) = schema else { return };
    change(object);
    for (key, value) in object.iter_mut() {
        match (key, value) {
            ("properties", Value::Object(properties)) => {
                properties.iter_mut().for_each(|(_, property)| each_part(property, change));
            }
            ("items" | "additionalProperties", value) => each_part(value, change),
            _ => {}
        }
    }
}

fn is(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn has(part: &Object, key: &str) -> bool {
    part.get(key) == Some(&Value::Bool(true))
}

/// Expands int-or-string for clients that do not know the extension, and drops unpublished keywords.
fn unfold(part: &mut Object) {
    for key in UNTOLD {
        part.remove(key);
    }
    if !has(part, "x-kubernetes-int-or-string") {
        return;
    }
    let either = value!([{"type": "integer"}, {"type": "string"}]);
    let first = part.get("allOf").and_then(Value::as_array).and_then(<[Value]>::first);
    let has_any_of = part.get("anyOf") == Some(&either) || first.and_then(|first| first.get("anyOf")) == Some(&either);
    if has_any_of {
        return;
    }
    if part.get("anyOf").is_none() {
        part.insert("anyOf", either);
        return;
    }
    let all = part.get_or_insert_with("allOf", || Value::Array(Vec::new()));
    if let Value::Array(all) = all {
        all.insert(0, value!({"anyOf": either}));
    }
}

/// Reduces a subschema to what version 2 can express. Fields that it would describe wrongly are dropped.
fn simplify(part: &mut Object) {
    let (nullable, preserves) = (has(part, "nullable"), has(part, PRESERVES));
    if nullable || preserves {
        part.remove("items");
        part.remove("properties");
    }
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    let listless = kind == "array" && part.get("items").is_none();
    if nullable || listless || (preserves && kind == "object") {
        part.remove("type");
    }
    // A nullable field is optional in version 2, whose clients cannot distinguish null from absent.
    let may_be_null: Vec<Str> = match part.get("properties") {
        Some(Value::Object(properties)) => {
            properties.iter().filter(|(_, property)| is(property, "nullable")).map(|(name, _)| name.into()).collect()
        }
        _ => Vec::new(),
    };
    let any_may = part.get("additionalProperties").is_some_and(|any| is(any, "nullable"));
    if let Some(Value::Array(required)) = part.get_mut("required") {
        required.retain(|name| !any_may && !may_be_null.iter().any(|may| name.as_str() == Some(may)));
        if required.is_empty() {
            part.remove("required");
        }
    }
    for key in V3_ONLY {
        part.remove(key);
    }
}
