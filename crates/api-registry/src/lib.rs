//! API verb semantics: pure functions from a request and a view of the store to the object to write or the response.
//!
//! # Invariants
//!
//! - Stored objects have one normal form: empty lists and maps are dropped, as in upstream's storage. *Enforced by*
//!   `empty_lists_and_maps_are_dropped_when_stored`, `dry_run_claims_no_node_port_and_empty_lists_are_stored_as_null`.

pub mod aggregation;
pub mod binding;
pub mod condition;
pub mod connect;
pub mod conversion;
pub mod decode;
pub mod deletion;
pub mod eviction;
pub mod negotiate;
pub mod options;
pub mod paging;
pub mod query;
pub mod request_info;
pub mod scale;
pub mod selection;
pub mod strategy;
