//! `cargo xtask licenses`: the dependency policy in `deny.toml`, and the licence texts of the binary's dependencies.

mod graph;
mod policy;
mod spdx;
mod texts;

use std::fs;

use anyhow::{Context, bail, ensure};

use crate::root;
use graph::Graph;
use policy::Policy;

/// The file that `knarr licenses` prints.
const FILE: &str = "THIRD_PARTY_LICENSES";

/// Checks all dependencies against the policy, then writes the licences of those in the binary. With `--check`,
/// compares them with the file instead.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let only_check = match args {
        [] => false,
        [arg] if arg == "--check" => true,
        _ => bail!("usage: cargo xtask licenses [--check]"),
    };
    let root = root();
    let text = fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;
    let policy = Policy::parse(&text).context("deny.toml")?;
    let graph = Graph::read(&root, &policy.targets)?;
    let findings = policy.check(&graph);
    for finding in &findings {
        eprintln!("{finding}");
    }
    ensure!(findings.is_empty(), "{} dependencies violate deny.toml", findings.len());
    let shipped = graph.shipped();
    let texts = texts::collect(&root, &shipped, &policy)?;
    let path = root.join(FILE);
    if only_check {
        let found =
            fs::read_to_string(&path).with_context(|| format!("cannot read {FILE}; run `cargo xtask licenses`"))?;
        ensure!(found == texts, "{FILE} is outdated; run `cargo xtask licenses`");
    } else {
        fs::write(&path, &texts).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!(
        "{} dependencies comply with deny.toml; {FILE} has the licences of the {} in the binary",
        graph.third_party().count(),
        shipped.len()
    );
    Ok(())
}
