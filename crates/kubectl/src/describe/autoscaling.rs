//! HorizontalPodAutoscalers.

use apimachinery::{Value, go};

use super::common;
use super::read::{Read, quantity_text};
use super::writer::{Writer, line};
use super::{RelatedObjects, WriteResult};

pub(super) fn autoscaler(w: &mut Writer<'_>, scaler: &Value, _: &RelatedObjects) -> WriteResult {
    let spec = scaler.sub("spec");
    let is_old = scaler.text("apiVersion") == "autoscaling/v1";
    common::identity(w, scaler);
    common::metadata(w, scaler);
    common::time(w, "CreationTimestamp", scaler.text("metadata.creationTimestamp"));
    let kind = spec.text("scaleTargetRef.kind");
    line!(w, 0, "Reference:\t{kind}/{}", spec.text("scaleTargetRef.name"));
    if is_old {
        write_cpu(w, scaler);
    } else {
        line!(w, 0, "Metrics:\t( current / target )");
        let current = scaler.list("status.currentMetrics");
        for (index, metric) in spec.list("metrics").iter().enumerate() {
            write_metric(w, metric, current.get(index).unwrap_or(&Value::Null));
        }
    }
    let min = spec.sub("minReplicas").as_int().map_or_else(|| "<unset>".to_owned(), |min| min.to_string());
    line!(w, 0, "Min replicas:\t{min}");
    line!(w, 0, "Max replicas:\t{}", spec.int("maxReplicas"));
    let behavior = spec.sub("behavior");
    if !behavior.is_null() && !is_old {
        line!(w, 0, "Behavior:");
        write_behavior(w, "Scale Up", behavior.sub("scaleUp"));
        write_behavior(w, "Scale Down", behavior.sub("scaleDown"));
    }
    let [current, desired] = ["status.currentReplicas", "status.desiredReplicas"].map(|field| scaler.int(field));
    line!(w, 0, "{kind} pods:\t{current} current / {desired} desired");
    let conditions = scaler.list("status.conditions");
    if !conditions.is_empty() && !is_old {
        line!(w, 0, "Conditions:");
        line!(w, 1, "Type\tStatus\tReason\tMessage");
        line!(w, 1, "----\t------\t------\t-------");
        for condition in conditions {
            let cells = ["type", "status", "reason", "message"].map(|field| condition.text(field));
            line!(w, 1, "{}", cells.join("\t"));
        }
    }
    Ok(())
}

/// Writes the only metric of `autoscaling/v1`.
fn write_cpu(w: &mut Writer<'_>, scaler: &Value) {
    if let Some(target) = scaler.sub("spec.targetCPUUtilizationPercentage").as_int() {
        let current = scaler.sub("status.currentCPUUtilizationPercentage").as_int();
        line!(w, 0, "Target CPU utilization:\t{target}%");
        let current = current.map_or_else(|| "<unknown>".to_owned(), |current| current.to_string());
        line!(w, 0, "Current CPU utilization:\t{current}%");
    }
}

fn write_metric(w: &mut Writer<'_>, metric: &Value, current: &Value) {
    let kind = metric.text("type");
    let field = match kind {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => {
            line!(w, 1, "<unknown metric type {}>", go::quote(kind));
            return;
        }
    };
    let (metric, current) = (metric.sub(field), current.sub(field));
    let target = metric.sub("target");
    let quoted = go::quote(metric.text("metric.name"));
    let amount = |path: &str| amount(current, path);
    let target_value = |field: &str| quantity_or_nil(target.sub(field));
    match kind {
        "External" if target.has("averageValue") => {
            let current = match current.has("current.averageValue") {
                true => amount("current.averageValue"),
                false => "<unknown>".to_owned(),
            };
            line!(w, 1, "{quoted} (target average value):\t{current} / {}", target_value("averageValue"));
        }
        "External" => line!(w, 1, "{quoted} (target value):\t{} / {}", amount("current.value"), target_value("value")),
        "Pods" => {
            line!(w, 1, "{quoted} on pods:\t{} / {}", amount("current.averageValue"), target_value("averageValue"));
        }
        "Object" => {
            let object = metric.sub("describedObject");
            let (title, field) = match target.text("type") {
                "AverageValue" => ("average value", "averageValue"),
                _ => ("value", "value"),
            };
            let on = format!("\"{}\" on {}/{}", metric.text("metric.name"), object.text("kind"), object.text("name"));
            line!(w, 1, "{on} (target {title}):\t{} / {}", amount(&format!("current.{field}")), target_value(field));
        }
        _ => write_resource_metric(w, metric, current),
    }
}

/// Writes the metric of a resource, of all containers of a pod or of one.
fn write_resource_metric(w: &mut Writer<'_>, metric: &Value, current: &Value) {
    let container = match metric.text("container") {
        "" => String::new(),
        container => format!(" of container \"{container}\""),
    };
    w.write(1, format_args!("resource {}{container} on pods", metric.text("name")));
    let target = metric.sub("target");
    if target.has("averageValue") {
        let current = amount(current, "current.averageValue");
        line!(w, 0, ":\t{current} / {}", quantity_or_nil(target.sub("averageValue")));
        return;
    }
    let average = || quantity_or_nil(current.sub("current.averageValue"));
    let used = current.sub("current.averageUtilization").as_int().map(|used| format!("{used}% ({})", average()));
    let target_value = target.sub("averageUtilization").as_int().map(|target_value| format!("{target_value}%"));
    let [used, target_value] =
        [(used, "<unknown>"), (target_value, "<auto>")].map(|(text, or)| text.unwrap_or_else(|| or.to_owned()));
    line!(w, 1, "(as a percentage of request):\t{used} / {target_value}");
}

/// Formats the current amount of a metric; `<unknown>` if the metric has not been read.
fn amount(current: &Value, path: &str) -> String {
    if current.is_null() { "<unknown>".to_owned() } else { quantity_or_nil(current.sub(path)) }
}

fn quantity_or_nil(value: &Value) -> String {
    if value.is_null() { "<nil>".to_owned() } else { quantity_text(value) }
}

fn write_behavior(w: &mut Writer<'_>, title: &str, rules: &Value) {
    if rules.is_null() {
        return;
    }
    line!(w, 1, "{title}:");
    if rules.has("stabilizationWindowSeconds") {
        line!(w, 2, "Stabilization Window: {} seconds", rules.int("stabilizationWindowSeconds"));
    }
    let policies = rules.list("policies");
    if !policies.is_empty() {
        line!(w, 2, "Select Policy: {}", rules.text_or("selectPolicy", "Max"));
        line!(w, 2, "Policies:");
    }
    for policy in policies {
        let (kind, value, period) = (policy.text("type"), policy.int("value"), policy.int("periodSeconds"));
        line!(w, 3, "- Type: {kind}\tValue: {value}\tPeriod: {period} seconds");
    }
}
