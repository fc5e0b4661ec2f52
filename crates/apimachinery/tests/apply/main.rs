//! Tests of server-side apply: tables of examples, and property tests.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod notation;
mod properties;
mod scenario;
mod typed;
mod writes;
