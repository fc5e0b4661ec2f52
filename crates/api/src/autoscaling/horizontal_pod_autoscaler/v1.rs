//! Conversion of HorizontalPodAutoscaler autoscaling/v1, which has fields only for CPU; the rest is in annotations.

use std::fmt::Write as _;

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::time::Time;
use apimachinery::{Value, go, json, value};

use super::default_metric;
use crate::field_rules::default_to;
use crate::workload;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// Annotations that hold the v2 fields missing in v1.
pub(super) const ANNOTATIONS: [&str; 4] = [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR];

/// A field of a v1 metric: its v1 name and its v2 path.
type Rename = (&'static str, &'static [&'static str]);

/// Metric sources and their fields in the order of the v1 types. `#` stands for `target` in a spec and for `current` in
/// a status.
const SOURCES: [(&str, &[Rename]); 5] = [
    (
        "object",
        &[
            ("target", &["describedObject"]),
            ("metricName", &["metric", "name"]),
            ("#Value", &["#", "value"]),
            ("selector", &["metric", "selector"]),
            ("averageValue", &["#", "averageValue"]),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", &["metric", "name"]),
            ("#AverageValue", &["#", "averageValue"]),
            ("selector", &["metric", "selector"]),
        ],
    ),
    ("resource", RESOURCE),
    (
        "containerResource",
        &[
            ("name", &["name"]),
            ("#AverageUtilization", &["#", "averageUtilization"]),
            ("#AverageValue", &["#", "averageValue"]),
            ("container", &["container"]),
        ],
    ),
    (
        "external",
        &[
            ("metricName", &["metric", "name"]),
            ("metricSelector", &["metric", "selector"]),
            ("#Value", &["#", "value"]),
            ("#AverageValue", &["#", "averageValue"]),
        ],
    ),
];

const RESOURCE: &[Rename] = &[
    ("name", &["name"]),
    ("#AverageUtilization", &["#", "averageUtilization"]),
    ("#AverageValue", &["#", "averageValue"]),
];

/// Defaults `targetCPUUtilizationPercentage` to the utilization of [`default_metric`] if there is no metrics
/// annotation.
pub(super) fn default(object: &mut Value) {
    if Meta::of(object).annotation(METRICS).is_some() {
        return;
    }
    let share = default_metric().at(&["resource", "target", "averageUtilization"]).cloned().unwrap_or_default();
    if let Some(spec) = object.get_mut("spec") {
        default_to(spec, "targetCPUUtilizationPercentage", share);
    }
}

/// Returns the table cell of the metrics of a v1 object.
pub(super) fn cell(object: &Value, now: Time) -> Value {
    let mut newer = object.clone();
    to_v2(&mut newer);
    super::metrics::cell(&newer, now)
}

/// Converts v1 to v2 in place.
pub(super) fn to_v2(object: &mut Value) {
    let annotation = |name: &str| {
        let text = Meta::of(object).annotation(name)?;
        // An unparsable annotation is ignored: only the server writes these annotations.
        json::parse(text.as_bytes()).ok()
    };
    let [metrics, current, conditions, behavior] = ANNOTATIONS.map(annotation);
    if let Some(mut meta) = MetaMut::of(object) {
        ANNOTATIONS.iter().for_each(|name| meta.remove_annotation(name));
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let mut all = Vec::new();
        if let Some(Value::Int(share)) = spec.remove("targetCPUUtilizationPercentage") {
            all.push(value!({"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": share}
            }}));
        }
        all.extend(metrics.iter().flat_map(items).map(|metric| metric_to_v2(metric, MetricRole::Target)));
        if all.is_empty() {
            all.push(default_metric());
        }
        spec.insert("metrics", all);
        if let Some(behavior) = behavior {
            spec.insert("behavior", uncapitalized(behavior));
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let mut all: Vec<Value> =
            current.iter().flat_map(items).map(|metric| metric_to_v2(metric, MetricRole::Current)).collect();
        if let Some(Value::Int(share)) = status.remove("currentCPUUtilizationPercentage")
            && all.is_empty()
        {
            all.push(value!({"type": "Resource", "resource": {
                "name": "cpu", "current": {"averageUtilization": share}
            }}));
        }
        status.insert("currentMetrics", if all.is_empty() { Value::Null } else { Value::Array(all) });
        if let Some(conditions) = conditions.filter(|conditions| !items(conditions).is_empty()) {
            status.insert("conditions", conditions);
        }
        // v2 omits currentReplicas if it is zero.
        if status.get("currentReplicas") == Some(&Value::Int(0)) {
            status.remove("currentReplicas");
        }
    }
}

/// Converts v2 to v1 in place.
pub(super) fn from_v2(object: &mut Value) {
    let list = |path: &[&str]| object.at(path).map(items).unwrap_or_default().to_vec();
    let (metrics, current) = (list(&["spec", "metrics"]), list(&["status", "currentMetrics"]));
    let conditions = list(&["status", "conditions"]);
    let share = |metric: &Value, part: &str| {
        let is_cpu =
            metric.str_at(&["type"]) == Some("Resource") && metric.str_at(&["resource", "name"]) == Some("cpu");
        metric.at(&["resource", part, "averageUtilization"]).filter(|_| is_cpu).and_then(Value::as_int)
    };
    let others: Vec<_> = metrics.iter().filter(|metric| share(metric, "target").is_none()).collect();
    let behavior = object.at(&["spec", "behavior"]).map(printed_behavior);
    let annotations = [
        (METRICS, (!others.is_empty()).then(|| printed(others.into_iter(), MetricRole::Target))),
        (CURRENT_METRICS, (!current.is_empty()).then(|| printed(current.iter(), MetricRole::Current))),
        (BEHAVIOR, behavior),
        (CONDITIONS, (!conditions.is_empty()).then(|| printed_conditions(&conditions))),
    ];
    if let Some(mut meta) = MetaMut::of(object) {
        for (name, text) in annotations.iter().filter_map(|(name, text)| Some((name, text.as_ref()?))) {
            meta.set_annotation(name, text);
        }
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("metrics");
        spec.remove("behavior");
        if let Some(share) = metrics.iter().find_map(|metric| share(metric, "target")) {
            spec.insert("targetCPUUtilizationPercentage", share);
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("currentMetrics");
        status.remove("conditions");
        status.get_or_insert_with("currentReplicas", || Value::Int(0));
        status.get_or_insert_with("desiredReplicas", || Value::Int(0));
        if let Some(share) = current.iter().find_map(|metric| share(metric, "current")) {
            status.insert("currentCPUUtilizationPercentage", share);
        }
    }
}

/// The part of the object that a metric belongs to: spec (target) or status (current).
#[derive(Clone, Copy)]
enum MetricRole {
    Target,
    Current,
}

impl MetricRole {
    const fn name(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Current => "current",
        }
    }

    fn field(self, renamed: &str) -> String {
        renamed.replace('#', self.name())
    }

    fn path(self, path: &[&'static str]) -> Vec<&'static str> {
        path.iter().map(|step| if *step == "#" { self.name() } else { step }).collect()
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_default()
}

fn metric_to_v2(metric: &Value, part: MetricRole) -> Value {
    let mut out = apimachinery::Object::new();
    out.insert("type", metric.get("type").cloned().unwrap_or_default());
    for (source, fields) in SOURCES {
        let Some(found) = metric.get(source).filter(|found| !found.is_null()) else { continue };
        let mut made = Value::object();
        for (renamed, path) in fields {
            if let Some(value) = found.get(&part.field(renamed)).filter(|value| !value.is_null()) {
                put(&mut made, &part.path(path), value.clone());
            }
        }
        if matches!(part, MetricRole::Target) {
            let target = |field: &str| made.at(&["target", field]).is_some_and(|amount| !is_zero(amount));
            let ty = match () {
                () if target("averageUtilization") => "Utilization",
                () if target("averageValue") => "AverageValue",
                () => "Value",
            };
            put(&mut made, &["target", "type"], ty.into());
        }
        out.insert(source, made);
    }
    Value::Object(out)
}

/// Whether an amount is absent or zero. v1 always prints amounts.
fn is_zero(amount: &Value) -> bool {
    amount.is_null() || amount.as_str() == Some("0")
}

fn put(into: &mut Value, path: &[&str], value: Value) {
    let Some(fields) = into.as_object_mut() else { return };
    match path {
        [] => {}
        [last] => drop(fields.insert(*last, value)),
        [first, rest @ ..] => put(fields.get_or_insert_with(first, Value::object), rest, value),
    }
}

/// Prints metrics as the v1 type serializes them.
fn printed<'a>(metrics: impl Iterator<Item = &'a Value>, part: MetricRole) -> String {
    let metrics: Vec<_> = metrics
        .map(|metric| {
            let mut fields = vec![("type".to_owned(), go::json(&metric["type"]))];
            for (source, renames) in SOURCES {
                if let Some(found) = metric.get(source).filter(|found| !found.is_null()) {
                    fields.push((source.to_owned(), printed_source(found, source, renames, part)));
                }
            }
            braced(&fields)
        })
        .collect();
    format!("[{}]", metrics.join(","))
}

fn printed_source(source: &Value, name: &str, renames: &[Rename], part: MetricRole) -> String {
    let mut fields = Vec::new();
    for (renamed, path) in renames {
        let field = part.field(renamed);
        match source.at(&part.path(path)).filter(|found| !found.is_null()) {
            Some(found) if *renamed == "target" => fields.push((field, printed_reference(found))),
            Some(found) if renamed.ends_with("elector") => {
                fields.push((field, workload::selector_bad_value(found).to_string()));
            }
            Some(found) => fields.push((field, go::json(found))),
            // These fields have no `omitempty`.
            None if amount_is_required(name, &field, part) => fields.push((field, "\"0\"".to_owned())),
            None => {}
        }
    }
    braced(&fields)
}

fn amount_is_required(source: &str, field: &str, part: MetricRole) -> bool {
    match part {
        MetricRole::Target => matches!((source, field), ("object", "targetValue") | ("pods", "targetAverageValue")),
        MetricRole::Current => matches!(
            (source, field),
            ("object" | "external", "currentValue")
                | ("pods" | "resource" | "containerResource", "currentAverageValue")
        ),
    }
}

fn printed_reference(reference: &Value) -> String {
    let text = |field: &str| reference.text_at(&[field]);
    let mut fields =
        vec![("kind".to_owned(), go::json(&text("kind").into())), ("name".to_owned(), go::json(&text("name").into()))];
    if !text("apiVersion").is_empty() {
        fields.push(("apiVersion".to_owned(), go::json(&text("apiVersion").into())));
    }
    braced(&fields)
}

fn printed_conditions(conditions: &[Value]) -> String {
    let one = |condition: &Value| {
        let mut fields = Vec::new();
        for field in ["type", "status", "lastTransitionTime", "reason", "message"] {
            let found = condition.get(field).filter(|found| !found.is_null());
            let always = matches!(field, "type" | "status" | "lastTransitionTime");
            if always || found.and_then(Value::as_str).is_some_and(|text| !text.is_empty()) {
                fields.push((field.to_owned(), go::json(found.unwrap_or(&Value::Null))));
            }
        }
        braced(&fields)
    };
    format!("[{}]", conditions.iter().map(one).collect::<Vec<_>>().join(","))
}

/// Prints the behavior as upstream's internal type serializes it, with Go field names.
fn printed_behavior(behavior: &Value) -> String {
    let rules = |direction: &str| {
        let Some(rules) = behavior.get(direction).filter(|rules| !rules.is_null()) else { return "null".to_owned() };
        let text = |field: &str| go::json(rules.get(field).unwrap_or(&Value::Null));
        let policies = rules.get("policies").map(items).unwrap_or_default().iter().map(|policy| {
            let text = |field: &str| go::json(policy.get(field).unwrap_or(&Value::Null));
            format!(
                r#"{{"Type":{},"Value":{},"PeriodSeconds":{}}}"#,
                text("type"),
                text("value"),
                text("periodSeconds")
            )
        });
        let policies = policies.collect::<Vec<_>>().join(",");
        format!(
            r#"{{"StabilizationWindowSeconds":{},"SelectPolicy":{},"Policies":[{policies}],"Tolerance":{}}}"#,
            text("stabilizationWindowSeconds"),
            text("selectPolicy"),
            text("tolerance")
        )
    };
    format!(r#"{{"ScaleUp":{},"ScaleDown":{}}}"#, rules("scaleUp"), rules("scaleDown"))
}

/// Returns the tree with keys starting in lower case and without nulls.
fn uncapitalized(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            let small = |key: &str| {
                let mut rest = key.chars();
                rest.next().map_or_else(String::new, |first| first.to_ascii_lowercase().to_string() + rest.as_str())
            };
            Value::Object(fields.map(|(key, value)| (small(&key), uncapitalized(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(uncapitalized).collect()),
        other => other,
    }
}

fn braced(fields: &[(String, String)]) -> String {
    let mut out = String::from("{");
    for (at, (key, value)) in fields.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(out, "{comma}\"{key}\":{value}").expect("writing to a String cannot fail");
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v1_keeps_non_cpu_metrics_in_annotations() {
        let mut object = value!({
            "metadata": {"name": "h"},
            "spec": {"maxReplicas": 5, "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
                {"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": {"type": "AverageValue", "averageValue": "10"}}}
            ]},
            "status": {"currentMetrics": null, "desiredReplicas": 0}
        });
        let before = object.clone();
        from_v2(&mut object);
        assert_eq!(object["spec"], value!({"maxReplicas": 5, "targetCPUUtilizationPercentage": 60}));
        assert_eq!(object["status"], value!({"currentReplicas": 0, "desiredReplicas": 0}));
        let annotation = r#"[{"type":"Pods","pods":{"metricName":"qps","targetAverageValue":"10"}}]"#;
        assert_eq!(object["metadata"]["annotations"][METRICS], value!(annotation));
        to_v2(&mut object);
        assert_eq!(object, before);
    }

    #[test]
    fn behavior_survives_a_round_trip_through_v1() {
        let behavior = value!({"scaleDown": {
            "stabilizationWindowSeconds": 60, "selectPolicy": "Max",
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]
        }});
        let mut object = value!({"metadata": {}, "spec": {"metrics": [(default_metric())], "behavior": (behavior)}});
        let before = object.clone();
        from_v2(&mut object);
        let annotation = r#"{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":60,"SelectPolicy":"Max","Policies":[{"Type":"Percent","Value":100,"PeriodSeconds":15}],"Tolerance":null}}"#;
        assert_eq!(object["metadata"]["annotations"][BEHAVIOR], value!(annotation));
        to_v2(&mut object);
        assert_eq!(object, before);
    }

    #[test]
    fn autoscaler_without_metrics_defaults_to_cpu() {
        let mut object = value!({"metadata": {}, "spec": {"maxReplicas": 1}});
        to_v2(&mut object);
        assert_eq!(object["spec"]["metrics"], value!([(default_metric())]));
    }
}
