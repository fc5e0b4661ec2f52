//! DeviceClass: a sort of device.

use machinery::meta::Scope;

use crate::kind::{Kind, UpdateChecks};

/// The row of DeviceClass.
pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        returns_deleted: true,
        update_checks: UpdateChecks { whole: 1, change: 1 },
        ..Kind::stored("resource.k8s.io", "v1", "DeviceClass", "deviceclasses")
            .with_beta("v1beta2")
            .with_beta("v1beta1")
    }
}
