//! StatefulSet: pods with stable names and storage.

mod claims;

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{self, name_is_dns_label};
use apimachinery::time::Time;
use apimachinery::{At, Errors, Value, labels, names as rules_of_names};

use crate::core::{object_meta, pod_template_spec};
use crate::field_rules::{
    column, default_empty_to, default_to, items_mut, looks, non_negative, one_of, raise_generation, same,
    start_generation,
};
use crate::kind::{Context, Kind, Rules, Subresource, age_column, name_column, names};
use crate::workload::{self, Shape};
use crate::{field_rules, status};

pub fn kind() -> Kind {
    let [containers, images] = workload::container_columns();
    Kind {
        short_names: names(&["sts"]),
        categories: names(&["all"]),
        subresources: vec![Subresource::scale(), Subresource::status()],
        name_rule: name_is_dns_label,
        rules: Arc::new(StatefulSet),
        ..Kind::stored("apps", "v1", "StatefulSet", "statefulsets")
    }
    .with_columns(&[
        name_column(),
        column("Ready", "string", "Ready pods and desired pods.", ready),
        age_column(),
        containers,
        images,
    ])
}

const SHAPE: Shape = Shape { selects_for: "statefulset", unreadable: "", endless: "StatefulSet" };

/// Spec fields that an update may change.
const MUTABLE: &[&str] = &[
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// Checks skipped when a StatefulSet is updated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leniency {
    /// Nothing is skipped: the object is new.
    None,
    /// Immutable fields are not validated again.
    Immutable,
    /// The template is not validated either, because the old one was invalid.
    Template,
}

#[derive(Debug)]
struct StatefulSet;

impl Rules for StatefulSet {
    fn default(&self, object: &mut Value, _version: &str) {
        let Some(spec) = object.get_mut("spec") else { return };
        default_empty_to(spec, "podManagementPolicy", "OrderedReady");
        default_to(spec, "updateStrategy", Value::object());
        if let Some(strategy) = spec.get_mut("updateStrategy") {
            if strategy.str_at(&["type"]).is_none_or(str::is_empty) {
                default_empty_to(strategy, "type", "RollingUpdate");
                default_to(strategy, "rollingUpdate", Value::object());
            }
            if strategy.str_at(&["type"]) == Some("RollingUpdate")
                && let Some(rolling) = strategy.get_mut("rollingUpdate")
            {
                default_to(rolling, "partition", 0);
            }
        }
        default_to(spec, "persistentVolumeClaimRetentionPolicy", Value::object());
        if let Some(policy) = spec.get_mut("persistentVolumeClaimRetentionPolicy") {
            default_empty_to(policy, "whenDeleted", "Retain");
            default_empty_to(policy, "whenScaled", "Retain");
        }
        default_to(spec, "replicas", 1);
        default_to(spec, "revisionHistoryLimit", 10);
        items_mut(spec, "volumeClaimTemplates").for_each(claims::default);
        if let Some(template) = spec.get_mut("template") {
            pod_template_spec::default(template);
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        status::reset(object);
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if status::separate(object, old, context) {
            raise_generation(object, old, &["spec"]);
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        validate_spec(&At::root(object).get("spec"), Leniency::None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        let (root, before) = (At::root(object), At::root(old));
        if context.subresource == "status" {
            return validate_status(&root.get("status"), &before.get("status"), errors);
        }
        let (spec, before) = (root.get("spec"), before.get("spec"));
        let mut known = Errors::new();
        validate_spec(&before, Leniency::Immutable, &mut known);
        let leniency = if known.is_empty() { Leniency::Immutable } else { Leniency::Template };
        validate_spec(&spec, leniency, errors);
        if !same(&fixed(&spec), &fixed(&before)) {
            errors.push(spec.forbidden(
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
                 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
            ));
        }
    }

    fn warnings(&self, object: &Value, old: Option<&Value>, context: &Context<'_>) -> Vec<String> {
        if !context.subresource.is_empty() {
            return Vec::new();
        }
        let root = At::root(object);
        let spec = root.get("spec");
        let template = spec.get("template");
        let mut warnings = workload::template_warnings(&template, object, old, &["spec", "template"]);
        if spec.get("revisionHistoryLimit").int() < 0 {
            let advice = "a negative value retains all historical revisions; a value >= 0 is recommended";
            warnings.push(format!("spec.revisionHistoryLimit: {advice}"));
        }
        warnings
    }
}

fn validate_spec(spec: &At<'_>, leniency: Leniency, errors: &mut Errors) {
    let policy = spec.get("podManagementPolicy");
    match policy.str() {
        "" => errors.push(policy.required("")),
        "OrderedReady" | "Parallel" => {}
        _ => errors.push(policy.invalid("must be 'OrderedReady' or 'Parallel'")),
    }
    validate_strategy(&spec.get("updateStrategy"), errors);
    let retention = spec.get("persistentVolumeClaimRetentionPolicy");
    if retention.is_present() {
        for event in ["whenDeleted", "whenScaled"] {
            one_of(&retention.get(event), &["Retain", "Delete"], errors);
        }
    }
    if leniency == Leniency::None {
        let claims = spec.get("volumeClaimTemplates");
        claims.items().for_each(|claim| claims::validate(&claim, errors));
    }
    non_negative(&spec.get("replicas"), errors);
    non_negative(&spec.get("minReadySeconds"), errors);
    non_negative(&spec.get("ordinals").get("start"), errors);
    let service = spec.get("serviceName");
    if leniency == Leniency::None && !service.is_empty() {
        looks(&service, rules_of_names::dns1123_label, errors);
    }
    validate_template(spec, leniency, errors);
}

fn validate_template(spec: &At<'_>, leniency: Leniency, errors: &mut Errors) {
    let selector = spec.get("selector");
    workload::validate_selector(&selector, &SHAPE, errors);
    let template = spec.get("template");
    match labels::from_object(Some(selector.value())) {
        Ok(read) => {
            if !read.is_everything() {
                workload::matches_template(&read, &template, errors);
            }
            let complete = claims::with_volumes(spec);
            let complete = At::new(&complete, *template.path());
            if leniency != Leniency::Template {
                pod_template_spec::validate(&complete, errors);
            }
            // Upstream validates the metadata twice, which affects the number of causes in the Status.
            validate_metadata(&template, errors);
        }
        Err(_) => {
            let bad_value = workload::selector_bad_value(selector.value());
            errors.push(Error::invalid(selector.path(), bad_value, SHAPE.unreadable));
        }
    }
    workload::runs_forever(&template, SHAPE.endless, errors);
}

fn validate_metadata(template: &At<'_>, errors: &mut Errors) {
    let metadata = template.get("metadata");
    if let Some(labels) = metadata.get("labels").value().as_object() {
        meta::validate_labels(labels, &template.path().field("labels"), errors);
    }
    if let Some(annotations) = metadata.get("annotations").value().as_object() {
        meta::validate_annotations(annotations, &template.path().field("annotations"), errors);
    }
}

fn validate_strategy(strategy: &At<'_>, errors: &mut Errors) {
    const KIND: (&str, &str, &str) = ("apps", "v1", "StatefulSet");
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").str() {
        "" => errors.push(strategy.required("")),
        "OnDelete" if rolling.is_present() => {
            let bad_value = workload::bad_value(&rolling, KIND, &["spec", "updateStrategy", "rollingUpdate"]);
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.push(Error::invalid(rolling.path(), bad_value, detail));
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            non_negative(&rolling.get("partition"), errors);
            let unavailable = rolling.get("maxUnavailable");
            if unavailable.is_present() {
                workload::int_or_percent(&unavailable, errors);
                if workload::int_or_percent_value(unavailable.value()) == 0 {
                    errors.push(unavailable.invalid("cannot be 0"));
                }
                workload::at_most_all(&unavailable, errors);
            }
        }
        _ => {
            let bad_value = workload::bad_value(strategy, KIND, &["spec", "updateStrategy"]);
            errors.push(Error::invalid(strategy.path(), bad_value, "must be 'RollingUpdate' or 'OnDelete'"));
        }
    }
}

fn validate_status(status: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    const NUMBERS: &[&str] = &[
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    status::non_negative(status, NUMBERS, errors);
    for field in ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"] {
        status::at_most(status, field, "replicas", "status.replicas", errors);
    }
    status::at_most(status, "availableReplicas", "readyReplicas", "status.readyReplicas", errors);
    status::never_decremented(status, old, "collisionCount", errors);
}

/// Returns the immutable part of the spec.
fn fixed(spec: &At<'_>) -> Value {
    let mut spec = spec.value().clone();
    MUTABLE.iter().for_each(|field| field_rules::drop_field(&mut spec, field));
    spec
}

fn ready(object: &Value, _now: Time) -> Value {
    let number = |path: &[&str]| object.at(path).and_then(Value::as_int).unwrap_or_default();
    format!("{}/{}", number(&["status", "readyReplicas"]), number(&["spec", "replicas"])).into()
}
