//! The container runtime from outside: the real binary, real containers, a CRI client. Needs root; says so and passes without.

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
