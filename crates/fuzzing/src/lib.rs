//! The bodies of the fuzz targets. cargo-fuzz runs them on generated inputs, and a test replays the committed corpora.
//!
//! To add the target `x`:
//!
//! 1. a function that takes the input and panics on a finding, here or in the crate whose private items it needs, and
//!    its row in [`TARGETS`];
//! 2. `fuzz/fuzz_targets/x.rs`, which calls `check("x", input)`, and its `[[bin]]` in `fuzz/Cargo.toml`;
//! 3. `fuzz/corpus/x/` with a few small inputs, at least one for every past finding.

pub mod impersonation;
pub mod ingress_http1;
pub mod request_info;

/// Name of a target, which its corpus and its binary share, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets that have a corpus.
pub const TARGETS: &[Target] = &[
    ("csr", api::certificates::agreement::check),
    ("impersonation", impersonation::check),
    ("ingress_http1", ingress_http1::check),
    ("peer_frames", store::fuzz::peer_frames),
    ("regexp", apimachinery::regexp::fuzz::check),
    ("request_info", request_info::check),
    ("spdy", streaming::spdy::fuzz::check),
    ("unpack", image_store::canary::check),
    ("wal_frames", store::fuzz::wal_frames),
];

/// Runs a target on an input.
///
/// # Panics
/// On a finding, or if no such target exists.
pub fn check(target: &str, input: &[u8]) {
    let (_, check) = TARGETS.iter().find(|(name, _)| *name == target).expect("a target of the table");
    check(input);
}
