//! `set`: changes of an object that are pure functions of it.

pub mod env;
pub mod resolve;

use apimachinery::{GroupVersionKind, Object, Value, value};

use super::{Error, policy, put, rbac};

/// The path of the pod spec, by group and kind.
const POD_SPECS: &[(&str, &str, &[&str])] = &[
    ("", "Pod", &["spec"]),
    ("", "ReplicationController", TEMPLATE),
    ("apps", "Deployment", TEMPLATE),
    ("apps", "DaemonSet", TEMPLATE),
    ("apps", "ReplicaSet", TEMPLATE),
    ("apps", "StatefulSet", TEMPLATE),
    ("batch", "Job", TEMPLATE),
    ("batch", "CronJob", &["spec", "jobTemplate", "spec", "template", "spec"]),
];
const TEMPLATE: &[&str] = &["spec", "template", "spec"];

/// Changes of resource requirements.
#[derive(Clone, Debug, Default)]
pub struct Requirements {
    pub limits: Option<Object>,
    pub requests: Option<Object>,
}

/// Returns the pod spec of an object.
pub fn pod_spec_mut(object: &mut Value) -> Result<&mut Value, Error> {
    let kind = GroupVersionKind::of_object(object).map_err(|error| Error::new(error.to_string()))?;
    let place = POD_SPECS.iter().find(|(group, name, _)| kind.group == *group && kind.kind == *name);
    let Some((_, _, path)) = place else {
        let kind = go_type(&kind);
        return Err(Error::new(format!("the object is not a pod or does not have a pod template: {kind}")));
    };
    if object.at(path).is_none_or(Value::is_null) {
        put(object, path, Value::object());
    }
    let spec = path.iter().try_fold(object, |at, key| at.get_mut(key));
    spec.ok_or_else(|| Error::new("the pod template is not an object"))
}

/// Returns the containers of a pod spec whose names match, and then the init containers.
pub fn containers_mut<'a>(spec: &'a mut Value, selector: &str) -> Vec<&'a mut Value> {
    let (mut containers, mut init) = (Vec::new(), Vec::new());
    let Value::Object(fields) = spec else { return containers };
    for (key, list) in fields.iter_mut() {
        let retained = match key {
            "containers" => &mut containers,
            "initContainers" => &mut init,
            _ => continue,
        };
        let list = list.as_array_mut().into_iter().flatten();
        retained
            .extend(list.filter(|container| name_matches(container.str_at(&["name"]).unwrap_or_default(), selector)));
    }
    containers.append(&mut init);
    containers
}

/// Sets images of containers by name; `*` is every container. Returns the names that no container has.
pub fn image(object: &mut Value, images: &[(String, String)]) -> Result<Vec<String>, Error> {
    let spec = pod_spec_mut(object)?;
    let mut missing = Vec::new();
    for (name, image) in images {
        let mut found = false;
        for container in containers_mut(spec, "*") {
            if name == "*" || container.str_at(&["name"]) == Some(name) {
                put(container, &["image"], image.as_str());
                found = true;
            }
        }
        if !found {
            missing.push(name.clone());
        }
    }
    Ok(missing)
}

/// Sets requests and limits of the selected containers. Returns whether any container was selected.
pub fn resources(object: &mut Value, containers: &str, change: &Requirements) -> Result<bool, Error> {
    let mut selected = containers_mut(pod_spec_mut(object)?, containers);
    for container in &mut selected {
        for (field, list) in [("limits", &change.limits), ("requests", &change.requests)] {
            for (resource, amount) in list.iter().flat_map(Object::iter) {
                put(container, &["resources", field, resource], amount.clone());
            }
        }
    }
    Ok(!selected.is_empty())
}

/// Parses `--limits` and `--requests`.
pub fn requirements(limits: &str, requests: &str) -> Result<Requirements, Error> {
    if limits.is_empty() && requests.is_empty() {
        return Err(Error::new(
            "you must specify an update to requests or limits (in the form of --requests/--limits)",
        ));
    }
    Ok(Requirements { limits: policy::resource_list(limits)?, requests: policy::resource_list(requests)? })
}

/// Sets the service account of a pod template.
pub fn service_account(object: &mut Value, name: &str) -> Result<(), Error> {
    put(pod_spec_mut(object)?, &["serviceAccountName"], name);
    Ok(())
}

/// Sets the selector of a service from a `LabelSelector`.
pub fn selector(object: &mut Value, selector: &Value) -> Result<(), Error> {
    if object.str_at(&["kind"]) != Some("Service") || object.str_at(&["apiVersion"]) != Some("v1") {
        return Err(Error::new("setting a selector is only supported for Services"));
    }
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).unwrap_or_default();
    if !expressions.is_empty() {
        let expressions_text: Vec<String> = expressions.iter().map(expression_text).collect();
        return Err(Error::new(format!(
            "match expression [{}] not supported on this object",
            expressions_text.join(" ")
        )));
    }
    let labels = selector.get("matchLabels").cloned().unwrap_or_else(Value::object);
    put(object, &["spec", "selector"], labels);
    Ok(())
}

/// Adds subjects to a binding unless it has them. Returns whether it changed.
pub fn subjects(object: &mut Value, subjects: &[Value]) -> Result<bool, Error> {
    if !matches!(object.str_at(&["kind"]), Some("RoleBinding" | "ClusterRoleBinding")) {
        return Err(Error::new("setting subjects is only supported for RoleBinding/ClusterRoleBinding"));
    }
    let Value::Object(fields) = object else { return Ok(false) };
    let list = fields.get_or_insert_with("subjects", || Value::Array(Vec::new()));
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    let Value::Array(list) = list else { return Ok(false) };
    let existing = list.clone();
    list.extend(subjects.iter().filter(|subject| !existing.contains(subject)).cloned());
    Ok(list.len() > existing.len())
}

/// Checks the flags of `set subject`.
pub fn validate_subjects(subjects: rbac::Subjects<'_>, has_cluster_binding: bool) -> Result<(), Error> {
    let rbac::Subjects { users, groups, service_accounts } = subjects;
    if users.is_empty() && groups.is_empty() && service_accounts.is_empty() {
        return Err(Error::new("you must specify at least one value of user, group or serviceaccount"));
    }
    for account in service_accounts {
        match account.split(':').collect::<Vec<_>>()[..] {
            ["", name] if !name.is_empty() && has_cluster_binding => {
                return Err(Error::new("serviceaccount must be <namespace>:<name>, namespace must be specified"));
            }
            [_, name] if !name.is_empty() => {}
            _ => return Err(Error::new("serviceaccount must be <namespace>:<name>")),
        }
    }
    Ok(())
}

/// Returns the subjects of `set subject`: users, groups and service accounts, each sorted. `namespace` is that of a
/// service account given without one.
pub fn new_subjects(subjects: rbac::Subjects<'_>, namespace: &str) -> Vec<Value> {
    let sorted = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort();
        names.dedup();
        names
    };
    let mut list = Vec::new();
    for (kind, names) in [("User", subjects.users), ("Group", subjects.groups)] {
        list.extend(
            sorted(names).into_iter().map(|name| value!({"kind": kind, "apiGroup": (rbac::GROUP), "name": name})),
        );
    }
    for account in sorted(subjects.service_accounts) {
        let (given, name) = account.split_once(':').unwrap_or(("", &account));
        let namespace = if given.is_empty() { namespace } else { given };
        list.push(value!({"kind": "ServiceAccount", "namespace": namespace, "name": name}));
    }
    list
}

/// Whether a name matches a pattern with `*`.
// DEVIATION: kubectl compares offsets into different parts of the text, so that some patterns with several `*` match
// nothing; here `*` matches any text.
pub fn name_matches(name: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

/// Formats a match expression like Go's `%v`.
fn expression_text(expression: &Value) -> String {
    let text = |field| expression.str_at(&[field]).unwrap_or_default();
    let values = expression.get("values").and_then(Value::as_array).unwrap_or_default();
    let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
    format!("{{{} {} [{}]}}", text("key"), text("operator"), values.join(" "))
}

/// Returns the Go type of a kind in messages: `*v1.Service`.
pub fn go_type(kind: &GroupVersionKind) -> String {
    format!("*{}.{}", kind.version, kind.kind)
}

#[cfg(test)]
mod tests;
