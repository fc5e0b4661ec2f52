//! PersistentVolumeClaimResize: a claim can only grow if it is bound and its StorageClass allows expansion.

use api::amounts::quantity;
use api::resources::{PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES};
use apimachinery::Value;
use apimachinery::meta::Meta;
use apimachinery::status::Status;

use super::pods::spec;
use super::{Attributes, Notes, Operation, Plugin, View};

pub(crate) struct PersistentVolumeClaimResize;

impl Plugin for PersistentVolumeClaimResize {
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        claim: &Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let updates = attributes.operation == Operation::Update && attributes.writes(PERSISTENT_VOLUME_CLAIMS);
        let (true, Some(old)) = (updates, attributes.old) else { return Ok(()) };
        let size = |claim: &Value| claim.at(&["spec", "resources", "requests", "storage"]).and_then(quantity);
        if size(claim).unwrap_or_default() <= size(old).unwrap_or_default() {
            return Ok(());
        }
        if old.str_at(&["status", "phase"]) != Some("Bound") {
            return Err(attributes.forbidden(claim, "Only bound persistent volume claims can be expanded"));
        }
        let (class, before) = (class_of(claim), class_of(old));
        let can_grow = || {
            let class = view.object(STORAGE_CLASSES, "", class);
            class.is_some_and(|class| class["allowVolumeExpansion"] == Value::Bool(true))
        };
        if class.is_empty() || class != before || !can_grow() {
            let message = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc \
                       must support resize";
            return Err(attributes.forbidden(claim, message));
        }
        Ok(())
    }
}

fn class_of(claim: &Value) -> &str {
    let old_way = Meta::of(claim).annotation("volume.beta.kubernetes.io/storage-class");
    old_way.unwrap_or_else(|| spec(claim).text_at(&["storageClassName"]))
}
