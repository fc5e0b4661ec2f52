//! StorageObjectInUseProtection: adds the protection finalizer to volumes, claims and VolumeAttributesClasses.

use api::resources::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, VOLUME_ATTRIBUTES_CLASSES};
use apimachinery::GroupResource;
use apimachinery::Value;
use apimachinery::meta::MetaMut;
use apimachinery::status::Status;

use super::{Attributes, Notes, Plugin, View};

const FINALIZERS: [(GroupResource, &str); 3] = [
    (PERSISTENT_VOLUMES, "kubernetes.io/pv-protection"),
    (PERSISTENT_VOLUME_CLAIMS, "kubernetes.io/pvc-protection"),
    (VOLUME_ATTRIBUTES_CLASSES, "kubernetes.io/vac-protection"),
];

pub(crate) struct StorageObjectInUseProtection;

impl Plugin for StorageObjectInUseProtection {
    fn admit(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        _: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let row = FINALIZERS.iter().find(|(resource, _)| attributes.creates(*resource));
        if let (Some((_, finalizer)), Some(mut meta)) = (row, MetaMut::of(object)) {
            meta.add_finalizer(finalizer);
        }
        Ok(())
    }
}
