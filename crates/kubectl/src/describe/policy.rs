//! Namespaces and policies: quotas, limit ranges, disruption budgets and priority classes.

use std::collections::BTreeSet;

use apimachinery::quantity::Quantity;
use apimachinery::{Object, Value, labels};

use super::common;
use super::query::{LIMIT_RANGES, Query, RESOURCE_QUOTAS, Tolerate};
use super::read::{Read, int_or_string, name, quantity, quantity_text};
use super::writer::{Writer, line};
use super::{RelatedObjects, WriteResult};

/// The scopes of a quota, each with the text about the pods that it selects.
const SCOPES: [(&str, &str); 4] = [
    (
        "Terminating",
        "Matches all pods that have an active deadline. These pods have a limited lifespan on a node before being \
         actively terminated by the system.",
    ),
    (
        "NotTerminating",
        "Matches all pods that do not have an active deadline. These pods usually include long running pods whose \
         container command is not expected to terminate.",
    ),
    (
        "BestEffort",
        "Matches all pods that do not have resource requirements set. These pods have a best effort quality of \
         service.",
    ),
    (
        "NotBestEffort",
        "Matches all pods that have at least one resource requirement set. These pods have a burstable or guaranteed \
         quality of service.",
    ),
];

pub(super) fn namespace_queries(namespace: &Value) -> Result<Vec<Query>, String> {
    let within = |resource| Query::list(resource, name(namespace)).tolerating(Tolerate::NotFound);
    Ok(vec![within(&RESOURCE_QUOTAS), within(&LIMIT_RANGES)])
}

pub(super) fn namespace(w: &mut Writer<'_>, namespace: &Value, related: &RelatedObjects) -> WriteResult {
    line!(w, 0, "Name:\t{}", name(namespace));
    common::metadata(w, namespace);
    line!(w, 0, "Status:\t{}", namespace.text("status.phase"));
    let conditions = namespace.list("status.conditions");
    if !conditions.is_empty() {
        common::dated_conditions(w, conditions);
    }
    if let Ok(quotas) = related.list(&RESOURCE_QUOTAS) {
        line!(w, 0, "");
        write_quotas(w, quotas);
    }
    if let Ok(ranges) = related.list(&LIMIT_RANGES) {
        line!(w, 0, "");
        write_limit_ranges(w, ranges);
    }
    Ok(())
}

fn write_quotas(w: &mut Writer<'_>, quotas: &[Value]) {
    if quotas.is_empty() {
        line!(w, 0, "No resource quota.");
        return;
    }
    let mut quotas: Vec<&Value> = quotas.iter().collect();
    quotas.sort_by_key(|quota| name(quota));
    line!(w, 0, "Resource Quotas");
    for quota in quotas {
        line!(w, 1, "Name:\t{}", name(quota));
        write_scopes(w, quota, 1, "* ");
        line!(w, 1, "Resource\tUsed\tHard");
        line!(w, 1, "--------\t---\t---");
        for (resource, hard) in quota.map("status.hard").iter() {
            let used = quantity_text(quota.map("status.used").get(resource).unwrap_or(&Value::Null));
            line!(w, 1, "{resource}\t{used}\t{}", quantity_text(hard));
        }
    }
}

fn write_scopes(w: &mut Writer<'_>, quota: &Value, level: usize, bullet: &str) {
    let mut scopes = quota.texts("spec.scopes");
    if scopes.is_empty() {
        return;
    }
    scopes.sort_unstable();
    line!(w, level, "Scopes:\t{}", scopes.join(", "));
    for scope in scopes {
        if let Some((_, help)) = SCOPES.iter().find(|(name, _)| *name == scope) {
            line!(w, level, "{bullet}{help}");
        }
    }
}

fn write_limit_ranges(w: &mut Writer<'_>, ranges: &[Value]) {
    if ranges.is_empty() {
        line!(w, 0, "No LimitRange resource.");
        return;
    }
    line!(w, 0, "Resource Limits");
    write_limits_header(w, " ");
    for range in ranges {
        write_limits(w, range, " ");
    }
}

fn write_limits_header(w: &mut Writer<'_>, indent: &str) {
    line!(w, 0, "{indent}Type\tResource\tMin\tMax\tDefault Request\tDefault Limit\tMax Limit/Request Ratio");
    line!(w, 0, "{indent}----\t--------\t---\t---\t---------------\t-------------\t-----------------------");
}

/// Writes a line per resource.
// DEVIATION: kubectl writes the resources of a limit in random order; here they are sorted by name.
fn write_limits(w: &mut Writer<'_>, range: &Value, indent: &str) {
    const COLUMNS: [&str; 5] = ["min", "max", "defaultRequest", "default", "maxLimitRequestRatio"];
    for item in range.list("spec.limits") {
        let resources: BTreeSet<&str> = COLUMNS.iter().flat_map(|column| item.map(column).keys()).collect();
        for resource in resources {
            let cells = COLUMNS.map(|column| item.map(column).get(resource).map_or("-".to_owned(), quantity_text));
            line!(w, 0, "{indent}{}\t{resource}\t{}", item.text("type"), cells.join("\t"));
        }
    }
}

pub(super) fn limit_range(w: &mut Writer<'_>, range: &Value, _: &RelatedObjects) -> WriteResult {
    common::identity(w, range);
    write_limits_header(w, "");
    write_limits(w, range, "");
    Ok(())
}

pub(super) fn quota(w: &mut Writer<'_>, quota: &Value, _: &RelatedObjects) -> WriteResult {
    common::identity(w, quota);
    write_scopes(w, quota, 0, " * ");
    line!(w, 0, "Resource\tUsed\tHard");
    line!(w, 0, "--------\t----\t----");
    for (resource, hard) in quota.map("status.hard").iter() {
        line!(w, 0, "{resource}\t{}\t{}", used_like(hard, quota.map("status.used"), resource), quantity_text(hard));
    }
    Ok(())
}

/// Formats the used amount in the notation of the hard limit.
fn used_like(hard: &Value, used: &Object, resource: &str) -> String {
    let Some(used) = used.get(resource) else { return "0".to_owned() };
    let (amount, format) = (quantity(used), quantity(hard).format());
    if amount.format() == format {
        return quantity_text(used);
    }
    Quantity::new(amount.value(), format).to_string()
}

pub(super) fn disruption_budget(w: &mut Writer<'_>, budget: &Value, _: &RelatedObjects) -> WriteResult {
    common::identity(w, budget);
    if budget.has("spec.minAvailable") {
        line!(w, 0, "Min available:\t{}", int_or_string(budget.sub("spec.minAvailable")));
    } else if budget.has("spec.maxUnavailable") {
        line!(w, 0, "Max unavailable:\t{}", int_or_string(budget.sub("spec.maxUnavailable")));
    }
    if budget.has("spec.selector") {
        line!(w, 0, "Selector:\t{}", common::describe_selector(budget.sub("spec.selector")));
    } else {
        line!(w, 0, "Selector:\t<unset>");
    }
    line!(w, 0, "Status:");
    let counts = [
        ("Allowed disruptions", "disruptionsAllowed"),
        ("Current", "currentHealthy"),
        ("Desired", "desiredHealthy"),
        ("Total", "expectedPods"),
    ];
    for (title, field) in counts {
        line!(w, 2, "{title}:\t{}", budget.sub("status").int(field));
    }
    Ok(())
}

pub(super) fn priority_class(w: &mut Writer<'_>, class: &Value, _: &RelatedObjects) -> WriteResult {
    line!(w, 0, "Name:\t{}", name(class));
    line!(w, 0, "Value:\t{}", class.int("value"));
    line!(w, 0, "GlobalDefault:\t{}", class.flag("globalDefault"));
    line!(w, 0, "PreemptionPolicy:\t{}", class.text("preemptionPolicy"));
    line!(w, 0, "Description:\t{}", class.text("description"));
    line!(w, 0, "Annotations:\t{}", labels::format_labels(class.at(&["metadata", "annotations"])));
    Ok(())
}
