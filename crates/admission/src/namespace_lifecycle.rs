//! NamespaceLifecycle: rejects creation in missing or terminating namespaces, and deletion of system namespaces.

use api::resources::NAMESPACES;
use api_registry::decode::resource_name;
use apimachinery::Value;
use apimachinery::field::Cause;
use apimachinery::meta::Meta;
use apimachinery::status::{GroupName, Status};

use super::{Attributes, Notes, Operation, Plugin, View};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(crate) struct NamespaceLifecycle;

impl Plugin for NamespaceLifecycle {
    fn admit(&self, attributes: &Attributes<'_>, _: &mut Value, view: &dyn View, _: &mut Notes) -> Result<(), Status> {
        check_namespace(attributes, view)
    }
}

fn check_namespace(attributes: &Attributes<'_>, view: &dyn View) -> Result<(), Status> {
    let Attributes { kind, operation, name, namespace, .. } = *attributes;
    let is_namespace = kind.group.is_empty() && kind.kind == "Namespace";
    if operation == Operation::Delete && is_namespace && IMMORTAL.contains(&name) {
        return Err(Status::forbidden(resource_name(kind), name, "this namespace may not be deleted"));
    }
    // Reviews are not stored and may refer to namespaces that do not exist.
    if operation != Operation::Create || is_namespace || namespace.is_empty() || kind.kind.ends_with("Review") {
        return Ok(());
    }
    let Some(found) = view.object(NAMESPACES, "", namespace) else {
        return Err(Status::not_found(GroupName::new("", "namespaces"), namespace));
    };
    let going = Meta::of(&found).is_deleting() || found.str_at(&["status", "phase"]) == Some("Terminating");
    if !going {
        return Ok(());
    }
    let cause = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = Status::forbidden(resource_name(kind), name, &cause);
    if let Some(details) = &mut status.details {
        details.causes.push(Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        });
    }
    Err(status)
}
