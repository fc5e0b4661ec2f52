//! Controllers, leader election and events against a model of the API server, in virtual time.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod api;
mod controllers;
mod election;
