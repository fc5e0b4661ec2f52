//! StorageObjectInUseProtection: adds the protection finalizer to volumes, claims and VolumeAttributesClasses.

use apimachinery::Value;
use apimachinery::meta::MetaMut;
use apimachinery::status::Status;

use super::{Attributes, Notes, Plugin, View};

const FINALIZERS: [(&str, &str, &str); 3] = [
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    ("storage.k8s.io", "volumeattributesclasses", "kubernetes.io/vac-protection"),
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
        let row = FINALIZERS.iter().find(|(group, plural, _)| attributes.creates(group, plural));
        if let (Some((_, _, finalizer)), Some(mut meta)) = (row, MetaMut::of(object)) {
            meta.add_finalizer(finalizer);
        }
        Ok(())
    }
}
