//! The kinds of storage.k8s.io.

pub mod csi_driver;
pub mod csi_node;
pub mod csi_storage_capacity;
pub mod storage_class;
pub mod volume_attachment;
pub mod volume_attributes_class;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[
    csi_driver::kind,
    csi_node::kind,
    csi_storage_capacity::kind,
    storage_class::kind,
    volume_attachment::kind,
    volume_attributes_class::kind,
];
