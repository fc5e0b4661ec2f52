//! NodeMetrics, PodMetrics and their discovery documents.

use std::collections::BTreeMap;

use apimachinery::quantity::{Format, Quantity};
use apimachinery::status::{GroupName, Status};
use apimachinery::table::{self, Cell, Column, IncludeObject};
use apimachinery::time::Time;
use apimachinery::{Object, Value, value};

use crate::history::Usage;

pub const GROUP: &str = "metrics.k8s.io";
pub const VERSION: &str = "v1beta1";
const API_VERSION: &str = "metrics.k8s.io/v1beta1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Node,
    Pod,
}

impl Kind {
    /// Returns the resource name in paths.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::Pod => "pods",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Node => "NodeMetrics",
            Self::Pod => "PodMetrics",
        }
    }

    /// Returns a NotFound status: the object does not exist, or has no metrics yet.
    pub fn not_found(self, namespace: &str, name: &str) -> Status {
        let resource = match self {
            Self::Node => "nodemetrics",
            Self::Pod => "podmetrics",
        };
        let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        Status::not_found(GroupName::new(GROUP, resource), &name)
    }
}

/// Returns the NodeMetrics of a node; the metadata of `object` is sufficient.
pub fn node(object: &Value, used: Usage, now: Time) -> Value {
    let mut metrics = beginning(Kind::Node, object, used, now);
    metrics.insert("usage", usage(used));
    Value::Object(metrics)
}

/// Returns the PodMetrics of a pod; `None` without containers.
pub fn pod(object: &Value, containers: &BTreeMap<&str, Usage>, now: Time) -> Option<Value> {
    let first = containers.values().next()?;
    let mut metrics = beginning(Kind::Pod, object, *first, now);
    let containers = containers.iter().map(|(name, used)| value!({"name": (*name), "usage": (usage(*used))}));
    metrics.insert("containers", containers.collect::<Vec<_>>());
    Some(Value::Object(metrics))
}

pub fn list(kind: Kind, items: Vec<Value>) -> Value {
    value!({"kind": (format!("{}List", kind.name())), "apiVersion": API_VERSION, "metadata": {}, "items": items})
}

/// Converts one object or a list to a Table.
pub fn as_table(objects: &Value, include: IncludeObject, now: Time) -> Value {
    let column = |name: &str, format: &str, description: &str, cell: fn(&Value, Time) -> Value| {
        let column = Column::new(name, "string", description, Cell::Function(cell));
        Column { format: format.to_owned(), ..column }
    };
    let columns = [
        column("Name", "name", "Name of the resource", table::name_cell),
        column("cpu", "quantity", "", |object, _| total(object, "cpu").into()),
        column("memory", "quantity", "", |object, _| total(object, "memory").into()),
        column("Window", "duration", "", |object, _| object["window"].clone()),
    ];
    table::table(&columns, objects, include, now)
}

/// Returns the document at `/apis`.
pub fn groups() -> Value {
    value!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [(bare_group())]})
}

/// Returns the document at `/apis/metrics.k8s.io`.
pub fn group() -> Value {
    let mut group = bare_group();
    if let Some(group) = group.as_object_mut() {
        group.insert("kind", "APIGroup");
        group.insert("apiVersion", "v1");
    }
    group
}

/// Returns the document at `/apis/metrics.k8s.io/v1beta1`.
pub fn resources() -> Value {
    let row = |kind: Kind| {
        value!({"name": (kind.plural()), "singularName": "", "namespaced": (kind == Kind::Pod), "kind": (kind.name()),
            "verbs": ["get", "list"]})
    };
    value!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API_VERSION,
        "resources": [(row(Kind::Node)), (row(Kind::Pod))]})
}

fn bare_group() -> Value {
    let version = value!({"groupVersion": API_VERSION, "version": VERSION});
    value!({"name": GROUP, "versions": [(version.clone())], "preferredVersion": version})
}

fn beginning(kind: Kind, object: &Value, used: Usage, now: Time) -> Object {
    let mut metadata = Object::new();
    for field in ["name", "namespace", "labels"] {
        if let Some(value) = object.at(&["metadata", field]).filter(|value| !value.is_null()) {
            metadata.insert(field, value.clone());
        }
    }
    metadata.insert("creationTimestamp", now.to_string());
    let mut metrics = Object::new();
    metrics.insert("kind", kind.name());
    metrics.insert("apiVersion", API_VERSION);
    metrics.insert("metadata", metadata);
    metrics.insert("timestamp", used.at.to_string());
    metrics.insert("window", used.window.to_string());
    metrics
}

fn usage(used: Usage) -> Value {
    let cpu = Quantity::scaled(used.cpu_nanocores, -9, Format::DecimalSI);
    let memory = Quantity::new(used.memory_bytes, Format::BinarySI);
    value!({"cpu": (cpu.to_string()), "memory": (memory.to_string())})
}

/// Returns the usage of a node, or the total usage of a pod's containers.
fn total(object: &Value, resource: &str) -> String {
    let containers = object["containers"].as_array().unwrap_or_default().iter().map(|container| &container["usage"]);
    let usages = object.get("usage").into_iter().chain(containers);
    let amounts = usages.filter_map(|usage| usage.str_at(&[resource])?.parse::<Quantity>().ok());
    amounts.reduce(Quantity::add).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use apimachinery::time::Duration;

    use super::*;

    fn used(cpu_nanocores: i64, memory_bytes: i64) -> Usage {
        Usage { cpu_nanocores, memory_bytes, at: Time::from_unix(60, 0), window: Duration::from_seconds(15) }
    }

    #[test]
    fn metrics_match_upstreams_form() {
        let object = value!({"metadata": {"name": "a", "namespace": "n", "labels": {"x": "y"}, "uid": "u"}});
        let now = Time::from_unix(61, 0);
        let containers = BTreeMap::from([("c", used(1_234_567, 5 << 20)), ("d", used(1_000_000, 1536))]);
        let expect = value!({"kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": {"name": "a", "namespace": "n", "labels": {"x": "y"}, "creationTimestamp": "1970-01-01T00:01:01Z"},
            "timestamp": "1970-01-01T00:01:00Z", "window": "15s",
            "containers": [{"name": "c", "usage": {"cpu": "1234567n", "memory": "5Mi"}},
                {"name": "d", "usage": {"cpu": "1m", "memory": "1536"}}]});
        let made = pod(&object, &containers, now).unwrap();
        assert_eq!(made, expect);
        assert_eq!(pod(&object, &BTreeMap::new(), now), None);
        let node = node(&object, used(250_000_000, 1 << 30), now);
        assert_eq!(node["usage"], value!({"cpu": "250m", "memory": "1Gi"}));
        let table = as_table(&list(Kind::Pod, vec![made]), IncludeObject::None, now);
        assert_eq!(table["rows"], value!([{"cells": ["a", "2234567n", "5244416", "15s"], "object": null}]));
        assert_eq!(as_table(&node, IncludeObject::None, now)["rows"][0]["cells"], value!(["a", "250m", "1Gi", "15s"]));
        assert_eq!(Kind::Pod.not_found("n", "a").message, "podmetrics.metrics.k8s.io \"n/a\" not found");
    }
}
