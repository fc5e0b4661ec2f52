//! Validation of a JobSpec, in a Job and in a CronJob's template.

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value, labels};

use super::{policy, status};
use crate::core::pod_template_spec;
use crate::field_rules::{keep, non_negative, one_of, same};
use crate::formats::domain_prefixed_path;
use crate::workload;

/// Limits that bound the status of an Indexed Job, which lists the completed and failed indexes.
const INDEXED_PARALLELISM_MAX: i64 = 100_000;
const FAILED_INDEXES_MAX: i64 = 100_000;
/// Above this number of completions the lower limits apply.
const COMPLETIONS_SOFT_MAX: i64 = 100_000;
const PARALLELISM_MAX_OF_MANY: i64 = 10_000;
const FAILED_INDEXES_MAX_OF_MANY: i64 = 10_000;
const MANAGED_BY_LENGTH_MAX: usize = 63;

pub fn validate_with_selector(spec: &At<'_>, errors: &mut Errors) {
    validate(spec, errors);
    let selector = spec.get("selector");
    if selector.is_absent() {
        errors.push(selector.required(""));
    } else {
        labels::validate_object(selector.value(), selector.path(), errors);
    }
    if let Ok(read) = labels::from_object(Some(selector.value())) {
        workload::matches_template(&read, &spec.get("template"), errors);
    }
}

/// Validates a JobSpec except for its selector.
pub fn validate(spec: &At<'_>, errors: &mut Errors) {
    const NUMBERS: &[&str] = &[
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    NUMBERS.iter().for_each(|number| non_negative(&spec.get(number), errors));
    if spec.get("maxFailedIndexes").is_present() && spec.get("backoffLimitPerIndex").is_absent() {
        errors.push(spec.get("backoffLimitPerIndex").required("when maxFailedIndexes is specified"));
    }
    let managed_by = spec.get("managedBy");
    if managed_by.is_present() {
        domain_prefixed_path(&managed_by, errors);
        if managed_by.len() > MANAGED_BY_LENGTH_MAX {
            errors.push(Error::too_long(managed_by.path(), MANAGED_BY_LENGTH_MAX));
        }
    }
    validate_mode(spec, errors);
    policy::validate_failure(spec, errors);
    policy::validate_success(spec, errors);
    validate_replacement(spec, errors);
    let template = spec.get("template");
    pod_template_spec::validate(&template, errors);
    validate_restart(spec, &template, errors);
}

/// Returns the warnings for a JobSpec. `path` leads from the object to the pod template.
pub fn warnings(spec: &At<'_>, object: &Value, old: Option<&Value>, path: &[&str]) -> Vec<String> {
    let indexed = spec.get("completionMode").str() == "Indexed";
    let mut warnings = Vec::new();
    if indexed
        && spec.get("completions").int() > COMPLETIONS_SOFT_MAX
        && spec.get("parallelism").int() > PARALLELISM_MAX_OF_MANY
    {
        warnings.push(
            "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes \
             might not be able to track completedIndexes when a big number of indexes fail"
                .to_owned(),
        );
    }
    warnings.extend(workload::template_warnings(&spec.get("template"), object, old, path));
    warnings
}

/// Rejects template changes, except scheduling directives and resources of a suspended Job.
pub fn validate_template_update(spec: &At<'_>, old: &Value, errors: &mut Errors) {
    let root = At::root(old);
    let (before, state) = (root.get("spec"), root.get("status"));
    let suspended = before.get("suspend").bool();
    let stopped = suspended && status::is_true(&state, "Suspended");
    let template = spec.get("template");
    let mut allowed = before.get("template").value().clone();
    if stopped || suspended && state.get("startTime").is_absent() {
        allow_placement(&mut allowed, template.value());
    }
    if !stopped {
        if !same(template.value(), &allowed) {
            let bad_value = pod_template_spec::bad_value(template.value());
            errors.push(Error::invalid(template.path(), bad_value, "field is immutable"));
        }
        return;
    }
    allow_resources(&mut allowed, template.value());
    let inner = template.get("spec");
    if !same(inner.value(), allowed.get("spec").unwrap_or(&Value::Null)) {
        let bad_value = workload::bad_value(&inner, ("batch", "v1", "Job"), &["spec", "template", "spec"]);
        errors.push(Error::invalid(inner.path(), bad_value, "field is immutable"));
    }
}

fn validate_mode(spec: &At<'_>, errors: &mut Errors) {
    let mode = spec.get("completionMode");
    if mode.is_present() {
        one_of(&mode, &["NonIndexed", "Indexed"], errors);
    }
    match mode.str() {
        "Indexed" => validate_indexed(spec, errors),
        "NonIndexed" | "" if mode.is_absent() || mode.str() == "NonIndexed" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if spec.get(field).is_present() {
                    errors.push(spec.get(field).invalid("requires indexed completion mode"));
                }
            }
        }
        _ => {}
    }
}

fn validate_indexed(spec: &At<'_>, errors: &mut Errors) {
    let (completions, parallelism) = (spec.get("completions"), spec.get("parallelism"));
    let failed = spec.get("maxFailedIndexes");
    if completions.is_absent() {
        errors.push(completions.required("when completion mode is Indexed"));
    }
    if parallelism.int() > INDEXED_PARALLELISM_MAX {
        let limit = format!("must be less than or equal to {INDEXED_PARALLELISM_MAX} when completion mode is Indexed");
        errors.push(parallelism.invalid(limit));
    }
    if completions.is_present() && failed.int() > completions.int() {
        errors.push(failed.invalid("must be less than or equal to completions"));
    }
    if failed.int() > FAILED_INDEXES_MAX {
        errors.push(failed.invalid(format!("must be less than or equal to {FAILED_INDEXES_MAX}")));
    }
    if completions.int() <= COMPLETIONS_SOFT_MAX || spec.get("backoffLimitPerIndex").is_absent() {
        return;
    }
    if failed.is_absent() {
        let detail = format!("must be specified when completions is above {COMPLETIONS_SOFT_MAX}");
        errors.push(failed.required(detail));
    }
    let of_many = |limit: i64| {
        format!(
            "must be less than or equal to {limit} when completions are above {COMPLETIONS_SOFT_MAX} and used with backoff limit per index"
        )
    };
    if parallelism.int() > PARALLELISM_MAX_OF_MANY {
        errors.push(parallelism.invalid(of_many(PARALLELISM_MAX_OF_MANY)));
    }
    if failed.int() > FAILED_INDEXES_MAX_OF_MANY {
        errors.push(failed.invalid(of_many(FAILED_INDEXES_MAX_OF_MANY)));
    }
}

fn validate_replacement(spec: &At<'_>, errors: &mut Errors) {
    let policy = spec.get("podReplacementPolicy");
    if policy.is_absent() {
        return;
    }
    let known: &[&str] =
        if spec.get("podFailurePolicy").is_present() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    one_of(&policy, known, errors);
}

/// A Job's restart policy must not be Always.
fn validate_restart(spec: &At<'_>, template: &At<'_>, errors: &mut Errors) {
    let inner = template.get("spec");
    let policy = inner.get("restartPolicy");
    match policy.str() {
        "" | "Always" => errors.push(policy.required("valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if spec.get("podFailurePolicy").is_present() => {
            errors.push(policy.invalid("only \"Never\" is supported when podFailurePolicy is specified"));
        }
        "OnFailure" | "Never" => {}
        _ => errors.push(policy.not_supported(&["OnFailure", "Never"])),
    }
}

/// Copies the mutable scheduling directives from the new template to the old one.
fn allow_placement(old: &mut Value, new: &Value) {
    if let (Some(to), Some(from)) = (old.get_mut("metadata"), new.get("metadata")) {
        keep(to, from, "annotations");
        keep(to, from, "labels");
    }
    let (Some(to), Some(from)) = (old.get_mut("spec"), new.get("spec")) else { return };
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        keep(to, from, field);
    }
    let node_affinity = from.get("affinity").and_then(|affinity| affinity.get("nodeAffinity")).cloned();
    let mut affinity = to.get("affinity").cloned().unwrap_or_else(Value::object);
    let Some(fields) = affinity.as_object_mut() else { return };
    match node_affinity {
        Some(node_affinity) => drop(fields.insert("nodeAffinity", node_affinity)),
        None => drop(fields.remove("nodeAffinity")),
    }
    let remove_affinity = fields.is_empty() && from.get("affinity").is_none();
    let Some(fields) = to.as_object_mut() else { return };
    if remove_affinity {
        fields.remove("affinity");
    } else {
        fields.insert("affinity", affinity);
    }
}

/// Copies the container resources from the new template to the old one.
fn allow_resources(old: &mut Value, new: &Value) {
    for list in ["containers", "initContainers"] {
        let from = new.list_at(&["spec", list]);
        let to = old.get_mut("spec").and_then(|spec| spec.get_mut(list)).and_then(Value::as_array_mut);
        let Some(to) = to.filter(|to| to.len() == from.len()) else { continue };
        for (to, from) in to.iter_mut().zip(from) {
            if to.str_at(&["name"]) == from.str_at(&["name"]) {
                keep(to, from, "resources");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn check(new: Value, old: Value, fields: &[&str]) {
        let (new, old) = (value!({"spec": (new)}), value!({"spec": (old)}));
        let mut errors = Errors::new();
        validate_template_update(&At::root(&new).get("spec"), &old, &mut errors);
        assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), fields, "{new:?}");
    }

    #[test]
    fn suspended_job_that_never_started_has_mutable_scheduling_directives() {
        let running = value!({"template": {"spec": {"nodeSelector": {"a": "b"}}}});
        let changed =
            value!({"template": {"spec": {"nodeSelector": {"a": "c"}, "affinity": {"nodeAffinity": {"x": 1}}}}});
        check(changed.clone(), running.clone(), &["spec.template"]);
        let mut suspended = running;
        suspended.as_object_mut().unwrap().insert("suspend", true);
        check(changed, suspended.clone(), &[]);
        check(value!({"template": {"spec": {"hostname": "h"}}}), suspended, &["spec.template"]);
    }

    #[test]
    fn indexed_job_limits_are_lower_above_the_soft_maximum() {
        let check = |spec: Value, expect: &[&str]| {
            let mut errors = Errors::new();
            validate_indexed(&At::root(&spec), &mut errors);
            assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), expect);
        };
        check(value!({"completions": 5, "parallelism": 100_000}), &[]);
        check(value!({"parallelism": 100_001}), &["completions", "parallelism"]);
        check(
            value!({"completions": 100_001, "parallelism": 10_001, "backoffLimitPerIndex": 1}),
            &["maxFailedIndexes", "parallelism"],
        );
    }
}
