//! CRD conditions: NamesAccepted, Established, Terminating, NonStructuralSchema and API approval.

use std::collections::BTreeSet;

use apimachinery::schema::structural;
use apimachinery::time::Time;
use apimachinery::{At, Object, Value, field, go, value};

use super::spec::{Approval, approval, is_protected};

/// Finalizer that keeps a CRD until all its custom resources are deleted.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A condition of a CRD's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The condition type, such as `Established`.
    pub name: &'static str,
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

/// Progress of the deletion of a CRD's custom resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    Pending,
    InProgress,
    Failed,
    Completed,
}

/// Returns the status that a CRD should have, if it differs from the current one.
///
/// A name that is already accepted for another CRD of the group is not accepted again. `others` must contain all CRDs
/// of the group and may contain `crd` itself.
pub fn conditions<'a>(crd: &Value, others: impl IntoIterator<Item = &'a Value>, now: Time) -> Option<Value> {
    let mut next = crd.clone();
    let (names, accepted) = accept(crd, &taken(crd, others));
    if let Value::Object(fields) = &mut next {
        let status = fields.get_or_insert_with("status", Value::object);
        if let Value::Object(status) = status {
            status.insert("acceptedNames", names);
        }
    }
    let all_accepted = accepted.status == "True";
    set(&mut next, &accepted, now);
    if !is_established(crd) {
        set(&mut next, &established(all_accepted), now);
    }
    let violations = violations(crd);
    if violations.is_empty() {
        remove(&mut next, "NonStructuralSchema");
    } else {
        let message = violations;
        set(&mut next, &Condition { name: "NonStructuralSchema", status: "True", reason: "Violations", message }, now);
    }
    match approved(crd) {
        Some(condition) => set(&mut next, &condition, now),
        None => remove(&mut next, "KubernetesAPIApprovalPolicyConformant"),
    }
    let status = next.get("status").cloned();
    status.filter(|status| Some(status) != crd.get("status"))
}

/// Whether the CRD's condition Established is true, so that its kind is served.
pub fn is_established(crd: &Value) -> bool {
    let status = find(crd, "Established").and_then(|condition| condition.get("status"));
    status.and_then(Value::as_str) == Some("True")
}

/// Sets the condition Terminating from the deletion progress.
pub fn set_terminating(crd: &mut Value, deletion: Deletion, now: Time) {
    let (status, reason, message) = match deletion {
        Deletion::Pending => (
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        ),
        Deletion::InProgress => ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"),
        Deletion::Failed => ("True", "InstanceDeletionFailed", "could not list instances"),
        Deletion::Completed => ("False", "InstanceDeletionCompleted", "removed all instances"),
    };
    set(crd, &Condition { name: "Terminating", status, reason, message: message.to_owned() }, now);
}

/// Names accepted for other CRDs of the group.
#[derive(Debug, Default)]
struct UsedNames {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

fn taken<'a>(crd: &Value, others: impl IntoIterator<Item = &'a Value>) -> UsedNames {
    let mut taken = UsedNames::default();
    let same = |other: &Value, path: &[&str]| other.str_at(path) == crd.str_at(path);
    for other in
        others.into_iter().filter(|other| same(other, &["spec", "group"]) && !same(other, &["metadata", "name"]))
    {
        let root = At::root(other);
        let status = root.get("status");
        let names = status.get("acceptedNames");
        let single = ["plural", "singular"].map(|field| names.get(field).str().to_owned());
        taken.resources.extend(single.into_iter().filter(|name| !name.is_empty()));
        taken.resources.extend(names.get("shortNames").items().map(|name| name.str().to_owned()));
        let kinds = ["kind", "listKind"].map(|field| names.get(field).str().to_owned());
        taken.kinds.extend(kinds.into_iter().filter(|name| !name.is_empty()));
    }
    taken
}

/// Returns the accepted names and the condition NamesAccepted. Taken names are not accepted; names accepted earlier are
/// kept.
fn accept(crd: &Value, taken: &UsedNames) -> (Value, Condition) {
    let root = At::root(crd);
    let (spec, status) = (root.get("spec"), root.get("status"));
    let (requested, had) = (spec.get("names"), status.get("acceptedNames"));
    let mut names = had.value().as_object().cloned().unwrap_or_default();
    let mut conflict: Option<(&'static str, String)> = None;
    let checks = [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ];
    let free = |name: &str, had: &str, used: &BTreeSet<String>| name == had || !used.contains(name);
    for (field, reason, used) in checks {
        if field == "kind" {
            accept_short_names(&requested, &had, taken, &mut names, &mut conflict);
        }
        let name = requested.get(field).str().to_owned();
        if free(&name, had.get(field).str(), used) {
            names.insert(field, name);
        } else {
            conflict = Some((reason, format!("{} is already in use", go::quote(&name))));
        }
    }
    copy_list(&requested, "categories", &mut names);
    names.retain(|field, value| matches!(field, "kind" | "plural") || value.as_str() != Some(""));
    let condition = match conflict {
        Some((reason, message)) => Condition { name: "NamesAccepted", status: "False", reason, message },
        None => Condition {
            name: "NamesAccepted",
            status: "True",
            reason: "NoConflicts",
            message: "no conflicts found".to_owned(),
        },
    };
    (Value::Object(names), condition)
}

fn accept_short_names(
    requested: &At<'_>,
    had: &At<'_>,
    taken: &UsedNames,
    names: &mut Object,
    conflict: &mut Option<(&'static str, String)>,
) {
    let was_accepted = |name: &str| had.get("shortNames").items().any(|one| one.str() == name);
    let short_names = requested.get("shortNames");
    let in_use: Vec<_> = short_names
        .items()
        .filter(|name| !was_accepted(name.str()) && taken.resources.contains(name.str()))
        .map(|name| format!("{} is already in use", go::quote(name.str())))
        .collect();
    match in_use.as_slice() {
        [] => copy_list(requested, "shortNames", names),
        [one] => *conflict = Some(("ShortNamesConflict", one.clone())),
        several => *conflict = Some(("ShortNamesConflict", format!("[{}]", several.join(", ")))),
    }
}

fn copy_list(from: &At<'_>, field: &str, to: &mut Object) {
    if from.get(field).is_empty() {
        to.remove(field);
    } else {
        to.insert(field, from.get(field).value().clone());
    }
}

/// Returns the condition Established. It becomes true when the names are accepted and is never reset.
fn established(accepted: bool) -> Condition {
    let (status, reason, message) = if accepted {
        ("True", "InitialNamesAccepted", "the initial names have been accepted")
    } else {
        ("False", "NotAccepted", "not all names are accepted")
    };
    Condition { name: "Established", status, reason, message: message.to_owned() }
}

/// Returns all violations of structural schema rules in one line, or an empty string. Only CRDs older than that
/// requirement can have any.
fn violations(crd: &Value) -> String {
    let root = At::root(crd);
    let spec = root.get("spec");
    let mut errors = field::Errors::new();
    if spec.get("preserveUnknownFields").bool() {
        errors.push(spec.get("preserveUnknownFields").invalid("must be false"));
        for version in spec.get("versions").items() {
            let schema = version.get("schema");
            let schema = schema.get("openAPIV3Schema");
            if schema.is_present() {
                errors.extend(structural::check(schema.value(), schema.path()));
            }
        }
    }
    field::aggregate(&errors).unwrap_or_default()
}

fn approved(crd: &Value) -> Option<Condition> {
    let group = crd.text_at(&["spec", "group"]);
    if !is_protected(group) {
        return None;
    }
    let approval_state = approval(crd);
    let (status, reason) = match approval_state {
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Invalid => ("False", "InvalidAnnotation"),
        Approval::Approved => ("True", "ApprovedAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
    };
    let name = "KubernetesAPIApprovalPolicyConformant";
    Some(Condition { name, status, reason, message: approval_state.message(crd) })
}

fn find<'a>(crd: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = crd.at(&["status", "conditions"])?.as_array()?;
    conditions.iter().find(|condition| condition.str_at(&["type"]) == Some(name))
}

fn set(crd: &mut Value, condition: &Condition, now: Time) {
    let Condition { name, status, reason, message } = condition;
    let before = find(crd, name);
    let unchanged = before.filter(|before| before.str_at(&["status"]) == Some(status));
    let since = unchanged.and_then(|unchanged| unchanged.get("lastTransitionTime")).cloned();
    let entry = value!({
        "type": (*name),
        "status": (*status),
        "lastTransitionTime": (since.unwrap_or_else(|| now.to_string().into())),
        "reason": (*reason),
        "message": (message.as_str()),
    });
    let Some(Value::Object(status)) =
        crd.as_object_mut().map(|fields| fields.get_or_insert_with("status", Value::object))
    else {
        return;
    };
    let conditions = status.get_or_insert_with("conditions", || Value::Array(Vec::new()));
    if conditions.is_null() {
        *conditions = Value::Array(Vec::new());
    }
    let Value::Array(conditions) = conditions else { return };
    match conditions.iter_mut().find(|condition| condition.str_at(&["type"]) == Some(name)) {
        Some(have) => *have = entry,
        None => conditions.push(entry),
    }
}

fn remove(crd: &mut Value, name: &str) {
    let status = crd.get_mut("status").and_then(|status| status.get_mut("conditions"));
    if let Some(Value::Array(conditions)) = status {
        conditions.retain(|condition| condition.str_at(&["type"]) != Some(name));
    }
}
