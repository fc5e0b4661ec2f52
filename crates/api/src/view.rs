//! Zero-copy views of objects, with the facts about them that several components need. Each fact is computed here only.
//!
//! A view borrows an object and reads its fields on demand. Reading never fails: a field that is absent or has the
//! wrong type reads as absent, because the API server has validated the object.

mod container;
mod pod;
mod qos;
mod requests;

pub use container::{Container, RestartPolicy, Role};
pub use pod::{CONFIG_HASH, CONFIG_MIRROR, CONFIG_SOURCE, Pod, PodSpec};
pub use qos::QosClass;
pub use requests::AmountsFrom;
