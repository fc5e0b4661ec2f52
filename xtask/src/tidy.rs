//! `cargo xtask tidy`: project rules that the compiler does not check, such as layers, purity and file lengths.

mod blocking;
mod cves;
mod cycles;
mod deviations;
mod documents;
mod language;
mod layers;
mod sources;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::root;

/// All text files tracked by git, by their path from the root. Pictures, which documents link to, have no text.
pub(crate) struct Tree {
    root: PathBuf,
    pub files: BTreeMap<String, String>,
}

/// Runs all checks. With `--fix`, rewrites generated files first.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let fix = match args {
        [] => false,
        [arg] if arg == "--fix" => true,
        _ => bail!("usage: cargo xtask tidy [--fix]"),
    };
    let mut tree = Tree::read(root())?;
    if fix {
        cves::write(&mut tree)?;
        deviations::write(&mut tree)?;
        layers::write_clippy_tables(&mut tree)?;
        layers::write_picture(&mut tree)?;
    }
    let mut findings = Vec::new();
    layers::check(&tree, &mut findings)?;
    sources::check(&tree, &mut findings);
    cves::check(&tree, &mut findings);
    cycles::check(&tree, &mut findings);
    blocking::check(&tree, &mut findings);
    deviations::check(&tree, &mut findings);
    documents::check(&tree, &mut findings);
    language::check(&tree, &mut findings);
    crate::dashboard::check(&tree.files, &mut findings);
    for finding in &findings {
        eprintln!("{finding}");
    }
    ensure!(findings.is_empty(), "{} findings", findings.len());
    println!("{} files are tidy", tree.files.len());
    Ok(())
}

impl Tree {
    pub(crate) fn read(root: PathBuf) -> anyhow::Result<Self> {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&root)
            .output()
            .context("cannot list files: is git installed?")?;
        ensure!(listed.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr));
        let files = String::from_utf8(listed.stdout)?
            .split_terminator('\0')
            .filter_map(|path| match std::fs::read_to_string(root.join(path)) {
                Ok(text) => Some((path.to_owned(), text)),
                Err(_) => path.ends_with(".png").then(|| (path.to_owned(), String::new())),
            })
            .collect();
        Ok(Self { root, files })
    }

    fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter(|(path, _)| path.ends_with(".rs")).map(|(path, text)| (path.as_str(), text.as_str()))
    }

    fn write(&mut self, path: &str, text: String) -> anyhow::Result<()> {
        let target = self.root.join(path);
        std::fs::create_dir_all(target.parent().unwrap_or(Path::new(".")))?;
        std::fs::write(&target, &text).with_context(|| format!("cannot write {path}"))?;
        self.files.insert(path.to_owned(), text);
        Ok(())
    }
}
