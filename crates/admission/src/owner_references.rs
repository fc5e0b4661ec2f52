//! OwnerReferencesPermissionEnforcement: setting ownerReferences requires the permission to delete the object, and
//! setting blockOwnerDeletion the permission to update the owner's finalizers.

use api::resources::PODS;
use apimachinery::Value;
use apimachinery::meta::{Meta, OwnerReference};
use apimachinery::status::Status;
use auth::Resource;

use super::{Attributes, Notes, Operation, Plugin, View};

pub(crate) struct OwnerReferencesPermissionEnforcement;

impl Plugin for OwnerReferencesPermissionEnforcement {
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        let exempt = attributes.is(PODS) && attributes.subresource == "status";
        let owners = |of: Option<&Value>| of.and_then(|of| Meta::of(of).value("ownerReferences").cloned());
        if !writes || exempt || owners(Some(object)) == owners(attributes.old) {
            return Ok(());
        }
        let kind = attributes.kind;
        let may = |verb: &str, resource: Resource<'_>| {
            view.allows(&auth::Attributes { user: attributes.user, verb, target: auth::Target::Resource(resource) })
        };
        // Setting owners on create needs no delete permission, since no existing object can be deleted.
        let own = Resource {
            group: &kind.group,
            version: &attributes.version.name,
            resource: &kind.plural,
            namespace: attributes.namespace,
            name: attributes.name,
            ..Resource::default()
        };
        if attributes.operation == Operation::Update && !may("delete", own) {
            let message = "cannot set an ownerRef on a resource you can't delete: , <nil>";
            return Err(attributes.forbidden(object, message));
        }
        let blocked = |of: Option<&Value>, uid: &str| {
            let mut owners = of.into_iter().flat_map(|of| Meta::of(of).owner_references());
            owners.any(|owner| owner.uid() == uid && owner.blocks_owner_deletion())
        };
        let blocking = Meta::of(object).owner_references().filter(|owner| owner.blocks_owner_deletion());
        for owner in blocking.filter(|owner| !blocked(attributes.old, owner.uid())) {
            let target = finalizers_of(attributes, object, owner, view)?;
            let resource = Resource {
                group: &target.group,
                version: &target.version,
                resource: &target.plural,
                subresource: "finalizers",
                namespace: if target.namespaced { attributes.namespace } else { "" },
                name: owner.name(),
                ..Resource::default()
            };
            if !may("update", resource) {
                let message = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set \
                           finalizers on: , <nil>";
                return Err(attributes.forbidden(object, message));
            }
        }
        Ok(())
    }
}

struct Owner {
    group: String,
    version: String,
    plural: String,
    namespaced: bool,
}

fn finalizers_of(
    attributes: &Attributes<'_>,
    object: &Value,
    owner: OwnerReference<'_>,
    view: &dyn View,
) -> Result<Owner, Status> {
    let (group, version) = owner.api_version().split_once('/').unwrap_or(("", owner.api_version()));
    let Some((plural, namespaced)) = view.plural(group, owner.kind()) else {
        let (api_version, kind) = (owner.api_version(), owner.kind());
        let message = format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind \
             {kind}: no matches for kind {kind:?} in version {api_version:?}"
        );
        return Err(attributes.forbidden(object, message));
    };
    Ok(Owner { group: group.to_owned(), version: version.to_owned(), plural, namespaced })
}
