//! Upstream's internal pod types, whose field names, order and nesting differ too much from the API to be derived.

mod types;

use apimachinery::{Object, Value, go};

use super::diff;
use types::{Field, FieldType};

/// Prints a value of the internal type `of` on one line.
pub(crate) fn print(of: &str, value: &Value) -> String {
    let mut out = String::new();
    Printer { out: &mut out, indented: false }.structure(of, &prepared(of, value), &Value::Null, 0);
    out
}

/// Like [`print()`], for a type by its API name; `None` if it is not a pod type.
pub(super) fn known(name: &str, value: &Value) -> Option<String> {
    let of = name.strip_prefix("v1.").filter(|of| ["PodTemplateSpec", "PodSpec"].contains(of))?;
    Some(print(of, value))
}

/// Returns a unified diff of the indented forms of two values of the internal type `of`.
///
/// Decoding drops lists and maps that became empty; they are printed as empty if `old` has them.
pub(crate) fn diff(of: &str, old: &Value, new: &Value) -> String {
    let (old, new) = (prepared(of, old), prepared(of, new));
    let indented = |value: &Value, before: &Value| {
        let mut out = String::new();
        Printer { out: &mut out, indented: true }.structure(of, value, before, 0);
        out
    };
    diff::unified(&indented(&old, &Value::Null), &indented(&new, &old))
}

/// Moves the host namespace fields of a PodSpec to the security context, where the internal type has them.
fn prepared(of: &str, value: &Value) -> Value {
    const MOVED: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];
    let mut value = value.clone();
    if of == "PodTemplateSpec"
        && let Some(spec) = value.get_mut("spec")
    {
        *spec = prepared("PodSpec", spec);
    }
    if of != "PodSpec" {
        return value;
    }
    let moved: Vec<_> = MOVED.iter().filter_map(|field| Some((*field, value.get(field)?.clone()))).collect();
    if let Some(spec) = value.as_object_mut()
        && let Value::Object(context) = spec.get_or_insert_with("securityContext", Value::object)
    {
        for (field, value) in moved {
            context.insert(field, value);
        }
    }
    value
}

struct Printer<'a> {
    out: &'a mut String,
    indented: bool,
}

impl Printer<'_> {
    fn structure(&mut self, of: &str, value: &Value, old: &Value, depth: usize) {
        let object = value.as_object();
        let fields = types::fields(of).filter_map(|field| {
            let found = object.and_then(|object| find(object, &field)).filter(|value| !value.is_null());
            let may_be_absent = matches!(field.holds, FieldType::Shared | FieldType::Metadata);
            (found.is_some() || !may_be_absent).then_some((field, found))
        });
        self.list('{', '}', depth, fields, |printer, (field, found), depth| {
            printer.key(field.name);
            let before = old.as_object().and_then(|old| find(old, &field)).unwrap_or(&Value::Null);
            printer.field(&field, found, before, depth);
        });
    }

    fn field(&mut self, field: &Field, found: Option<&Value>, old: &Value, depth: usize) {
        match (field.holds, found) {
            (FieldType::Struct, found) => self.structure(field.of, found.unwrap_or(&Value::Null), old, depth),
            (FieldType::Pointer, Some(found)) => self.structure(field.of, found, old, depth),
            (FieldType::List, Some(Value::Array(items))) => {
                self.list('[', ']', depth, items.iter().enumerate(), |printer, (index, item), depth| {
                    printer.structure(field.of, item, &old[index], depth);
                });
            }
            (FieldType::List | FieldType::Nullable, None) if old.as_array().is_some() => self.out.push_str("[]"),
            (FieldType::Nullable, None) if old.as_object().is_some() => self.out.push_str("{}"),
            (_, Some(found)) => self.plain(found, depth),
            (FieldType::Text, None) => self.out.push_str("\"\""),
            (FieldType::Number, None) => self.out.push('0'),
            (FieldType::Bool, None) => self.out.push_str("false"),
            (FieldType::Quantity, None) => self.out.push_str("\"0\""),
            (_, None) => self.out.push_str("null"),
        }
    }

    /// Prints a value whose form is the same in all versions.
    fn plain(&mut self, value: &Value, depth: usize) {
        match value {
            Value::Array(items) => self.list('[', ']', depth, items.iter(), |printer, item, depth| {
                printer.plain(item, depth);
            }),
            Value::Object(entries) => self.list('{', '}', depth, entries.iter(), |printer, (key, value), depth| {
                printer.key(key);
                printer.plain(value, depth);
            }),
            scalar => self.out.push_str(&go::json(scalar)),
        }
    }

    fn key(&mut self, name: &str) {
        self.out.push_str(&go::json(&name.into()));
        self.out.push_str(if self.indented { ": " } else { ":" });
    }

    fn list<T>(
        &mut self,
        open: char,
        close: char,
        depth: usize,
        items: impl Iterator<Item = T>,
        print: impl Fn(&mut Self, T, usize),
    ) {
        self.out.push(open);
        let mut any = false;
        for item in items {
            if any {
                self.out.push(',');
            }
            any = true;
            self.line(depth + 1);
            print(self, item, depth + 1);
        }
        if any {
            self.line(depth);
        }
        self.out.push(close);
    }

    fn line(&mut self, depth: usize) {
        if self.indented {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', depth));
        }
    }
}

/// Returns the value of a field by its API name, which usually differs only in case.
fn find<'a>(object: &'a Object, field: &Field) -> Option<&'a Value> {
    match field.json {
        Some(json) => object.get(json),
        None if field.holds == FieldType::Metadata => object.get("metadata")?.get(field.name),
        None => object.iter().find(|(key, _)| key.eq_ignore_ascii_case(field.name)).map(|(_, value)| value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apimachinery::value;

    #[test]
    fn parts_of_a_pod_are_printed_with_the_names_of_the_internal_types() {
        let check = |of: &str, value: Value, text: &str| assert_eq!(print(of, &value), text);
        check("SeccompProfile", value!({"type": "x"}), r#"{"Type":"x","LocalhostProfile":null}"#);
        check(
            "NodeSelectorTerm",
            value!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["<"]}]}),
            r#"{"MatchExpressions":[{"Key":"a","Operator":"In","Values":["\u003c"]}],"MatchFields":null}"#,
        );
        check(
            "Volume",
            value!({"name": "v", "rbd": {"monitors": ["m"], "image": "i"}}),
            &print("Volume", &value!({"rbd": {"image": "i", "monitors": ["m"]}, "name": "v"})),
        );
        assert!(print("Volume", &value!({"name": "v"})).starts_with(r#"{"Name":"v","HostPath":null,"EmptyDir":null"#));
    }

    #[test]
    fn metadata_of_templates_is_embedded_and_keeps_its_names() {
        let printed = print("PodTemplateSpec", &value!({"metadata": {"labels": {"a": "b"}}, "spec": {}}));
        assert!(printed.starts_with(r#"{"labels":{"a":"b"},"Spec":{"Volumes":null,"#), "{printed}");
    }

    #[test]
    fn host_namespace_fields_are_printed_in_the_security_context() {
        let printed = print("PodSpec", &value!({"hostNetwork": true, "securityContext": {}}));
        assert!(printed.contains(r#""SecurityContext":{"HostNetwork":true,"HostPID":false,"#), "{printed}");
    }

    #[test]
    fn difference_has_three_context_lines() {
        let old = value!({"type": "a", "localhostProfile": "p"});
        let new = value!({"type": "b", "localhostProfile": "p"});
        let expect = "@@ -1,4 +1,4 @@\n {\n- \"Type\": \"a\",\n+ \"Type\": \"b\",\n  \"LocalhostProfile\": \"p\"\n }\n";
        assert_eq!(diff("SeccompProfile", &old, &new), expect);
    }
}
