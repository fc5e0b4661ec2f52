//! PodSpec validation, for pods and pod templates.
//!
//! `defaults` sets default values and `warnings` produces warnings; each other module validates a part. Errors have
//! upstream's order, paths and messages, even where upstream reports a neighbouring field.

mod affinity;
mod annotations;
mod containers;
mod defaults;
mod env;
mod handlers;
mod image;
mod mounts;
mod network;
mod os;
mod paths;
mod report;
mod resources;
mod scheduling;
mod security;
mod volumes;
mod warnings;

use std::collections::BTreeSet;

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value, meta, names};

use crate::field_rules::looks;
use crate::view::CONFIG_MIRROR as MIRROR;
use report::required_one_of;

pub(crate) use annotations::{APP_ARMOR, agree, app_armor_field, validate as validate_annotations};
pub(crate) use containers::only_for_pod;
pub(crate) use defaults::{metadata as default_metadata, pod as default_pod, spec as default};
pub(crate) use network::address;
pub(crate) use report::{invalid_int, invalid_text};
pub(crate) use scheduling::tolerations as validate_tolerations;
pub(crate) use security::app_armor as validate_app_armor;
pub(crate) use warnings::{address as address_warning, warnings};

/// The object that contains the spec.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner<'a> {
    /// A pod with this metadata.
    Pod(&'a Value),
    /// A pod template, which has no name or node yet.
    Template,
}

impl<'a> Owner<'a> {
    /// Returns the name of the pod, or an empty string for a template.
    fn name(self) -> &'a str {
        match self {
            Self::Pod(metadata) => metadata.text_at(&["name"]),
            Self::Template => "",
        }
    }

    /// Whether the pod is a mirror pod.
    fn is_mirror(self) -> bool {
        match self {
            Self::Pod(metadata) => metadata.at(&["annotations", MIRROR]).is_some(),
            Self::Template => false,
        }
    }
}

pub(crate) fn validate(spec: &At<'_>, owner: Owner<'_>, errors: &mut Errors) {
    let grace = spec.get("terminationGracePeriodSeconds");
    if grace.is_absent() {
        errors.push(grace.required(""));
    }
    let volumes = spec.get("volumes");
    let known = volumes::validate(&volumes, owner, errors);
    let claims = spec.get("resourceClaims");
    scheduling::claims(&claims, owner, errors);
    let claim_names = claims.list().iter().filter_map(|claim| claim.str_at(&["name"]));
    let restart_policy = spec.get("restartPolicy");
    let pod = containers::Pod {
        volumes: known,
        claims: claim_names.filter(|name| !name.is_empty()).collect::<BTreeSet<_>>(),
        grace_seconds: grace.value().as_int(),
        restart_policy: restart_policy.str(),
        host_users: spec.value().get("hostUsers").and_then(Value::as_bool).unwrap_or(true),
    };
    containers::regular(&spec.get("containers"), &pod, errors);
    containers::init(spec, &pod, errors);
    containers::ephemeral(spec, &pod, errors);
    resources::pod_level(spec, &pod.claims, errors);
    network::host_ports(spec, owner, errors);
    required_one_of(&restart_policy, &["Always", "OnFailure", "Never"], errors);
    let dns = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    required_one_of(&spec.get("dnsPolicy"), &dns, errors);
    if let Some(labels) = spec.value().get("nodeSelector").and_then(Value::as_object) {
        meta::validate_labels(labels, &spec.path().field("nodeSelector"), errors);
    }
    security::pod(spec, errors);
    affinity::validate(&spec.get("affinity"), errors);
    network::dns_config(spec, errors);
    for gate in spec.get("readinessGates").items() {
        let condition = gate.get("conditionType");
        looks(&condition, names::qualified_name, errors);
    }
    scheduling::gates(&spec.get("schedulingGates"), errors);
    scheduling::spread(&spec.get("topologySpreadConstraints"), errors);
    security::host_process(spec, errors);
    network::host_users(spec, errors);
    network::hostname_override(spec, errors);
    names_and_numbers(spec, errors);
    os::validate(spec, errors);
    containers::file_key_volumes(spec, errors);
}

/// Calls `visitor` with every container, in upstream's order.
fn visit(spec: &At<'_>, mut visitor: impl FnMut(&At<'_>)) {
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.get(field).items() {
            visitor(&container);
        }
    }
}

/// Validates fields that are independent of others.
fn names_and_numbers(spec: &At<'_>, errors: &mut Errors) {
    let name = |field: &str, rule: fn(&str) -> Vec<String>, errors: &mut Errors| {
        let name = spec.get(field);
        if !name.is_empty() {
            looks(&name, rule, errors);
        }
    };
    name("serviceAccountName", names::dns1123_subdomain, errors);
    name("nodeName", names::dns1123_subdomain, errors);
    let deadline = spec.get("activeDeadlineSeconds");
    if deadline.is_present() {
        let wrong = names::in_range(deadline.int(), 1, i32::MAX.into());
        errors.extend(wrong.into_iter().map(|detail| deadline.invalid(detail)));
    }
    name("hostname", names::dns1123_label, errors);
    name("subdomain", names::dns1123_label, errors);
    scheduling::tolerations(&spec.get("tolerations"), errors);
    network::host_aliases(&spec.get("hostAliases"), errors);
    name("priorityClassName", names::dns1123_subdomain, errors);
    let class = spec.get("runtimeClassName");
    if class.is_present() {
        looks(&class, names::dns1123_subdomain, errors);
    }
    let preemption = spec.get("preemptionPolicy");
    if preemption.is_present() {
        required_one_of(&preemption, &["PreemptLowerPriority", "Never"], errors);
    }
    resources::overhead(&spec.get("overhead"), errors);
}

/// Validates rules that apply to pods but not to templates: token volumes need a service account, and image names have
/// no surrounding whitespace.
pub(crate) fn validate_only_for_pod(spec: &At<'_>, errors: &mut Errors) {
    if spec.get("serviceAccountName").is_empty() {
        for volume in spec.get("volumes").items() {
            let projected = volume.get("projected");
            for source in projected.get("sources").items() {
                let token = source.get("serviceAccountToken");
                if token.is_present() {
                    let detail = "must not be specified when serviceAccountName is not set";
                    errors.push(Error::forbidden(token.path(), detail));
                }
            }
        }
    }
    for field in ["containers", "initContainers"] {
        for container in spec.get(field).items() {
            only_for_pod(&container, errors);
        }
    }
}
