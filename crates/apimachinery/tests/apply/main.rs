//! Tests of server-side apply: tables of examples, and property tests.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod laws;
mod notation;
mod story;
mod typed;
mod writes;
