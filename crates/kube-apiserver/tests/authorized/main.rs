//! Authorization tests: the authorized verb is the one that runs. A property test over methods, URLs, kinds and roles,
//! and regressions.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod cluster;
mod matrix;
mod requests;
mod samples;
