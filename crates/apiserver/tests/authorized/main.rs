//! What was authorized is what runs: a property test over methods, URLs, kinds and roles, and the requests that once broke it.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod cluster;
mod matrix;
mod requests;
mod samples;
