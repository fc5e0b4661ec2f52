//! HorizontalPodAutoscaler metrics: validation and table cell.

use apimachinery::names::{dns1123_label, path_segment};
use apimachinery::time::Time;
use apimachinery::{At, Errors, Value};

use super::validate_reference;
use crate::field_rules::{looks, quantity};

/// Metric source types with the field of each, in upstream's validation order.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

/// Metric source types in the order of error messages.
const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];

/// Maximum number of metrics in the table cell.
const METRICS_MAX: usize = 2;

pub(super) fn validate(spec: &At<'_>, errors: &mut Errors) {
    let metrics = spec.get("metrics");
    metrics.items().for_each(|metric| validate_metric(&metric, errors));
    let least = spec.get("minReplicas");
    let can_wake = metrics.items().any(|metric| matches!(metric.get("type").str(), "Object" | "External"));
    if least.is_present() && least.int() == 0 && !can_wake {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(metrics.forbidden(detail));
    }
}

/// Returns the table cell with current and target values.
pub(super) fn cell(object: &Value, _now: Time) -> Value {
    let list = |path: &[&str]| object.list_at(path);
    let (specs, statuses) = (list(&["spec", "metrics"]), list(&["status", "currentMetrics"]));
    if specs.is_empty() {
        return "<none>".into();
    }
    let texts: Vec<_> =
        specs.iter().enumerate().map(|(at, spec)| describe(spec, statuses.get(at).unwrap_or(&Value::Null))).collect();
    match texts.len().checked_sub(METRICS_MAX) {
        Some(more @ 1..) => format!("{} + {more} more...", texts[..METRICS_MAX].join(", ")),
        _ => texts.join(", "),
    }
    .into()
}

fn validate_metric(metric: &At<'_>, errors: &mut Errors) {
    let ty = metric.get("type");
    if ty.is_empty() {
        errors.push(ty.required("must specify a metric source type"));
    }
    let known = TYPES.contains(&ty.str());
    let unknown = || apimachinery::field::Error::not_supported(ty.path(), ty.str(), TYPES);
    if !known {
        errors.push(unknown());
    }
    let present: Vec<&str> =
        SOURCES.iter().map(|(_, field)| *field).filter(|field| metric.get(field).is_present()).collect();
    if let Some(first) = present.first() {
        validate_source(&metric.get(first), first, errors);
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == ty.str()).map(|(_, field)| *field);
    match expected {
        Some(field) if metric.get(field).is_absent() => {
            errors.push(metric.get(field).required("must populate information for the given metric source"));
        }
        Some(_) => {}
        None => errors.push(unknown()),
    }
    if present.len() != 1 {
        for field in present.into_iter().filter(|field| Some(*field) != expected) {
            errors.push(metric.get(field).forbidden("must populate the given metric source only"));
        }
    }
}

fn validate_source(source: &At<'_>, field: &str, errors: &mut Errors) {
    let target = source.get("target");
    let (value, average, utilization) =
        (target.get("value"), target.get("averageValue"), target.get("averageUtilization"));
    match field {
        "object" => {
            validate_reference(&source.get("describedObject"), errors);
            validate_identifier(&source.get("metric"), errors);
            validate_target(&target, errors);
            if value.is_absent() && average.is_absent() {
                errors.push(average.required("must set either a target value or averageValue"));
            }
        }
        "external" => {
            validate_identifier(&source.get("metric"), errors);
            validate_target(&target, errors);
            if value.is_absent() && average.is_absent() {
                errors.push(average.required("must set either a target value for metric or a per-pod target"));
            }
            if value.is_present() && average.is_present() {
                errors.push(value.forbidden("may not set both a target value for metric and a per-pod target"));
            }
        }
        "pods" => {
            validate_identifier(&source.get("metric"), errors);
            validate_target(&target, errors);
            if average.is_absent() {
                errors.push(average.required("must specify a positive target averageValue"));
            }
        }
        _ => {
            validate_resource(source, field, errors);
            validate_target(&target, errors);
            if utilization.is_absent() && average.is_absent() {
                errors.push(utilization.required("must set either a target raw value or a target utilization"));
            }
            if utilization.is_present() && average.is_present() {
                errors.push(average.forbidden("may not set both a target raw value and a target utilization"));
            }
        }
    }
}

fn validate_resource(source: &At<'_>, field: &str, errors: &mut Errors) {
    let name = source.get("name");
    if name.is_empty() {
        errors.push(name.required("must specify a resource name"));
    }
    if field == "containerResource" {
        let container = source.get("container");
        if container.is_empty() {
            errors.push(container.required("must specify a container"));
        } else {
            looks(&container, dns1123_label, errors);
        }
    }
}

fn validate_identifier(metric: &At<'_>, errors: &mut Errors) {
    let name = metric.get("name");
    if name.is_empty() {
        errors.push(name.required("must specify a metric name"));
    } else {
        looks(&name, path_segment, errors);
    }
}

fn validate_target(target: &At<'_>, errors: &mut Errors) {
    let ty = target.get("type");
    if ty.is_empty() {
        errors.push(ty.required("must specify a metric target type"));
    }
    if !matches!(ty.str(), "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(apimachinery::field::Error::invalid(ty.path(), ty.str(), detail));
    }
    for field in ["value", "averageValue"] {
        let amount = target.get(field);
        let size = quantity(amount.value());
        if amount.is_present() && (size.is_zero() || size.is_negative()) {
            errors.push(amount.invalid("must be positive"));
        }
    }
    let utilization = target.get("averageUtilization");
    if utilization.is_present() && utilization.int() < 1 {
        errors.push(utilization.invalid("must be greater than 0"));
    }
}

fn describe(spec: &Value, status: &Value) -> String {
    const UNKNOWN: &str = "<unknown>";
    let ty = spec.text_at(&["type"]);
    let Some((_, field)) = SOURCES.iter().find(|(name, _)| *name == ty) else { return "<unknown type>".to_owned() };
    let target = |what: &str| spec.at(&[field, "target", what]).filter(|found| !found.is_null());
    let current = |what: &str| status.at(&[field, "current", what]).filter(|found| !found.is_null());
    let text = |found: Option<&Value>| found.and_then(Value::as_str).unwrap_or(UNKNOWN).to_owned();
    match *field {
        "resource" | "containerResource" => {
            let name = spec.text_at(&[field, "name"]);
            if let Some(average) = target("averageValue") {
                return format!("{name}: {}/{}", text(current("averageValue")), text(Some(average)));
            }
            let percent = |found: Option<&Value>, otherwise: &str| {
                found.and_then(Value::as_int).map_or_else(|| otherwise.to_owned(), |share| format!("{share}%"))
            };
            let (is, shall) = (current("averageUtilization"), target("averageUtilization"));
            format!("{name}: {}/{}", percent(is, UNKNOWN), percent(shall, "<auto>"))
        }
        "pods" => format!("{}/{}", text(current("averageValue")), text(target("averageValue"))),
        _ => match target("averageValue") {
            Some(average) => format!("{}/{} (avg)", text(current("averageValue")), text(Some(average))),
            None => format!("{}/{}", text(current("value")), text(target("value"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn metric_has_only_the_source_of_its_type() {
        let check = |metric: Value, expect: &[&str]| {
            let mut errors = Errors::new();
            validate_metric(&At::root(&metric), &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
        };
        let resource = value!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 1}});
        check(value!({"type": "Resource", "resource": (resource.clone())}), &[]);
        check(
            value!({"type": "Pods", "resource": (resource)}),
            &["pods: Required value: must populate information for the given metric source"],
        );
    }

    #[test]
    fn table_cell_contains_current_and_target_values() {
        let check = |spec: Value, status: Value, expect: &str| {
            let object = value!({"spec": {"metrics": (spec)}, "status": {"currentMetrics": (status)}});
            assert_eq!(cell(&object, Time::from_unix(0, 0)), value!(expect));
        };
        let cpu = value!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 60}}});
        check(value!([(cpu.clone())]), Value::Null, "cpu: <unknown>/60%");
        let used = value!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7}}});
        check(value!([(cpu.clone())]), value!([(used)]), "cpu: 7%/60%");
        check(
            value!([(cpu.clone()), (cpu.clone()), (cpu)]),
            Value::Null,
            "cpu: <unknown>/60%, cpu: <unknown>/60% + 1 more...",
        );
    }
}
