//! Bootstrap flow schemas and priority levels, and their maintenance.
//!
//! Mandatory objects are always kept as defined here. Suggested objects belong to the cluster operator once they are
//! changed or annotated.

use std::collections::BTreeSet;
use std::fmt;

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Object, Value, value};

use crate::flow_schema::FlowSchema;
use crate::level::{CATCH_ALL, EXEMPT, LevelSpec};

const TEXT: &str = include_str!("bootstrap.txt");
const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
const BROKEN: &str = "the bootstrap configuration follows its grammar";

/// The annotation that controls whether the server maintains an object.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// The field manager of the written objects.
pub const FIELD_MANAGER: &str = "api-priority-and-fairness-config-producer-v1";

/// A write that restores the bootstrap objects.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    Create(Value),
    /// Replaces the object, which has the observed resourceVersion.
    Update(Value),
    /// Deletes an unchanged object of an older Kubernetes version.
    Delete(Value),
}

/// Returns all objects, priority levels first, so that no flow schema exists without its level.
pub fn objects() -> Vec<Value> {
    let mut objects: Vec<Value> = Vec::new();
    for line in TEXT.lines().filter(|line| !line.starts_with('#')) {
        if let Some(rule) = line.strip_prefix('\t') {
            add_to_rules(objects.last_mut().expect(BROKEN), rule);
            continue;
        }
        objects.push(match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["level", name, shares, lendable, response @ ..] => level(name, number(shares), number(lendable), response),
            ["flow", name, precedence, level, rest @ ..] => {
                schema(name, number(precedence), level, rest.first().copied())
            }
            _ => panic!("{BROKEN}: {line}"),
        });
    }
    objects
}

/// Returns the writes needed for `current`, which are all existing flow schemas and priority levels.
pub fn ensure(current: &[Value]) -> Vec<Write> {
    let desired = objects();
    let mut writes = Vec::new();
    // Suggested objects come before mandatory ones, as upstream.
    for mandatory in [false, true] {
        for object in desired.iter().filter(|object| is_mandatory(object) == mandatory) {
            match current.iter().find(|have| identity(have) == identity(object)) {
                None => writes.push(Write::Create(object.clone())),
                Some(have) => writes.extend(update(have, object).map(Write::Update)),
            }
        }
    }
    let known: BTreeSet<_> = desired.iter().map(identity).collect();
    let is_obsolete = |object: &&Value| auto_update(object) == Some(true) && !known.contains(&identity(object));
    writes.extend(current.iter().filter(is_obsolete).cloned().map(Write::Delete));
    writes
}

/// Returns the mandatory levels, used while their objects do not exist.
pub(crate) fn mandatory_levels() -> Vec<LevelSpec> {
    let levels = objects()
        .into_iter()
        .filter(|object| is_mandatory(object) && identity(object).0 == "PriorityLevelConfiguration");
    levels.map(|object| LevelSpec::from_object(&object).expect(BROKEN)).collect()
}

/// Returns the mandatory schemas, used while their objects do not exist.
pub(crate) fn mandatory_schemas() -> Vec<FlowSchema> {
    let schemas = objects().into_iter().filter(|object| is_mandatory(object) && identity(object).0 == "FlowSchema");
    schemas.map(|object| FlowSchema::from_object(&object)).collect()
}

fn is_mandatory(object: &Value) -> bool {
    matches!(Meta::of(object).name(), EXEMPT | CATCH_ALL)
}

fn identity(object: &Value) -> (&str, &str) {
    (object.text_at(&["kind"]), Meta::of(object).name())
}

fn update(have: &Value, desired: &Value) -> Option<Value> {
    // An object without the annotation is maintained if it was never changed.
    let is_managed = is_mandatory(desired) || auto_update(have).unwrap_or(Meta::of(have).generation() == 1);
    let mut updated = have.clone();
    if auto_update(have) != Some(is_managed) {
        let mark = if is_managed { "true" } else { "false" };
        MetaMut::of(&mut updated)?.set_annotation(AUTO_UPDATE, mark);
    }
    if is_managed && !is_same_spec(have, desired) {
        updated.as_object_mut()?.insert("spec", desired["spec"].clone());
    }
    (updated != *have).then_some(updated)
}

/// Whether the specs are equal, except the exempt level's shares and lendable percentage, which the operator may
/// choose.
fn is_same_spec(have: &Value, desired: &Value) -> bool {
    let mut expected = desired["spec"].clone();
    if let Some(exempt) = expected.get_mut("exempt").and_then(Value::as_object_mut) {
        let Some(chosen) = have.at(&["spec", "exempt"]).and_then(Value::as_object) else { return false };
        for field in ["nominalConcurrencyShares", "lendablePercent"] {
            match chosen.get(field) {
                Some(value) => drop(exempt.insert(field, value.clone())),
                None => drop(exempt.remove(field)),
            }
        }
    }
    have["spec"] == expected
}

/// Returns the annotation's value, parsed as Go parses a boolean.
fn auto_update(object: &Value) -> Option<bool> {
    match Meta::of(object).annotation(AUTO_UPDATE)? {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn level(name: &str, shares: i64, lendable: i64, response: &[&str]) -> Value {
    let mut config: Object =
        [("nominalConcurrencyShares", shares), ("lendablePercent", lendable)].into_iter().collect();
    let spec = match response {
        ["exempt"] => value!({"type": "Exempt", "exempt": config}),
        ["reject"] => {
            config.insert("limitResponse", value!({"type": "Reject"}));
            value!({"type": "Limited", "limited": config})
        }
        ["queue", queues, hand, length] => {
            let (queues, hand, length) = (number(queues), number(hand), number(length));
            let queuing = value!({"queues": queues, "handSize": hand, "queueLengthLimit": length});
            config.insert("limitResponse", value!({"type": "Queue", "queuing": queuing}));
            value!({"type": "Limited", "limited": config})
        }
        _ => panic!("{BROKEN}: {response:?}"),
    };
    object("PriorityLevelConfiguration", name, spec)
}

fn schema(name: &str, precedence: i64, level: &str, distinguisher: Option<&str>) -> Value {
    let mut spec = value!({
        "matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level}, "rules": [],
    });
    if let Some(method) = distinguisher {
        spec.as_object_mut().expect(BROKEN).insert("distinguisherMethod", value!({"type": method}));
    }
    object("FlowSchema", name, spec)
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    let annotations: Object = [(AUTO_UPDATE, "true")].into_iter().collect();
    let metadata = value!({"name": name, "annotations": annotations});
    value!({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})
}

fn add_to_rules(schema: &mut Value, line: &str) {
    let rules =
        schema.get_mut("spec").and_then(|spec| spec.get_mut("rules")).and_then(Value::as_array_mut).expect(BROKEN);
    if let Some(subjects) = line.strip_prefix("for ") {
        let subjects: Vec<Value> = subjects.split(' ').map(subject).collect();
        rules.push(value!({"subjects": subjects}));
        return;
    }
    let rule = rules.last_mut().and_then(Value::as_object_mut).expect(BROKEN);
    let (field, entry) = match line.split(' ').collect::<Vec<_>>().as_slice() {
        [verbs, paths] => ("nonResourceRules", value!({"verbs": (list(verbs)), "nonResourceURLs": (list(paths))})),
        [verbs, groups, resources, places] => ("resourceRules", resource_rule(verbs, groups, resources, places)),
        _ => panic!("{BROKEN}: {line}"),
    };
    rule.get_or_insert_with(field, || Value::Array(Vec::new())).as_array_mut().expect(BROKEN).push(entry);
}

fn resource_rule(verbs: &str, groups: &str, resources: &str, places: &str) -> Value {
    let mut rule = value!({"verbs": (list(verbs)), "apiGroups": (list(groups)), "resources": (list(resources))});
    let fields = rule.as_object_mut().expect(BROKEN);
    let (cluster, namespaces): (Vec<&str>, Vec<&str>) = places.split(',').partition(|scope| *scope == "/");
    if !cluster.is_empty() {
        fields.insert("clusterScope", true);
    }
    if !namespaces.is_empty() {
        fields.insert("namespaces", Value::Array(namespaces.into_iter().map(Value::from).collect()));
    }
    rule
}

fn subject(text: &str) -> Value {
    match text.split_once('=').expect(BROKEN) {
        ("User", name) => value!({"kind": "User", "user": {"name": name}}),
        ("Group", name) => value!({"kind": "Group", "group": {"name": name}}),
        (_, account) => {
            let (namespace, name) = account.split_once('/').expect(BROKEN);
            value!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}})
        }
    }
}

fn list(names: &str) -> Value {
    Value::Array(names.split(',').map(|word| Value::from(if word == "-" { "" } else { word })).collect())
}

fn number(text: &str) -> i64 {
    text.parse().expect(BROKEN)
}

impl fmt::Display for Write {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, object) = match self {
            Self::Create(object) => ("create", object),
            Self::Update(object) => ("update", object),
            Self::Delete(object) => ("delete", object),
        };
        let (kind, name) = identity(object);
        write!(out, "{verb} {kind} {name}")
    }
}

#[cfg(test)]
mod tests;
