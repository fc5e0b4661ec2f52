//! Controllers, leader election and events against a model of the API server, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod api;
mod controllers;
mod election;
