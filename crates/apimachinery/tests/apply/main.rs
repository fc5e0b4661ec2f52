//! Tests of server-side apply: tables of examples, and property tests.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod notation;
mod properties;
mod scenario;
mod typed;
mod writes;
