//! `deny.toml`: the allowed licences, crates and sources of dependencies.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use toml_edit::{DocumentMut, Item, Table, Value};

use super::graph::{Graph, Package};
use super::spdx::Expression;

/// The parsed `deny.toml`.
#[derive(Debug, Default)]
pub(super) struct Policy {
    /// Targets for which dependencies are resolved.
    pub targets: Vec<String>,
    allowed: Vec<String>,
    /// Additional licences by crate.
    exceptions: BTreeMap<String, Vec<String>>,
    /// Licence expressions of crates whose manifest has none.
    clarified: BTreeMap<String, String>,
    banned: BTreeSet<String>,
    registries: BTreeSet<String>,
}

impl Policy {
    /// Fails on sections and keys that are not enforced here.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let document: DocumentMut = text.parse()?;
        let mut policy = Self::default();
        for (section, item) in document.iter() {
            let table = item.as_table().with_context(|| format!("{section} is not a table"))?;
            for (key, item) in table {
                policy.set(section, key, item).with_context(|| format!("{section}.{key}"))?;
            }
        }
        Ok(policy)
    }

    fn set(&mut self, section: &str, key: &str, item: &Item) -> anyhow::Result<()> {
        match (section, key) {
            ("graph", "targets") => self.targets = strings(item)?,
            ("licenses", "allow") => self.allowed = strings(item)?,
            ("licenses", "exceptions") => {
                for value in item.as_array().context("is not an array")? {
                    let table = value.as_inline_table().context("has an entry that is not a table")?;
                    let name = table.get("name").and_then(Value::as_str).context("has an entry without a name")?;
                    let allow = table.get("allow").cloned().context("has an entry without `allow`")?;
                    self.exceptions.insert(name.to_owned(), strings(&Item::Value(allow))?);
                }
            }
            ("licenses", "clarify") => {
                for table in item.as_array_of_tables().context("is not an array of tables")? {
                    self.clarified.insert(text(table, "name")?, text(table, "expression")?);
                }
            }
            ("bans", "deny") => {
                for value in item.as_array().context("is not an array")? {
                    let name = value.as_inline_table().and_then(|table| table.get("name")).and_then(Value::as_str);
                    self.banned.insert(name.context("has an entry without a name")?.to_owned());
                }
            }
            ("sources", "allow-registry") => self.registries = strings(item)?.into_iter().collect(),
            ("sources", "unknown-registry" | "unknown-git") if item.as_str() == Some("deny") => {}
            _ => bail!("is not enforced by this check"),
        }
        Ok(())
    }

    /// Returns a message for every dependency that violates a rule.
    pub(super) fn check(&self, graph: &Graph) -> Vec<String> {
        graph.third_party().filter_map(|package| Some((package, self.finding(package)?))).map(describe).collect()
    }

    fn finding(&self, package: &Package) -> Option<String> {
        if self.banned.contains(&package.name) {
            return Some("is banned".to_owned());
        }
        let source = package.source.as_deref().unwrap_or("a directory");
        if !source.strip_prefix("registry+").is_some_and(|registry| self.registries.contains(registry)) {
            return Some(format!("comes from {source}, which is not an allowed registry"));
        }
        if self.license(package).is_none() {
            let license = package.license.as_deref().unwrap_or("no licence expression");
            return Some(format!("has {license}, which is not allowed"));
        }
        None
    }

    /// Returns the licences under which a package is distributed, or `None` if none of its choices is allowed.
    pub(super) fn license(&self, package: &Package) -> Option<BTreeSet<String>> {
        let expression = self.clarified.get(&package.name).or(package.license.as_ref())?;
        let mut allowed = self.allowed.clone();
        allowed.extend(self.exceptions.get(&package.name).into_iter().flatten().cloned());
        let expression = Expression::parse(expression)?;
        Some(expression.choose(&allowed)?.into_iter().map(str::to_owned).collect())
    }
}

fn describe((package, finding): (&Package, String)) -> String {
    format!("{} {}: {finding}", package.name, package.version)
}

fn strings(item: &Item) -> anyhow::Result<Vec<String>> {
    let array = item.as_array().context("is not an array")?;
    array.iter().map(|value| value.as_str().map(str::to_owned).context("has an entry that is not a string")).collect()
}

fn text(table: &Table, key: &str) -> anyhow::Result<String> {
    let value = table.get(key).and_then(Item::as_str);
    value.map(str::to_owned).with_context(|| format!("has an entry without `{key}`"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

    fn findings(name: &str, license: Option<&str>, source: Option<&str>) -> Vec<String> {
        let policy = Policy::parse(
            r#"
            [licenses]
            allow = ["Apache-2.0", "MIT"]
            exceptions = [{ name = "excepted", allow = ["MPL-2.0"] }]
            [[licenses.clarify]]
            name = "clarified"
            expression = "MIT"
            [bans]
            deny = [{ name = "banned" }]
            [sources]
            unknown-git = "deny"
            allow-registry = ["https://github.com/rust-lang/crates.io-index"]
            "#,
        )
        .unwrap();
        let package = json!({"id": "x", "name": name, "version": "1.0.0", "license": license, "source": source, "manifest_path": "/x/Cargo.toml"});
        let metadata = json!({"packages": [package], "workspace_members": []});
        policy.check(&Graph::of(&metadata, &format!("{name} v1.0.0"), "").unwrap())
    }

    #[test]
    fn registry_crate_with_an_allowed_licence_passes() {
        assert_eq!(findings("a", Some("MIT OR GPL-3.0"), Some(CRATES_IO)), [""; 0]);
        assert_eq!(findings("clarified", None, Some(CRATES_IO)), [""; 0]);
        assert_eq!(findings("excepted", Some("MPL-2.0 OR LGPL-3.0-or-later"), Some(CRATES_IO)), [""; 0]);
    }

    #[test]
    fn licences_bans_and_sources_are_enforced() {
        assert_eq!(findings("a", Some("GPL-3.0"), Some(CRATES_IO)).len(), 1);
        assert_eq!(findings("a", Some("MPL-2.0"), Some(CRATES_IO)).len(), 1);
        assert_eq!(findings("a", None, Some(CRATES_IO)).len(), 1);
        assert_eq!(findings("banned", Some("MIT"), Some(CRATES_IO)).len(), 1);
        assert_eq!(findings("a", Some("MIT"), Some("git+https://example.org/a")).len(), 1);
        assert_eq!(findings("a", Some("MIT"), None).len(), 1);
    }

    #[test]
    fn unknown_policy_key_is_an_error() {
        assert!(Policy::parse("[bans]\nmultiple-versions = \"deny\"").is_err());
        assert!(Policy::parse("[sources]\nunknown-git = \"allow\"").is_err());
    }
}
