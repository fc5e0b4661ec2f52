//! Job: runs pods to completion.

mod indexes;
mod policy;
pub mod spec;
mod status;

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::table::{self, Column};
use apimachinery::time::Time;
use apimachinery::{At, Errors, Object, Str, Value, labels, names as rules_of_names};

use crate::core::{object_meta, pod_template_spec};
use crate::field_rules::{
    column, default_empty_to, default_to, immutable, items_mut, raise_generation, same, start_generation, wide_column,
};
use crate::kind::{
    Context, Dependents, Kind, Rules, Selectable, Subresource, UpdateChecks, age_column, name_column, names,
};
use crate::workload;

pub fn kind() -> Kind {
    Kind {
        categories: names(&["all"]),
        subresources: vec![Subresource::status()],
        returns_deleted: true,
        dependents: Dependents::Orphan,
        selectable: vec![Selectable::new("status.successful", succeeded)],
        update_checks: UpdateChecks { whole: 1, change: 1 },
        rules: Arc::new(Job),
        ..Kind::stored("batch", "v1", "Job", "jobs")
    }
    .with_columns(&columns())
}

/// Labels that identify the pods of a Job: the legacy key and the current one.
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];

#[derive(Debug)]
struct Job;

impl Rules for Job {
    fn field_selector_error(&self, _version: &str, field: &str) -> Option<String> {
        Some(format!("field label {} not supported for batchv1.Job", apimachinery::go::quote(field)))
    }

    fn delete_warning(&self) -> Option<&'static str> {
        Some(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or \
             set propagationPolicy=Orphan to suppress this warning",
        )
    }

    fn default(&self, object: &mut Value, _version: &str) {
        let Some(spec) = object.get_mut("spec") else { return };
        if spec.get("parallelism").is_none() && spec.get("completions").is_none() {
            default_to(spec, "completions", 1);
        }
        default_to(spec, "parallelism", 1);
        let per_index = spec.get("backoffLimitPerIndex").is_some();
        default_to(spec, "backoffLimit", if per_index { i32::MAX } else { 6 });
        default_to(spec, "completionMode", "NonIndexed");
        default_to(spec, "suspend", false);
        let policy = if spec.get("podFailurePolicy").is_some() { "Failed" } else { "TerminatingOrFailed" };
        default_to(spec, "podReplacementPolicy", policy);
        default_to(spec, "manualSelector", false);
        default_template(spec);
        copy_template_labels(object);
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        crate::status::reset(object);
        start_generation(object);
        if !object.at(&["spec", "manualSelector"]).and_then(Value::as_bool).unwrap_or_default() {
            let shared = labels_of(object) == template_labels(object);
            generate_selector(object);
            if shared && let Some(mut meta) = MetaMut::of(object) {
                meta.remove("labels");
            }
        }
        copy_template_labels(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if crate::status::separate(object, old, context) {
            raise_generation(object, old, &["spec"]);
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        validate_generated_selector(&root, errors);
        spec::validate_with_selector(&spec, errors);
        validate_pod_names(&root, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        if context.subresource == "status" {
            return status::validate(object, old, errors);
        }
        self.validate(object, context, errors);
        validate_spec_update(object, old, errors);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>, context: &Context<'_>) -> Vec<String> {
        if !context.subresource.is_empty() {
            return Vec::new();
        }
        let name = Meta::of(object).name();
        let mut warnings: Vec<_> =
            old.is_none().then(|| workload::pod_name_warning(name)).flatten().into_iter().collect();
        let root = At::root(object);
        warnings.extend(spec::warnings(&root.get("spec"), object, old, &["spec", "template"]));
        warnings
    }
}

/// Defaults a Job spec, in a Job and in a CronJob's template.
pub(super) fn default_template(spec: &mut Value) {
    if let Some(policy) = spec.get_mut("podFailurePolicy") {
        for rule in items_mut(policy, "rules") {
            items_mut(rule, "onPodConditions").for_each(|pattern| default_empty_to(pattern, "status", "True"));
        }
    }
    if let Some(template) = spec.get_mut("template") {
        pod_template_spec::default(template);
    }
}

fn validate_spec_update(object: &Value, old: &Value, errors: &mut Errors) {
    let (root, before) = (At::root(object), At::root(old));
    let (spec, before) = (root.get("spec"), before.get("spec"));
    spec::validate_with_selector(&spec, errors);
    validate_completions(&spec, &before, errors);
    let selector = spec.get("selector");
    if !same(selector.value(), before.get("selector").value()) {
        let bad_value = workload::selector_bad_value(selector.value());
        errors.push(Error::invalid(selector.path(), bad_value, "field is immutable"));
    }
    spec::validate_template_update(&spec, old, errors);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        let at = spec.get(field);
        if matches!(at.value(), Value::Object(_)) {
            let bad_value = || workload::bad_value(&at, ("batch", "v1", "Job"), &["spec", field]);
            crate::field_rules::immutable_with_value(&at, &before.get(field), bad_value, errors);
        } else {
            immutable(&at, &before.get(field), errors);
        }
    }
}

/// `completions` is mutable only for Indexed Jobs and only together with `parallelism`.
fn validate_completions(spec: &At<'_>, before: &At<'_>, errors: &mut Errors) {
    let completions = spec.get("completions");
    if spec.get("completionMode").str() != "Indexed" {
        return immutable(&completions, &before.get("completions"), errors);
    }
    let changed = completions.value() != before.get("completions").value();
    if changed && completions.is_present() && completions.int() != spec.get("parallelism").int() {
        errors.push(completions.invalid("can only be modified in tandem with spec.parallelism"));
    }
}

/// Adds the Job's labels to the pod template and generates the selector. Values set by the user are kept, so that
/// validation rejects them.
fn generate_selector(object: &mut Value) {
    let (name, uid) = (Meta::of(object).name().to_owned(), Meta::of(object).uid().to_owned());
    let Some(spec) = object.get_mut("spec") else { return };
    default_to(spec, "template", Value::object());
    if let Some(template) = spec.get_mut("template") {
        default_to(template, "metadata", Value::object());
        if let Some(metadata) = template.get_mut("metadata") {
            default_to(metadata, "labels", Value::object());
            let labels = metadata.get_mut("labels");
            let known =
                NAME_LABELS.map(|label| (label, &name)).into_iter().chain(UID_LABELS.map(|label| (label, &uid)));
            if let Some(labels) = labels {
                for (label, value) in known {
                    default_to(labels, label, value.as_str());
                }
            }
        }
    }
    default_to(spec, "selector", Value::object());
    if let Some(selector) = spec.get_mut("selector") {
        default_to(selector, "matchLabels", Value::object());
        if let Some(labels) = selector.get_mut("matchLabels") {
            default_to(labels, UID_LABELS[1], uid.as_str());
        }
    }
}

/// Copies the template's labels to a Job without labels.
fn copy_template_labels(object: &mut Value) {
    let labels = template_labels(object);
    if labels_of(object).is_empty()
        && !labels.is_empty()
        && let Some(mut meta) = MetaMut::of(object)
    {
        meta.set("labels", labels);
    }
}

fn labels_of(object: &Value) -> Object {
    Meta::of(object).labels().cloned().unwrap_or_default()
}

fn template_labels(object: &Value) -> Object {
    let labels = object.at(&["spec", "template", "metadata", "labels"]);
    labels.and_then(Value::as_object).cloned().unwrap_or_default()
}

fn validate_generated_selector(root: &At<'_>, errors: &mut Errors) {
    let spec = root.get("spec");
    if spec.get("manualSelector").bool() || spec.get("selector").is_absent() {
        return;
    }
    let metadata = root.get("metadata");
    let (uid, name) = (metadata.get("uid").str(), metadata.get("name").str());
    if uid.is_empty() {
        errors.push(metadata.get("uid").required(""));
    }
    let template = spec.get("template");
    let of_pods = template.get("metadata");
    let of_pods = of_pods.get("labels");
    for at in 0..2 {
        has_label(&of_pods, UID_LABELS[at], uid, errors);
        has_label(&of_pods, NAME_LABELS[at], name, errors);
    }
    let expected: Object =
        UID_LABELS.iter().map(|label| (*label, uid)).chain(NAME_LABELS.iter().map(|label| (*label, name))).collect();
    let selector = spec.get("selector");
    if let Ok(read) = labels::from_object(Some(selector.value()))
        && !read.matches_labels(Some(&expected))
    {
        let bad_value = workload::selector_bad_value(selector.value());
        errors.push(Error::invalid(selector.path(), bad_value, "`selector` not auto-generated"));
    }
}

fn has_label(labels: &At<'_>, key: &str, expected: &str, errors: &mut Errors) {
    let label = labels.entry(key);
    let detail = format!("must be '{expected}'");
    if label.is_absent() {
        errors.push(label.required(detail));
    } else if label.str() != expected {
        errors.push(Error::invalid(label.path(), labels.value(), detail));
    }
}

/// Pod names of an Indexed Job must be valid host names.
fn validate_pod_names(root: &At<'_>, errors: &mut Errors) {
    let spec = root.get("spec");
    let completions = spec.get("completions").int();
    if spec.get("completionMode").str() != "Indexed" || completions <= 0 {
        return;
    }
    let metadata = root.get("metadata");
    let name = metadata.get("name");
    let longest = format!("{}-{}", name.str(), completions - 1);
    if !rules_of_names::dns1123_label(&longest).is_empty() {
        errors.push(name.invalid(format!("will not able to create pod with invalid DNS label: {longest}")));
    }
}

fn succeeded(object: &Value) -> Str {
    object.int_at(&["status", "succeeded"]).unwrap_or_default().to_string().into()
}

fn columns() -> Vec<Column> {
    let [containers, images] = workload::container_columns();
    vec![
        name_column(),
        column("Status", "string", "Status of the Job.", state),
        column("Completions", "string", "Succeeded pods and desired completions.", completions),
        column("Duration", "string", "Duration of the Job.", duration),
        age_column(),
        containers,
        images,
        wide_column("Selector", "string", "Label selector of the pods.", |object, _| {
            labels::format_selector(object.at(&["spec", "selector"])).into()
        }),
    ]
}

fn state(object: &Value, _now: Time) -> Value {
    let root = At::root(object);
    let is = |ty: &str| status::is_true(&root.get("status"), ty);
    let state = match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if Meta::of(object).is_deleting() => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    state.into()
}

fn completions(object: &Value, _now: Time) -> Value {
    let number = |path: &[&str]| object.at(path).and_then(Value::as_int);
    let done = number(&["status", "succeeded"]).unwrap_or_default();
    match (number(&["spec", "completions"]), number(&["spec", "parallelism"]).unwrap_or_default()) {
        (Some(desired), _) => format!("{done}/{desired}"),
        (None, parallel @ 2..) => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    }
    .into()
}

fn duration(object: &Value, now: Time) -> Value {
    let time = |field: &str| object.str_at(&["status", field]).and_then(|text| Time::parse(text).ok());
    match (time("startTime"), time("completionTime")) {
        (None, _) => "".into(),
        (Some(start), end) => table::human_duration(end.unwrap_or(now).since(start)).into(),
    }
}

#[cfg(test)]
mod tests;
