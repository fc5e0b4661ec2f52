//! Zero-copy views of objects, with the facts about them that several components need. Each fact is computed here only.
//!
//! A view borrows an object and reads its fields on demand. Reading never fails: a field that is absent or has the
//! wrong type reads as absent, because the API server has validated the object.

mod condition;
mod container;
mod lifecycle;
mod node;
mod node_selector;
mod pod;
mod qos;
mod requests;
mod service;
mod toleration;

pub use condition::{condition, condition_status, has_condition};
pub use container::{Container, RestartPolicy, Role};
pub use node::Node;
pub use node_selector::{NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm};
pub use pod::{CONFIG_HASH, CONFIG_MIRROR, CONFIG_SOURCE, Pod, PodSpec};
pub use qos::QosClass;
pub use requests::AmountsFrom;
pub use service::{Endpoint, EndpointSlice, SERVICE_NAME, Service};
pub use toleration::{Taint, Toleration};
