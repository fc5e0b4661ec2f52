//! Schemas of custom resources: what the author wrote, made into the schema of a whole object.

use api::Kind;
use machinery::{Object, Value, value};

use super::{Definitions, Dialect, gvk};

const METADATA: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// What version 2 has no words for.
const V3_ONLY: [&str; 6] = ["anyOf", "oneOf", "not", "allOf", "nullable", "default"];

impl Definitions {
    /// A reference to a kind that a CustomResourceDefinition makes.
    pub fn custom(&mut self, kind: &Kind, version: &str) -> Value {
        let name = custom_name(&kind.group, version, &kind.kind);
        if self.has(&name) {
            return self.to(&name);
        }
        let mut schema = kind.rules.published_schema(version).cloned().unwrap_or_else(|| value!({"type": "object"}));
        if self.dialect == Dialect::V2 {
            simplify(&mut schema);
        }
        self.complete(&mut schema);
        if let Value::Object(out) = &mut schema {
            out.insert("type", "object");
            self.insert_object_fields(out);
            out.insert("x-kubernetes-group-version-kind", vec![gvk(&kind.gvk(version))]);
        }
        self.add(&name, schema)
    }

    /// A reference to the list of such a kind.
    pub fn custom_list(&mut self, kind: &Kind, version: &str) -> Value {
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

    /// Gives every embedded resource the fields that all objects have.
    fn complete(&mut self, schema: &mut Value) {
        let Value::Object(object) = schema else { return };
        if object.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
            self.insert_object_fields(object);
        }
        for (key, value) in object.iter_mut() {
            match (key, value) {
                ("properties", Value::Object(properties)) => {
                    properties.iter_mut().for_each(|(_, property)| self.complete(property));
                }
                ("items" | "additionalProperties", value) => self.complete(value),
                _ => {}
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

    /// A reference to the metadata of a built-in kind, with words of our own.
    fn part_of_pod(&mut self, kind: &'static str, words: &str) -> Value {
        let schema =
            api::catalogue::schema(&machinery::GroupVersionKind::of("", "v1", kind)).expect("pods are built in");
        let (_, metadata) = schema.field("metadata").expect("objects have metadata");
        self.refer([("description", words)].into_iter().collect(), metadata)
    }
}

/// `com.example.v1.Widget` for `Widget` of `example.com/v1`.
fn custom_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<_> = group.rsplit('.').collect();
    parts.extend([version, kind]);
    parts.join(".")
}

/// Leaves of a schema what version 2 can say. What it would say wrongly it does not say at all.
fn simplify(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    let is = |object: &Object, key: &str| object.get(key) == Some(&Value::Bool(true));
    let nullable = is(object, "nullable");
    if nullable || is(object, "x-kubernetes-int-or-string") || is(object, "x-kubernetes-preserve-unknown-fields") {
        object.remove("type");
    }
    if nullable || is(object, "x-kubernetes-preserve-unknown-fields") {
        for key in ["items", "properties", "additionalProperties"] {
            object.remove(key);
        }
    }
    for key in V3_ONLY {
        object.remove(key);
    }
    for (key, value) in object.iter_mut() {
        match (key, value) {
            ("properties", Value::Object(properties)) => {
                properties.iter_mut().for_each(|(_, property)| simplify(property));
            }
            ("items" | "additionalProperties", value) => simplify(value),
            _ => {}
        }
    }
}
