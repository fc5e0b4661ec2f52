//! LimitRange: bounds and defaults for the resources of pods, containers and claims in a namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::quantity::{Format, Quantity};
use apimachinery::{At, Errors, Object, Str, Value, names};

use crate::core::resource_names;
use crate::field_rules::{items_mut, quantity};
use crate::kind::{Context, Kind, Rules, UpdateChecks, names as strings};

/// Maximum quantity whose value in thousandths fits into 64 bits.
const MILLI_MAX: i64 = i64::MAX / 1000;

pub fn kind() -> Kind {
    Kind {
        short_names: strings(&["limits"]),
        create_on_update: true,
        rules: Arc::new(LimitRange),
        update_checks: UpdateChecks { whole: 1, change: 0 },
        ..Kind::stored("", "v1", "LimitRange", "limitranges")
    }
}

#[derive(Debug)]
struct LimitRange;

impl Rules for LimitRange {
    fn default(&self, object: &mut Value, _version: &str) {
        let Some(spec) = object.get_mut("spec") else { return };
        for limit in items_mut(spec, "limits").filter(|limit| limit.str_at(&["type"]) == Some("Container")) {
            fill(limit, "default", "max");
            fill(limit, "defaultRequest", "default");
            fill(limit, "defaultRequest", "min");
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        let meta = Meta::of(object);
        if meta.name().is_empty() && meta.generate_name().is_empty() && !meta.uid().is_empty() {
            // Upstream generates another UUID for the name; the object's UID is equally unique.
            let name = Str::from(meta.uid());
            if let Some(mut meta) = MetaMut::of(object) {
                meta.set("name", name);
            }
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        let limits = spec.get("limits");
        let mut seen = BTreeSet::new();
        for limit in limits.items() {
            let ty = limit.get("type");
            validate_type(&ty, errors);
            if !seen.insert(limit.value().text_at(&["type"])) {
                errors.push(ty.duplicate());
            }
            validate_limit(&limit, errors);
        }
    }
}

/// Copies the entries of `from` that are missing in `into`.
fn fill(limit: &mut Value, into: &str, from: &str) {
    let Some(limit) = limit.as_object_mut() else { return };
    let Some(source) = limit.get(from).and_then(Value::as_object).filter(|source| !source.is_empty()).cloned() else {
        return;
    };
    let target = limit.get_or_insert_with(into, Value::object);
    if target.is_null() {
        *target = Value::object();
    }
    let Some(target) = target.as_object_mut() else { return };
    for (key, value) in source {
        target.get_or_insert_with(&key, || value);
    }
}

fn validate_type(at: &At<'_>, errors: &mut Errors) {
    let wrong = names::qualified_name(at.str());
    if wrong.is_empty() {
        if !at.str().contains('/') && !["Pod", "Container", "PersistentVolumeClaim"].contains(&at.str()) {
            errors.push(at.invalid("must be a standard limit type or fully qualified"));
        }
    } else {
        errors.extend(wrong.into_iter().map(|wrong| Error::invalid(at.path(), at.str(), wrong)));
    }
}

fn validate_limit(limit: &At<'_>, errors: &mut Errors) {
    let ty = limit.get("type");
    let names = |field: &str, errors: &mut Errors| {
        let resources = limit.get(field);
        for (name, at) in resources.entries() {
            match ty.str() {
                "Pod" | "Container" => resource_names::validate_container(name, &at, errors),
                _ => resource_names::validate(name, &at, errors),
            }
        }
    };
    names("max", errors);
    names("min", errors);
    if ty.str() == "Pod" {
        for field in ["default", "defaultRequest"] {
            if !limit.get(field).is_empty() {
                errors.push(limit.get(field).forbidden("may not be specified when `type` is 'Pod'"));
            }
        }
    } else {
        names("default", errors);
        names("defaultRequest", errors);
    }
    if ty.str() == "PersistentVolumeClaim" && !["min", "max"].iter().any(|f| limit.get(f).entry("storage").is_present())
    {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.push(limit.get("limits").required(detail));
    }
    names("maxLimitRequestRatio", errors);
    let fields: &[&str] =
        if ty.str() == "Pod" { &["max", "min"] } else { &["max", "min", "default", "defaultRequest"] };
    let mut keys: BTreeSet<&str> = BTreeSet::new();
    for field in fields.iter().chain(&["maxLimitRequestRatio"]) {
        let entries = limit.value().get(field).and_then(Value::as_object);
        keys.extend(entries.into_iter().flat_map(Object::keys));
    }
    for key in keys {
        let found: BTreeMap<&str, Quantity> = fields
            .iter()
            .chain(&["maxLimitRequestRatio"])
            .filter_map(|field| Some((*field, quantity(limit.value().at(&[field, key])?))))
            .collect();
        validate_order(limit, key, &found, errors);
        validate_ratio(limit, key, &found, errors);
    }
}

/// Checks that the bounds of one resource do not contradict each other.
fn validate_order(limit: &At<'_>, key: &str, found: &BTreeMap<&str, Quantity>, errors: &mut Errors) {
    // Field of the error, field of the reported value, smaller bound and greater bound with their names.
    let rules = [
        ("min", "min", ("min", "min value"), ("max", "max value")),
        ("defaultRequest", "defaultRequest", ("min", "min value"), ("defaultRequest", "default request value")),
        ("defaultRequest", "defaultRequest", ("defaultRequest", "default request value"), ("max", "max value")),
        (
            "defaultRequest",
            "defaultRequest",
            ("defaultRequest", "default request value"),
            ("default", "default limit value"),
        ),
        ("default", "min", ("min", "min value"), ("default", "default value")),
        ("default", "max", ("default", "default value"), ("max", "max value")),
    ];
    for (blamed, value_index, (less, less_name), (more, more_name)) in rules {
        if let (Some(low), Some(high)) = (found.get(less), found.get(more))
            && low > high
        {
            let detail = format!("{less_name} {low} is greater than {more_name} {high}");
            errors.push(Error::invalid(limit.get(blamed).entry(key).path(), found[value_index].to_string(), detail));
        }
    }
    if let (Some(limited), Some(requested)) = (found.get("default"), found.get("defaultRequest"))
        && !resource_names::may_overcommit(key)
        && limited != requested
    {
        let detail = format!("default value {limited} must equal to defaultRequest value {requested} in {key}");
        errors.push(Error::invalid(limit.get("defaultRequest").entry(key).path(), requested.to_string(), detail));
    }
}

fn validate_ratio(limit: &At<'_>, key: &str, found: &BTreeMap<&str, Quantity>, errors: &mut Errors) {
    let Some(ratio) = found.get("maxLimitRequestRatio") else { return };
    let ratios = limit.get("maxLimitRequestRatio");
    let at = ratios.entry(key);
    if *ratio < Quantity::new(1, Format::DecimalSI) {
        errors.push(Error::invalid(at.path(), ratio.to_string(), format!("ratio {ratio} is less than 1")));
    }
    if let (Some(min), Some(max)) = (found.get("min"), found.get("max")) {
        let milli = [ratio, min, max].iter().all(|quantity| quantity.value() < MILLI_MAX);
        let (have, most) = if milli {
            (ratio.milli_value() as f64 / 1000.0, max.milli_value() as f64 / min.milli_value() as f64)
        } else {
            (ratio.value() as f64, max.value() as f64 / min.value() as f64)
        };
        if have > most {
            let detail = format!("ratio {ratio} is greater than max/min = {most:.6}");
            errors.push(Error::invalid(at.path(), ratio.to_string(), detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::validation;

    fn check(limit: Value, expect: &[&str]) {
        assert_eq!(validation::create(&kind(), &value!({"spec": {"limits": [limit]}})), expect);
    }

    #[test]
    fn bounds_must_not_contradict_each_other() {
        check(value!({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}}), &[]);
        check(
            value!({"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}, "defaultRequest": {"cpu": "2"}}),
            &[
                "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
                "spec.limits[0].defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than max value 1",
                "spec.limits[0].defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than default limit value 1",
                "spec.limits[0].default[cpu]: Invalid value: \"2\": min value 2 is greater than default value 1",
            ],
        );
        check(
            value!({"type": "Pod", "max": {"cpu": "3"}, "min": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "2"}}),
            &[
                "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"2\": ratio 2 is greater than max/min = 1.500000",
            ],
        );
    }

    #[test]
    fn container_defaults_follow_from_the_other_bounds() {
        let mut object =
            value!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]}});
        kind().rules.default(&mut object, "v1");
        assert_eq!(object["spec"]["limits"][0]["default"], value!({"cpu": "2"}));
        assert_eq!(object["spec"]["limits"][0]["defaultRequest"], value!({"cpu": "2", "memory": "1Mi"}));
    }
}
