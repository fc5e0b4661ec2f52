//! The bodies of the fuzz targets: cargo-fuzz runs them on what it makes up, and a test replays the committed corpora.
//!
//! To add the target `x`:
//!
//! 1. `crates/fuzzing/src/x.rs` with `pub fn check(input: &[u8])`, which panics on a finding, and its row in [`TARGETS`];
//! 2. `fuzz/fuzz_targets/x.rs`, which calls it, and its `[[bin]]` in `fuzz/Cargo.toml`;
//! 3. `fuzz/corpus/x/` with a few small inputs, at least one of them for every finding that there was.

pub mod impersonation;
pub mod request_info;

/// A target by its name, which its corpus and its program share.
pub type Target = (&'static str, fn(&[u8]));

/// All targets that have a corpus.
pub const TARGETS: &[Target] = &[("impersonation", impersonation::check), ("request_info", request_info::check)];
