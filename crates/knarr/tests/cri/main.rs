//! End-to-end tests of the container runtime: the real binary, real containers, a CRI client.
//!
//! The tests need root.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

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
