//! Without `--allow-privileged`, rejects privileged containers in pods and pod templates.

use api_registry::decode::kind_name;
use apimachinery::status::Status;
use apimachinery::{At, Errors, Value};

use super::{Attributes, Notes, Operation, Plugin, View};

pub(crate) struct NoPrivileged;

/// The container lists, in the order in which upstream reports errors.
const LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

impl Plugin for NoPrivileged {
    fn validate(&self, attributes: &Attributes<'_>, object: &Value, _: &dyn View, _: &mut Notes) -> Result<(), Status> {
        let is_write = matches!(attributes.operation, Operation::Create | Operation::Update);
        let Some(path) = pod_spec_path(attributes).filter(|_| is_write) else { return Ok(()) };
        let root = At::root(object);
        let mut errors = Errors::new();
        find(&root, path, &mut errors);
        if errors.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(kind_name(attributes.kind), attributes.display_name(object), &errors))
    }
}

/// Returns the path of the pod spec in an object.
fn pod_spec_path(attributes: &Attributes<'_>) -> Option<&'static [&'static str]> {
    match (attributes.kind.group.as_str(), attributes.kind.plural.as_str(), attributes.subresource) {
        ("", "pods", "" | "ephemeralcontainers") => Some(&["spec"]),
        ("", "podtemplates", "") => Some(&["template", "spec"]),
        ("", "replicationcontrollers", "")
        | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets", "")
        | ("batch", "jobs", "") => Some(&["spec", "template", "spec"]),
        ("batch", "cronjobs", "") => Some(&["spec", "jobTemplate", "spec", "template", "spec"]),
        _ => None,
    }
}

fn find(at: &At<'_>, path: &[&str], errors: &mut Errors) {
    if let [first, rest @ ..] = path {
        return find(&at.get(first), rest, errors);
    }
    for list in LISTS {
        for container in at.get(list).items() {
            let privileged = container.get("securityContext");
            let privileged = privileged.get("privileged");
            if privileged.bool() {
                errors.push(privileged.forbidden("disallowed by cluster policy"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn privileged_containers_are_rejected_in_pods_and_pod_templates() {
        let check = |path: &[&str], object: &Value, expect: &[&str]| {
            let mut errors = Errors::new();
            find(&At::root(object), path, &mut errors);
            let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(found, expect);
        };
        let container = value!({"securityContext": {"privileged": true}});
        let plain = value!({"securityContext": {"privileged": false}});
        let spec = value!({"containers": [(plain), (container.clone())], "initContainers": [(container)]});
        check(
            &["spec", "template", "spec"],
            &value!({"spec": {"template": {"spec": (spec)}}}),
            &[
                "spec.template.spec.containers[1].securityContext.privileged: Forbidden: disallowed by cluster policy",
                "spec.template.spec.initContainers[0].securityContext.privileged: Forbidden: disallowed by cluster policy",
            ],
        );
        check(&["spec"], &value!({}), &[]);
    }
}
