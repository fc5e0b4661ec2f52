//! The gRPC protocols of a node: CRI between kubelet and container runtime, and the protocols of the kubelet's plugins.
//!
//! The messages and services in `proto/` follow the packages of Kubernetes and CSI, whose names are part of every call.

pub mod cri;

/// Plugin registration: package `pluginregistration`.
#[expect(clippy::allow_attributes, clippy::too_many_lines, unused_qualifications, reason = "generated code")]
pub mod registration {
    tonic::include_proto!("pluginregistration");
}

/// Device plugins: package `v1beta1`.
#[expect(clippy::allow_attributes, clippy::too_many_lines, unused_qualifications, reason = "generated code")]
pub mod devices {
    tonic::include_proto!("v1beta1");
}

/// Dynamic resource allocation: package `k8s.io.kubelet.pkg.apis.dra.v1`.
#[expect(clippy::allow_attributes, clippy::too_many_lines, unused_qualifications, reason = "generated code")]
pub mod dra {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
}

/// CSI node plugins: package `csi.v1`.
#[expect(clippy::allow_attributes, clippy::too_many_lines, unused_qualifications, reason = "generated code")]
pub mod csi {
    tonic::include_proto!("csi.v1");
}

/// Pod resources API: package `v1`.
#[expect(clippy::allow_attributes, clippy::too_many_lines, unused_qualifications, reason = "generated code")]
pub mod pod_resources {
    tonic::include_proto!("v1");
}
