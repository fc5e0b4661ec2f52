//! API verb semantics: pure functions from a request and a view to a response and a store transaction.

pub mod accept;
pub mod admission;
pub mod aggregation;
pub mod binding;
pub mod body;
pub mod condition;
pub mod connect;
pub mod conversion;
pub mod deletion;
pub mod eviction;
pub mod options;
pub mod paging;
pub mod query;
pub mod route;
pub mod scale;
pub mod selection;
pub mod write;
