//! The protocols between a kubelet and the plug-ins of its node, each as the service that one side serves and the other calls.
//!
//! The messages and services are described in `proto/` by the facts of Kubernetes' and CSI's own packages, whose names are part
//! of every call.

/// How a plug-in says that it is there: package `pluginregistration`.
#[expect(missing_docs, reason = "the protocol's own names")]
#[expect(clippy::allow_attributes, clippy::too_many_lines, unused_qualifications, reason = "generated code")]
pub mod registration {
    tonic::include_proto!("pluginregistration");
}

/// Devices: package `v1beta1`.
#[expect(missing_docs, reason = "the protocol's own names")]
#[expect(clippy::allow_attributes, clippy::too_many_lines, unused_qualifications, reason = "generated code")]
pub mod devices {
    tonic::include_proto!("v1beta1");
}

/// Dynamic resources: package `k8s.io.kubelet.pkg.apis.dra.v1`.
#[expect(missing_docs, reason = "the protocol's own names")]
#[expect(clippy::allow_attributes, clippy::too_many_lines, unused_qualifications, reason = "generated code")]
pub mod dra {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
}

/// Storage, the part of it that is on a node: package `csi.v1`.
#[expect(missing_docs, reason = "the protocol's own names")]
#[expect(clippy::allow_attributes, clippy::too_many_lines, unused_qualifications, reason = "generated code")]
pub mod csi {
    tonic::include_proto!("csi.v1");
}

/// What pods were given: package `v1`.
#[expect(missing_docs, reason = "the protocol's own names")]
#[expect(clippy::allow_attributes, clippy::too_many_lines, unused_qualifications, reason = "generated code")]
pub mod pod_resources {
    tonic::include_proto!("v1");
}
