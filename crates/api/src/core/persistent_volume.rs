//! PersistentVolume: a storage volume of the cluster.

mod source;

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Meta, Scope};
use apimachinery::quantity::Quantity;
use apimachinery::{At, Errors, Object, Path, Value, names};

use crate::core::{access_modes, node_selector};
use crate::field_rules::{
    column, default_empty_to, default_to, immutable, keep, keep_all_but, looks, one_of, quantity, same, wide_column,
};
use crate::go_form;
use crate::kind::{Context, Kind, Rules, Subresource, UpdateChecks, age_column, name_column, names as strings};

/// Deprecated topology labels and their replacements.
const RENAMED_LABELS: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
];

pub fn kind() -> Kind {
    Kind {
        short_names: strings(&["pv"]),
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        returns_deleted: true,
        // Upstream validates the object twice and does not compare its metadata.
        update_checks: UpdateChecks { whole: 2, change: 0 },
        rules: Arc::new(PersistentVolume),
        ..Kind::stored("", "v1", "PersistentVolume", "persistentvolumes")
    }
    .with_columns(&[
        name_column(),
        column("Capacity", "string", "Capacity.", |object, _| {
            object.at(&["spec", "capacity", "storage"]).map_or(Quantity::ZERO, quantity).to_string().into()
        }),
        column("Access Modes", "string", "Access modes.", |object, _| {
            access_modes::shortened(&At::root(object).get("spec").get("accessModes")).into()
        }),
        column("Reclaim Policy", "string", "Reclaim policy of the volume.", |object, _| {
            object.text_at(&["spec", "persistentVolumeReclaimPolicy"]).into()
        }),
        column("Status", "string", "Phase of the volume.", |object, _| phase(object).into()),
        column("Claim", "string", "Bound claim.", |object, _| claim(object).into()),
        column("StorageClass", "string", "StorageClass.", |object, _| class(object).into()),
        column("VolumeAttributesClass", "string", "VolumeAttributesClass of the claim.", |object, _| {
            object.str_at(&["spec", "volumeAttributesClassName"]).unwrap_or("<unset>").into()
        }),
        column("Reason", "string", "Reason of the phase.", |object, _| object.text_at(&["status", "reason"]).into()),
        age_column(),
        wide_column("VolumeMode", "string", "Filesystem or Block.", |object, _| {
            object.str_at(&["spec", "volumeMode"]).unwrap_or("<unset>").into()
        }),
    ])
}

#[derive(Debug)]
struct PersistentVolume;

impl Rules for PersistentVolume {
    fn default(&self, object: &mut Value, _version: &str) {
        let Some(volume) = object.as_object_mut() else { return };
        default_empty_to(volume.get_or_insert_with("status", Value::object), "phase", "Pending");
        let spec = volume.get_or_insert_with("spec", Value::object);
        default_empty_to(spec, "persistentVolumeReclaimPolicy", "Retain");
        default_to(spec, "volumeMode", "Filesystem");
        source::default(spec);
    }

    fn prepare_create(&self, object: &mut Value, context: &Context<'_>) {
        if let Some(volume) = object.as_object_mut() {
            let now = context.now.to_seconds().to_string();
            let status = [("phase", Value::from("Pending")), ("lastPhaseTransitionTime", Value::from(now))];
            volume.insert("status", Object::from_iter(status));
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if context.subresource != "status" {
            keep(object, old, "status");
            return;
        }
        keep_all_but(object, old, "status");
        let field = ["status", "lastPhaseTransitionTime"];
        let changed = object.text_at(&["status", "phase"]) != old.text_at(&["status", "phase"]);
        let sent = object.at(&field).filter(|time| !time.is_null());
        let time = match sent {
            None if !changed => old.at(&field).cloned(),
            _ if changed && (sent.is_none() || sent == old.at(&field)) => {
                Some(context.now.to_seconds().to_string().into())
            }
            sent => sent.cloned(),
        };
        if let (Some(status), Some(time)) = (object.get_mut("status").and_then(Value::as_object_mut), time) {
            status.insert(field[1], time);
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        validate_spec(&root.get("spec"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        if context.subresource == "status" {
            return;
        }
        // Upstream validates the volume twice and reports every error twice.
        self.validate(object, context, errors);
        self.validate(object, context, errors);
        let (root, before) = (At::root(object), At::root(old));
        let (spec, had) = (root.get("spec"), before.get("spec"));
        source::validate_same(&spec, &had, context, errors);
        immutable(&At::new(spec.get("volumeMode").value(), Path::of("volumeMode")), &had.get("volumeMode"), errors);
        validate_same_nodes(&spec, &had, context, errors);
        let (class, class_before) = (spec.get("volumeAttributesClassName"), had.get("volumeAttributesClassName"));
        if class_before.is_present() && class.is_absent() {
            errors.push(class.forbidden("update from non-nil value to nil is forbidden"));
        }
    }
}

/// Validates a PersistentVolumeSpec that is inline in a VolumeAttachment; only CSI sources are allowed.
pub fn validate_inline(spec: &At<'_>, errors: &mut Errors) {
    const INLINE: &str = "in the context of inline volumes";
    for field in ["claimRef", "capacity"] {
        if !spec.get(field).is_empty() {
            errors.push(spec.get(field).forbidden(format!("may not be specified {INLINE}")));
        }
    }
    if spec.get("csi").is_absent() {
        errors.push(spec.get("csi").required(format!("has to be specified {INLINE}")));
    }
    if spec.get("accessModes").is_empty() {
        errors.push(spec.get("accessModes").required(""));
    }
    access_modes::validate(&spec.get("accessModes"), errors);
    let policy = spec.get("persistentVolumeReclaimPolicy");
    if !policy.is_empty() && policy.str() != "Retain" {
        errors.push(policy.forbidden(format!("may only be Retain {INLINE}")));
    }
    if spec.get("nodeAffinity").is_present() {
        errors.push(spec.get("nodeAffinity").forbidden(format!("may not be specified {INLINE}")));
    }
    source::validate(spec, errors);
    if !spec.get("storageClassName").is_empty() {
        errors.push(spec.get("storageClassName").forbidden(format!("may not be specified {INLINE}")));
    }
    let mode = spec.get("volumeMode");
    if mode.is_present() && mode.str() != "Filesystem" {
        errors.push(mode.forbidden(format!("may not specify volumeMode other than Filesystem {INLINE}")));
    }
}

fn validate_spec(spec: &At<'_>, errors: &mut Errors) {
    let (modes, capacity) = (spec.get("accessModes"), spec.get("capacity"));
    if modes.is_empty() {
        errors.push(modes.required(""));
    }
    access_modes::validate(&modes, errors);
    if capacity.is_empty() {
        errors.push(capacity.required(""));
    }
    if capacity.entry("storage").is_absent() || capacity.len() > 1 {
        let bad_value = if capacity.is_absent() { Value::object() } else { capacity.value().clone() };
        errors.push(Error::not_supported(capacity.path(), bad_value, &["storage"]));
    }
    for (_, amount) in capacity.entries() {
        let value = quantity(amount.value());
        if value.is_negative() {
            errors.push(Error::invalid(amount.path(), value.value(), "must be a valid resource quantity"));
        }
        if value <= Quantity::ZERO {
            errors.push(Error::invalid(amount.path(), value.to_string(), "must be greater than zero"));
        }
    }
    let policy = spec.get("persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        one_of(&policy, &["Delete", "Recycle", "Retain"], errors);
    }
    let affinity = spec.get("nodeAffinity");
    if affinity.is_present() {
        let required = affinity.get("required");
        if required.is_present() {
            node_selector::validate(&required, errors);
        } else {
            errors.push(required.required("must specify required node constraints"));
        }
    }
    source::validate(spec, errors);
    if !spec.get("storageClassName").is_empty() {
        looks(&spec.get("storageClassName"), names::dns1123_subdomain, errors);
    }
    access_modes::validate_volume_mode(&spec.get("volumeMode"), errors);
    let class = spec.get("volumeAttributesClassName");
    if class.is_present() {
        if class.is_empty() {
            errors.push(class.required("an empty string is disallowed"));
        } else {
            looks(&class, names::dns1123_subdomain, errors);
        }
        if spec.get("csi").is_absent() {
            errors.push(spec.get("csi").required("has to be specified when using volumeAttributesClassName"));
        }
    }
}

/// `nodeAffinity` can be set once. Deprecated label keys may be replaced by their successors.
fn validate_same_nodes(spec: &At<'_>, had: &At<'_>, context: &Context<'_>, errors: &mut Errors) {
    let (affinity, before) = (spec.get("nodeAffinity"), had.get("nodeAffinity"));
    if before.is_absent() || same(affinity.value(), before.value()) {
        return;
    }
    let mut renamed = before.value().clone();
    rename_labels(&mut renamed, affinity.value());
    if !same(affinity.value(), &renamed) {
        let restored =
            go_form::restored(affinity.value(), before.value(), context.version.schema(), &["spec", "nodeAffinity"]);
        let affinity = At::new(&restored, *affinity.path());
        let bad_value = go_form::bad_value_at(&affinity, context.version.schema(), &["spec", "nodeAffinity"]);
        let detail = "field is immutable, except for updating from beta label to GA";
        errors.push(Error::invalid(&Path::of("nodeAffinity"), bad_value, detail));
    }
}

/// Replaces deprecated label keys in `old` where `new` uses their successors.
fn rename_labels(old: &mut Value, new: &Value) {
    let terms = |affinity: &Value| affinity.list_at(&["required", "nodeSelectorTerms"]).to_vec();
    let new_terms = terms(new);
    let old_terms = old.get_mut("required").and_then(|required| required.get_mut("nodeSelectorTerms"));
    for (at, term) in old_terms.and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
        let expressions = term.get_mut("matchExpressions").and_then(Value::as_array_mut);
        for (index, requirement) in expressions.into_iter().flatten().enumerate() {
            let Some(new_terms) = new_terms.get(at) else { continue };
            let newer = new_terms["matchExpressions"][index].text_at(&["key"]);
            let older = requirement.text_at(&["key"]);
            // As in upstream, the successor of any other label is the empty string.
            let renamed = RENAMED_LABELS.iter().find(|(old, _)| *old == older).map_or("", |(_, new)| *new);
            if newer == renamed
                && let Some(requirement) = requirement.as_object_mut()
            {
                requirement.insert("key", newer);
            }
        }
    }
}

fn phase(object: &Value) -> &str {
    if Meta::of(object).is_deleting() { "Terminating" } else { object.text_at(&["status", "phase"]) }
}

fn claim(object: &Value) -> String {
    match object.at(&["spec", "claimRef"]).filter(|claim| !claim.is_null()) {
        Some(claim) => format!("{}/{}", claim.text_at(&["namespace"]), claim.text_at(&["name"])),
        None => String::new(),
    }
}

fn class(object: &Value) -> &str {
    let annotation = Meta::of(object).annotation("volume.beta.kubernetes.io/storage-class");
    annotation.unwrap_or_else(|| object.text_at(&["spec", "storageClassName"]))
}
