//! What each verb of the API means: pure functions from a request and a view to an answer and a store transaction.

pub mod body;
pub mod conversion;
pub mod write;
