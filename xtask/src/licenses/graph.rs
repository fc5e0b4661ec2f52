//! Third-party packages of the workspace and of the binary.
//!
//! `cargo metadata` has the details of packages but includes those that no feature enables; `cargo tree` lists the
//! packages that are built.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

/// The package whose dependencies are shipped.
const BINARY: &str = "knarr";

/// Build dependencies whose text is embedded in the binary: the descriptions of API types.
const EMBEDDED: &[&str] = &["k8s-openapi"];

/// A third-party package.
#[derive(Debug, Clone)]
pub(super) struct Package {
    pub name: String,
    pub version: String,
    /// An SPDX expression.
    pub license: Option<String>,
    /// Source as in Cargo.lock; `None` for a directory.
    pub source: Option<String>,
    pub repository: Option<String>,
    pub authors: Vec<String>,
    pub dir: PathBuf,
    /// Whether the package builds a library of another language.
    pub is_native: bool,
}

pub(super) struct Graph {
    used: Vec<Package>,
    shipped: BTreeSet<(String, String)>,
}

impl Graph {
    pub(super) fn read(root: &Path, targets: &[String]) -> anyhow::Result<Self> {
        let metadata = cargo(root, "metadata", &["--format-version", "1", "--locked"])?;
        let metadata = serde_json::from_str(&metadata).context("cargo metadata did not print JSON")?;
        let tree = |args: &[&str]| {
            let mut args = [&["--locked", "--prefix", "none", "--format", "{p}"], args].concat();
            args.extend(targets.iter().flat_map(|target| ["--target", target]));
            cargo(root, "tree", &args)
        };
        let used = tree(&["--workspace", "--edges", "normal,build,dev"])?;
        let shipped = tree(&["--package", BINARY, "--edges", "normal"])?;
        Self::of(&metadata, &used, &shipped)
    }

    /// Parses the output of `cargo metadata`, and of `cargo tree` for the workspace and for the binary.
    pub(super) fn of(metadata: &Value, used: &str, shipped: &str) -> anyhow::Result<Self> {
        let listed = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
        let members: BTreeSet<&str> =
            metadata["workspace_members"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let third_party =
            listed.iter().filter(|package| !package["id"].as_str().is_some_and(|id| members.contains(id)));
        let packages =
            third_party.map(package).collect::<Option<BTreeMap<_, _>>>().context("a package without a name")?;
        let used = parse_tree(used);
        let used = packages.into_iter().filter(|(id, _)| used.contains(id)).map(|(_, package)| package).collect();
        Ok(Self { used, shipped: parse_tree(shipped) })
    }

    /// Returns every package that is built for the workspace, its tests and its build scripts, sorted by name and
    /// version.
    pub(super) fn third_party(&self) -> impl Iterator<Item = &Package> {
        self.used.iter()
    }

    /// Returns the packages that the binary contains.
    pub(super) fn shipped(&self) -> Vec<&Package> {
        let is_shipped = |package: &&Package| {
            EMBEDDED.contains(&package.name.as_str())
                || self.shipped.contains(&(package.name.clone(), package.version.clone()))
        };
        self.used.iter().filter(is_shipped).collect()
    }
}

fn cargo(root: &Path, command: &str, args: &[&str]) -> anyhow::Result<String> {
    let cargo = Command::new("cargo").arg(command).args(args).current_dir(root).output();
    let output = cargo.with_context(|| format!("cannot start cargo {command}"))?;
    ensure!(output.status.success(), "cargo {command} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Parses names and versions from lines such as `anyhow v1.0.100 (*)`.
fn parse_tree(tree: &str) -> BTreeSet<(String, String)> {
    let line = |line: &str| {
        let mut fields = line.split_whitespace();
        let (name, version) = (fields.next()?, fields.next()?.strip_prefix('v')?);
        Some((name.to_owned(), version.to_owned()))
    };
    tree.lines().filter_map(line).collect()
}

fn package(value: &Value) -> Option<((String, String), Package)> {
    let text = |field: &str| value[field].as_str().map(str::to_owned);
    let manifest = PathBuf::from(text("manifest_path")?);
    let package = Package {
        name: text("name")?,
        version: text("version")?,
        license: text("license"),
        source: text("source"),
        repository: text("repository"),
        authors: value["authors"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        dir: manifest.parent()?.to_path_buf(),
        is_native: value["links"].is_string(),
    };
    Some(((package.name.clone(), package.version.clone()), package))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn packages_that_no_feature_enables_are_not_dependencies() {
        let package =
            |name: &str| json!({"id": name, "name": name, "version": "1.0.0", "manifest_path": "/x/Cargo.toml"});
        let metadata = json!({
            "packages": [package("knarr"), package("shipped"), package("for-tests"), package("not-enabled")],
            "workspace_members": ["knarr"],
        });
        let (used, shipped) =
            ("knarr v1.0.0 (/x)\nshipped v1.0.0\nfor-tests v1.0.0\n", "knarr v1.0.0 (/x)\nshipped v1.0.0 (*)\n");
        let graph = Graph::of(&metadata, used, shipped).unwrap();
        assert_eq!(graph.third_party().map(|package| &package.name).collect::<Vec<_>>(), ["for-tests", "shipped"]);
        assert_eq!(graph.shipped().iter().map(|package| &package.name).collect::<Vec<_>>(), ["shipped"]);
    }
}
