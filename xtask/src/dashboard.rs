//! `cargo xtask dashboard`: builds the dashboard's user interface into the assets that the binary embeds.

use std::path::Path;

use anyhow::{Context, bail};

use crate::process::{exec, on_path};
use crate::root;

/// The sources of the user interface.
const UI: &str = "crates/dashboard/ui/";
/// The record of the sources from which the assets were built, which `cargo xtask tidy` compares.
const RECORD: &str = "crates/dashboard/assets/sources.txt";
/// Files that do not affect the assets.
const UNUSED: &[&str] = &["tests/", "THIRD_PARTY_LICENSES", ".gitignore"];

/// Builds the assets. With `--check`, compares the result of a build with them instead. With `--test`, runs the unit
/// tests of the user interface.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => build(&[]),
        ["--check"] => {
            build(&["--check"])?;
            test()
        }
        ["--test"] => {
            install()?;
            test()
        }
        _ => bail!("usage: cargo xtask dashboard [--check | --test]"),
    }
}

fn build(pack: &[&str]) -> anyhow::Result<()> {
    install()?;
    npm(&["run", "build"])?;
    let script = format!("{UI}pack.mjs");
    let mut args = vec![script.as_str()];
    args.extend(pack);
    exec("node", &args, &[])?;
    if pack.is_empty() {
        let root = root();
        let tree = crate::tidy::Tree::read(root.clone())?;
        let record = record(tree.files.iter().map(|(path, text)| (path.as_str(), text.as_str())));
        std::fs::write(root.join(RECORD), record).with_context(|| format!("cannot write {RECORD}"))?;
    }
    Ok(())
}

/// Installs the packages of `package-lock.json` and leaves that file unchanged. Their install scripts are not run.
///
/// `npm ci` would reject a lock file without the optional packages of other platforms, which not every registry has.
fn install() -> anyhow::Result<()> {
    npm(&["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"])
}

fn test() -> anyhow::Result<()> {
    npm(&["test"])
}

fn npm(args: &[&str]) -> anyhow::Result<()> {
    anyhow::ensure!(on_path("npm"), "npm is missing; install Node.js");
    let mut all = vec!["--prefix", UI.trim_end_matches('/')];
    all.extend(args);
    exec("npm", &all, &[])
}

/// Returns one line with path and hash for each source file.
fn record<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let sources = files.filter_map(|(path, text)| Some((path.strip_prefix(UI)?, text)));
    let used = sources.filter(|(path, _)| !UNUSED.iter().any(|unused| path.starts_with(unused)));
    used.map(|(path, text)| format!("{:016x} {path}\n", fnv1a(text.as_bytes()))).collect()
}

/// Returns the FNV-1a hash, which is enough to notice a forgotten build.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Checks that the assets were built from the present sources.
pub(crate) fn check(files: &std::collections::BTreeMap<String, String>, findings: &mut Vec<String>) {
    let record = record(files.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    if !record.is_empty() && files.get(RECORD) != Some(&record) {
        let dir = Path::new(RECORD).parent().unwrap_or(Path::new(""));
        findings.push(format!("{}: outdated; run `cargo xtask dashboard`", dir.display()));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn assets_of_changed_sources_are_found() {
        let source = ("crates/dashboard/ui/src/main.tsx", "a");
        let record = record([source, ("crates/dashboard/ui/tests/a.mjs", "b"), ("README.md", "c")].into_iter());
        assert_eq!(record, "af63dc4c8601ec8c src/main.tsx\n");
        let expect_findings = |text: &str, expect: usize| {
            let mut findings = Vec::new();
            let files = [(source.0, text), (RECORD, record.as_str())];
            let files: BTreeMap<String, String> = files.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
            check(&files, &mut findings);
            assert_eq!(findings.len(), expect);
        };
        expect_findings("a", 0);
        expect_findings("changed", 1);
    }
}
