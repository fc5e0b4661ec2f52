//! DeviceTaintRule: devices to keep away from.

use machinery::meta::Scope;

use crate::kind::{Kind, Subresource};

/// The row of DeviceTaintRule.
pub fn kind() -> Kind {
    let mut kind = Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        ..Kind::stored("resource.k8s.io", "v1beta2", "DeviceTaintRule", "devicetaintrules").with_beta("v1alpha3")
    };
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}
