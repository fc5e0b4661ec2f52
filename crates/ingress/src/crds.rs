//! The CustomResourceDefinitions of the Gateway API, from a short form.

use apimachinery::{Object, Value, value, yaml};

const SHORT_FORM: &str = include_str!("crds/gateway-api.yaml");
const GROUP: &str = "gateway.networking.k8s.io";
/// The release whose standard channel the definitions are equivalent to.
pub const VERSION: &str = "v1.6.1";
/// The annotation of a definition with its release.
pub const VERSION_ANNOTATION: &str = "gateway.networking.k8s.io/bundle-version";
/// The change that approved the API group, which Kubernetes requires for groups of `k8s.io`.
const APPROVAL: &str = "https://github.com/kubernetes-sigs/gateway-api/pull/4530";
/// Schemas refer to each other at most this deep.
const DEPTH_MAX: usize = 64;

/// Returns the definitions. The one of GatewayClass is last, because its presence means that the others exist.
pub fn gateway_api() -> Vec<Value> {
    let short = yaml::parse(SHORT_FORM).expect("the short form is valid YAML");
    let types = short.get("types").and_then(Value::as_object).expect("the short form has types");
    let kinds = short.get("kinds").and_then(Value::as_array).expect("the short form has kinds");
    kinds.iter().rev().map(|kind| definition(types, kind)).collect()
}

fn definition(types: &Object, short: &Value) -> Value {
    let text = |name: &str| short.str_at(&[name]).unwrap_or_default().to_owned();
    let (kind, plural) = (text("kind"), text("plural"));
    let short_names: Vec<Value> = short.str_at(&["shortName"]).map(Value::from).into_iter().collect();
    let versions = list(short.get("versions")).iter().map(|version| {
        let columns = list(short.get("columns")).iter().map(column).collect();
        let is_storage = version.as_str() == short.str_at(&["storage"]);
        let mut served = value!({
            "name": (version.clone()),
            "served": true,
            "storage": is_storage,
            "schema": {"openAPIV3Schema": (schema(types, short))},
            "additionalPrinterColumns": (Value::Array(columns)),
        });
        let has_status = short.at(&["properties", "status"]).is_some();
        if let Some(served) = served.as_object_mut().filter(|_| has_status) {
            served.insert("subresources", value!({"status": {}}));
        }
        served
    });
    value!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": (format!("{plural}.{GROUP}")),
            "annotations": {
                "api-approved.kubernetes.io": APPROVAL,
                "gateway.networking.k8s.io/channel": "standard",
                "gateway.networking.k8s.io/bundle-version": VERSION,
            },
        },
        "spec": {
            "group": GROUP,
            "scope": (text("scope")),
            "names": {
                "kind": (kind.clone()),
                "listKind": (format!("{kind}List")),
                "plural": plural,
                "singular": (kind.to_lowercase()),
                "shortNames": (Value::Array(short_names)),
                "categories": ["gateway-api"],
            },
            "versions": (Value::Array(versions.collect())),
        },
    })
}

/// Returns the schema of a kind.
fn schema(types: &Object, short: &Value) -> Value {
    let mut expanded =
        expand(types, &value!({"properties": (short.get("properties").cloned().unwrap_or_default())}), 0);
    if let Some(properties) = expanded.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("apiVersion", value!({"type": "string"}));
        properties.insert("kind", value!({"type": "string"}));
        properties.insert("metadata", value!({"type": "object"}));
    }
    expanded
}

fn column(short: &Value) -> Value {
    let parts = list(Some(short));
    let part = |index: usize| parts.get(index).cloned().unwrap_or_default();
    let mut column = value!({"name": (part(0)), "type": (part(1)), "jsonPath": (part(2))});
    if let (Some(column), Some(priority)) = (column.as_object_mut(), parts.get(3)) {
        column.insert("priority", priority.clone());
    }
    column
}

/// Returns the OpenAPI schema of a schema in the short form.
fn expand(types: &Object, short: &Value, depth: usize) -> Value {
    assert!(depth < DEPTH_MAX, "the schemas refer to each other");
    if let Some(name) = short.as_str().and_then(|text| text.strip_prefix('$')) {
        let named = types.get(name).unwrap_or_else(|| panic!("there is no type {name}"));
        return expand(types, named, depth + 1);
    }
    let Some(short) = short.as_object() else { return short.clone() };
    let (mut schema, mut rules) = (Object::default(), Vec::new());
    for (name, value) in short.iter() {
        match name {
            "properties" => expand_properties(types, value, depth, &mut schema),
            "items" | "additionalProperties" | "not" => {
                schema.insert(name, expand(types, value, depth + 1));
            }
            "anyOf" | "oneOf" => {
                let all = list(Some(value)).iter().map(|one| constraint(types, one, depth)).collect();
                schema.insert(name, Value::Array(all));
            }
            "list" => expand_list(value, &mut schema),
            "union" => rules.extend(value.as_object().into_iter().flat_map(Object::iter).map(union_rule)),
            "once" => rules.extend(list(Some(value)).iter().filter_map(Value::as_str).map(once_rule)),
            "rules" => rules.extend(list(Some(value)).iter().cloned()),
            _ => drop(schema.insert(name, value.clone())),
        }
    }
    let implied = match short {
        _ if short.contains_key("items") => Some("array"),
        _ if short.contains_key("properties") || short.contains_key("additionalProperties") => Some("object"),
        _ => None,
    };
    if let Some(implied) = implied {
        schema.insert("type", implied);
    }
    if !rules.is_empty() {
        schema.insert("x-kubernetes-validations", Value::Array(rules));
    }
    Value::Object(schema)
}

/// Expands a member of `anyOf` or `oneOf`, which has no type.
fn constraint(types: &Object, short: &Value, depth: usize) -> Value {
    let mut expanded = expand(types, short, depth + 1);
    if let Some(schema) = expanded.as_object_mut() {
        schema.remove("type");
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            for property in properties.iter_mut().filter_map(|(_, property)| property.as_object_mut()) {
                property.remove("type");
            }
        }
    }
    expanded
}

fn expand_properties(types: &Object, short: &Value, depth: usize, schema: &mut Object) {
    let (mut properties, mut required) = (Object::default(), Vec::new());
    for (name, property) in short.as_object().into_iter().flat_map(Object::iter) {
        let plain = name.strip_suffix('!').unwrap_or(name);
        if plain != name {
            required.push(Value::from(plain));
        }
        properties.insert(plain, expand(types, property, depth + 1));
    }
    schema.insert("properties", properties);
    if !required.is_empty() {
        schema.insert("required", Value::Array(required));
    }
}

fn expand_list(short: &Value, schema: &mut Object) {
    let text = short.as_str().unwrap_or_default();
    let (kind, keys) = text.split_once(' ').unwrap_or((text, ""));
    schema.insert("x-kubernetes-list-type", kind);
    if !keys.is_empty() {
        let keys = keys.split(' ').map(Value::from).collect();
        schema.insert("x-kubernetes-list-map-keys", Value::Array(keys));
    }
}

/// Returns the rule that a property is set exactly if `type` is its type.
fn union_rule((kind, property): (&str, &Value)) -> Value {
    let property = property.as_str().unwrap_or_default();
    value!({
        "rule": (format!("has(self.{property}) == (self.type == '{kind}')")),
        "message": (format!("{property} is set exactly if type is {kind}")),
    })
}

fn once_rule(kind: &str) -> Value {
    value!({
        "rule": (format!("self.filter(one, one.type == '{kind}').size() <= 1")),
        "message": (format!("there is at most one {kind}")),
    })
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_is_complete() {
        let names: Vec<String> =
            gateway_api().iter().map(|crd| crd.str_at(&["metadata", "name"]).unwrap().to_owned()).collect();
        let expect =
            ["backendtlspolicies", "referencegrants", "grpcroutes", "httproutes", "gateways", "gatewayclasses"];
        assert_eq!(names, expect.map(|plural| format!("{plural}.{GROUP}")));
        for crd in gateway_api() {
            let text = crd.to_string();
            assert!(!text.contains("\"$") && !text.contains("!\":"), "{text}");
        }
    }

    #[test]
    fn short_form_expands_to_open_api() {
        let types = value!({"Name": {"type": "string", "maxLength": 3}});
        let short = value!({
            "properties": {"name!": "$Name", "type": {"type": "string"}},
            "union": {"Named": "name"},
        });
        let array = value!({"items": (short.clone()), "list": "map name", "once": ["Named"]});
        let expanded = expand(types.as_object().unwrap(), &array, 0);
        assert_eq!(
            expanded,
            value!({
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "maxLength": 3}, "type": {"type": "string"}},
                    "required": ["name"],
                    "x-kubernetes-validations": [{
                        "rule": "has(self.name) == (self.type == 'Named')",
                        "message": "name is set exactly if type is Named",
                    }],
                },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-validations": [{
                    "rule": "self.filter(one, one.type == 'Named').size() <= 1",
                    "message": "there is at most one Named",
                }],
            })
        );
    }
}
