//! End-to-end tests of the container runtime: the real binary, real containers, a CRI client.
//!
//! Without root the tests are skipped with a message.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod cves;
mod hostile;
#[path = "../common/leftovers.rs"]
mod leftovers;
mod life;
mod machine;
mod peers;
mod security;
mod stdio;
mod streams;
mod survival;
