//! Values in error messages, printed like upstream's internal Go types.
//!
//! Where a message quotes a struct, upstream prints all fields of a type without JSON names:
//! `{"Kind":"Pod","Name":""}`. Types shared by all versions (label selectors, metadata) keep their JSON names.

mod diff;
pub(crate) mod pods;

use std::fmt::Write as _;

use apimachinery::field::BadValue;
use apimachinery::schema::{Field, Omit, Schema, Shape, Struct, Wire};
use apimachinery::{At, GroupVersionKind, Value, go};

use crate::catalogue;

/// Types whose internal field order differs from the order of protobuf field numbers.
const ORDER: &[(&str, &[&str])] = &[
    ("v1.PersistentVolumeClaimSpec", &["accessModes", "selector", "resources", "volumeName"]),
    (
        "v1.PersistentVolumeSource",
        &[
            "gcePersistentDisk",
            "awsElasticBlockStore",
            "hostPath",
            "glusterfs",
            "nfs",
            "rbd",
            "quobyte",
            "iscsi",
            "flexVolume",
            "cinder",
            "cephfs",
            "fc",
            "flocker",
            "azureFile",
            "vsphereVolume",
        ],
    ),
    ("v1.ServiceReference", &["namespace", "name", "port"]),
];

/// Go names that differ from the capitalized JSON name.
const NAMES: &[(&str, &str)] = &[
    ("adminAccess", "AdminAccess"),
    ("apiGroup", "APIGroup"),
    ("apiGroups", "APIGroups"),
    ("apiVersion", "APIVersion"),
    ("apiVersions", "APIVersions"),
    ("awsElasticBlockStore", "AWSElasticBlockStore"),
    ("caBundle", "CABundle"),
    ("cel", "CEL"),
    ("cephfs", "CephFS"),
    ("csi", "CSI"),
    ("fc", "FC"),
    ("fsType", "FSType"),
    ("gcePersistentDisk", "GCEPersistentDisk"),
    ("iqn", "IQN"),
    ("iscsi", "ISCSI"),
    ("nfs", "NFS"),
    ("pdID", "PdID"),
    ("rbd", "RBD"),
    ("sslEnabled", "SSLEnabled"),
    ("storageos", "StorageOS"),
    ("targetWWNs", "TargetWWNs"),
    ("uid", "UID"),
    ("url", "URL"),
    ("volumeID", "VolumeID"),
];

/// Types that are shared by all versions and keep their JSON names.
const SHARED: &[&str] =
    &["v1.LabelSelector", "v1.LabelSelectorRequirement", "v1.ObjectMeta", "v1.OwnerReference", "v1.Condition"];

/// Formats a value on one line for an error.
pub fn bad_value(value: &Value, schema: Schema<'_>) -> BadValue {
    BadValue::Text(compact(value, schema))
}

/// Formats the value at `path` below the kind's root for an error; as JSON if the schema does not contain the path.
pub fn bad_value_at(at: &At<'_>, root: Schema<'_>, path: &[&str]) -> BadValue {
    match path.iter().try_fold(root, |schema, step| step_into(schema, step)) {
        Some(schema) => bad_value(at.value(), schema),
        None => BadValue::Value(at.value().clone()),
    }
}

/// Formats a field of a kind's stored v1 form, which differs from `old`, for an error.
pub fn stored_bad_value(at: &At<'_>, old: &At<'_>, kind: (&'static str, &'static str), field: &str) -> BadValue {
    let gvk = GroupVersionKind::of(kind.0, "v1", kind.1);
    match catalogue::schema(&gvk).and_then(|schema| schema.child(field)) {
        Some(schema) => bad_value(&restored(at.value(), old.value(), schema, &[]), schema),
        None => BadValue::Value(at.value().clone()),
    }
}

/// Formats a value on one line.
pub fn compact(value: &Value, schema: Schema<'_>) -> String {
    if let Some(pod) = pods::known(&schema.ty().name, value) {
        return pod;
    }
    let mut writer = Writer { out: String::new(), indent: None };
    writer.value(value, schema, 0);
    writer.out
}

/// Returns a unified diff of the printed forms of two values.
pub fn difference(old: &Value, new: &Value, schema: Schema<'_>) -> String {
    diff::unified(&pretty(old, schema), &pretty(&restored(new, old, schema, &[]), schema))
}

/// Returns the value with emptied lists and maps restored: decoding drops them and messages show them as empty. `path`
/// leads from the schema to the values.
pub fn restored(new: &Value, old: &Value, schema: Schema<'_>, path: &[&str]) -> Value {
    let mut restored = new.clone();
    if let Some(schema) = path.iter().try_fold(schema, |schema, step| step_into(schema, step)) {
        restore(&mut restored, old, schema);
    }
    restored
}

fn restore(new: &mut Value, old: &Value, schema: Schema<'_>) {
    match (schema.shape(), &mut *new, old) {
        (Shape::List(_), Value::Null, Value::Array(_)) => *new = Value::Array(Vec::new()),
        (Shape::Map(_), Value::Null, Value::Object(_)) => *new = Value::object(),
        (Shape::List(list), Value::Array(items), Value::Array(olds)) => {
            items.iter_mut().zip(olds).for_each(|(new, old)| restore(new, old, schema.other(list.item)));
        }
        (Shape::Struct(_), Value::Object(fields), Value::Object(olds)) => {
            for (name, old) in olds.iter() {
                let Some((_, ty)) = schema.field(name) else { continue };
                let mut value = fields.remove(name).unwrap_or(Value::Null);
                restore(&mut value, old, ty);
                if !value.is_null() {
                    fields.insert(name, value);
                }
            }
        }
        _ => {}
    }
}

/// Like [`difference`], for the fields of a struct that Go inlines from the struct named `struct_name`.
pub fn inlined_difference(old: &Value, new: &Value, schema: Schema<'_>, struct_name: &str) -> String {
    let print = |value: &Value| {
        let mut writer = Writer { out: String::new(), indent: Some(" ") };
        let Shape::Struct(ty) = schema.shape() else { return String::new() };
        let fields =
            ty.fields.iter().enumerate().filter(|(_, field)| field.inlined.last().is_some_and(|at| at == struct_name));
        let mut fields: Vec<_> = fields.map(|(at, _)| at).collect();
        let numbers = numbered(ty);
        fields.sort_by_key(|at| numbers.iter().position(|number| number == at));
        reorder(ty, &format!("v1.{struct_name}"), &mut fields);
        writer.fields(value, schema, ty, &fields, 0, false);
        writer.out
    };
    diff::unified(&print(old), &print(&restored(new, old, schema, &[])))
}

fn pretty(value: &Value, schema: Schema<'_>) -> String {
    let mut writer = Writer { out: String::new(), indent: Some(" ") };
    writer.value(value, schema, 0);
    writer.out
}

fn step_into<'a>(schema: Schema<'a>, step: &str) -> Option<Schema<'a>> {
    match step {
        "[]" => schema.item(),
        name => schema.child(name),
    }
}

struct Writer {
    out: String,
    /// Indentation per level in the multi-line form.
    indent: Option<&'static str>,
}

impl Writer {
    fn value(&mut self, value: &Value, schema: Schema<'_>, depth: usize) {
        match (schema.shape(), value) {
            (Shape::Struct(ty), _) => {
                let shared = SHARED.contains(&schema.ty().name.as_str());
                let mut order = numbered(ty);
                reorder(ty, &schema.ty().name, &mut order);
                self.fields(value, schema, ty, &order, depth, shared);
            }
            (Shape::List(list), Value::Array(items)) => {
                self.bracketed('[', ']', items, depth, |writer, item| {
                    writer.value(item, schema.other(list.item), depth + 1);
                });
            }
            (Shape::Map(map), Value::Object(entries)) => {
                let entries: Vec<_> = entries.iter().collect();
                self.bracketed('{', '}', &entries, depth, |writer, (key, value)| {
                    writer.key(key);
                    writer.value(value, schema.other(map.value), depth + 1);
                });
            }
            (shape, Value::Null) => self.out.push_str(zero(shape)),
            _ => self.out.push_str(&go::json(value)),
        }
    }

    fn fields(&mut self, value: &Value, schema: Schema<'_>, ty: &Struct, order: &[usize], depth: usize, shared: bool) {
        let printed: Vec<_> = order
            .iter()
            .map(|at| &ty.fields[*at])
            .flat_map(|field| flattened(field, value, schema))
            .filter(|(field, value, tagged)| !((shared || *tagged) && value.is_null() && field.omit != Omit::Never))
            .collect();
        self.bracketed('{', '}', &printed, depth, |writer, (field, value, tagged)| {
            writer.key(if shared || *tagged { field.name.as_str().into() } else { go_name(&field.name) }.as_ref());
            if value.is_null() && field.pointer {
                writer.out.push_str("null");
            } else {
                let owner = if *tagged { schema.child("metadata").unwrap_or(schema) } else { schema };
                writer.value(value, owner.other(field.ty), depth + 1);
            }
        });
    }

    fn bracketed<T>(&mut self, open: char, close: char, items: &[T], depth: usize, mut one: impl FnMut(&mut Self, &T)) {
        self.out.push(open);
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.out.push(',');
            }
            self.line(depth + 1);
            one(self, item);
        }
        if !items.is_empty() {
            self.line(depth);
        }
        self.out.push(close);
    }

    fn key(&mut self, key: &str) {
        let space = if self.indent.is_some() { " " } else { "" };
        write!(self.out, "{}:{space}", go::json(&Value::from(key))).expect("writing to a String cannot fail");
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            (0..depth).for_each(|_| self.out.push_str(indent));
        }
    }
}

static ABSENT: Value = Value::Null;

/// Returns a field with its value. Metadata is replaced by its fields, because internal types embed it.
fn flattened<'v, 's>(field: &'s Field, value: &'v Value, schema: Schema<'s>) -> Vec<(&'s Field, &'v Value, bool)> {
    let found = value.get(&field.name).unwrap_or(&ABSENT);
    let inner = schema.other(field.ty);
    match inner.shape() {
        Shape::Struct(ty) if inner.ty().name == "v1.ObjectMeta" => {
            let fields = numbered(ty).into_iter().map(|at| &ty.fields[at]);
            fields.map(|field| (field, found.get(&field.name).unwrap_or(&ABSENT), true)).collect()
        }
        _ => vec![(field, found, false)],
    }
}

/// Returns the fields of a struct in the order of their protobuf numbers.
fn numbered(ty: &Struct) -> Vec<usize> {
    fn collect(fields: &[(u32, Wire)], into: &mut Vec<usize>) {
        for (_, wire) in fields {
            match wire {
                Wire::Field(at) | Wire::Wrapped(at) => into.push(usize::from(*at)),
                Wire::Inline { message, .. } => collect(&message.fields, into),
            }
        }
    }
    let mut order = Vec::with_capacity(ty.fields.len());
    collect(&ty.message.fields, &mut order);
    order
}

/// Moves the fields in [`ORDER`] to the front and keeps the order of the others.
fn reorder(ty: &Struct, name: &str, fields: &mut [usize]) {
    if let Some((_, order)) = ORDER.iter().find(|(have, _)| *have == name) {
        fields.sort_by_key(|at| {
            let position = order.iter().position(|field| ty.fields[*at].name == *field);
            position.unwrap_or(order.len())
        });
    }
}

fn go_name(json: &str) -> std::borrow::Cow<'_, str> {
    if let Some((_, name)) = NAMES.iter().find(|(have, _)| *have == json) {
        return (*name).into();
    }
    let mut rest = json.chars();
    rest.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + rest.as_str()).into()
}

const fn zero(shape: &Shape) -> &'static str {
    match shape {
        Shape::Bool => "false",
        Shape::Int32 | Shape::Int64 | Shape::Double | Shape::IntOrString => "0",
        Shape::String => "\"\"",
        Shape::Quantity => "\"0\"",
        _ => "null",
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn check(kind: (&'static str, &'static str), field: &str, value: &Value, expect: &str) {
        let (group, kind) = kind;
        let schema = catalogue::schema(&GroupVersionKind::of(group, "v1", kind)).unwrap();
        assert_eq!(compact(value, schema.child(field).unwrap()), expect);
    }

    #[test]
    fn structs_are_printed_with_all_fields_by_go_name() {
        check(
            ("", "Event"),
            "involvedObject",
            &value!({"kind": "Pod", "name": "p"}),
            r#"{"Kind":"Pod","Namespace":"","Name":"p","UID":"","APIVersion":"","ResourceVersion":"","FieldPath":""}"#,
        );
    }

    #[test]
    fn shared_types_and_embedded_metadata_keep_their_json_names() {
        check(
            ("storage.k8s.io", "CSIStorageCapacity"),
            "nodeTopology",
            &value!({"matchExpressions": [{"key": "a", "operator": "Exists"}], "matchLabels": {"b": "c"}}),
            r#"{"matchLabels":{"b":"c"},"matchExpressions":[{"key":"a","operator":"Exists"}]}"#,
        );
        check(
            ("resource.k8s.io", "ResourceClaimTemplate"),
            "spec",
            &value!({"metadata": {"labels": {"a": "b"}}, "spec": {}}),
            r#"{"labels":{"a":"b"},"Spec":{"Devices":{"Requests":null,"Constraints":null,"Config":null}}}"#,
        );
    }

    #[test]
    fn difference_is_a_unified_diff_of_the_printed_form() {
        let gvk = GroupVersionKind::of("", "v1", "PersistentVolumeClaim");
        let spec = catalogue::schema(&gvk).unwrap().child("spec").unwrap();
        let old = value!({"accessModes": ["ReadWriteOnce"]});
        let text = difference(&old, &value!({"accessModes": []}), spec);
        let head = "@@ -1,7 +1,5 @@\n {\n- \"AccessModes\": [\n-  \"ReadWriteOnce\"\n- ],\n+ \"AccessModes\": [],\n";
        assert!(text.starts_with(head), "{text}");
        assert!(text.ends_with("  \"Selector\": null,\n  \"Resources\": {\n   \"Limits\": null,\n"), "{text}");
    }
}
