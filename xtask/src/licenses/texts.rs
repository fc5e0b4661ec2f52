//! `THIRD_PARTY_LICENSES`: the licence of each package, and the required licence texts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

use super::graph::Package;
use super::policy::Policy;

/// The licence whose text is included once, from the project's own file. It requires only NOTICE files per package.
const APACHE: &str = "Apache-2.0";

/// The licences of the npm packages in the dashboard, which `cargo xtask dashboard` writes.
const DASHBOARD: &str = "crates/dashboard/ui/THIRD_PARTY_LICENSES";

/// Maximum directory depth for licences of bundled libraries in other languages.
const DEPTH_MAX: usize = 3;

/// Text for a package with this licence but without a licence file.
const MIT: &str = "Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation
files (the \"Software\"), to deal in the Software without restriction, including without limitation the rights to use, copy,
modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software
is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES
OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE
LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
";

const RULE: &str = "================================================================================";

/// Returns the content of the file. It depends only on the packages.
pub(super) fn collect(root: &Path, packages: &[&Package], policy: &Policy) -> anyhow::Result<String> {
    let mut file = String::from(
        "Third-party software in the knarr binary\n\n\
         Knarr itself is under the Apache License 2.0. The binary also contains the packages below, each under the licence that\n\
         stands beside it, and the Rust standard library (Apache-2.0). The source of every package is on crates.io, unchanged,\n\
         under its name and version. Written by `cargo xtask licenses`.\n\n",
    );
    let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages {
        let name = format!("{} {}", package.name, package.version);
        let licenses = policy.license(package).with_context(|| format!("{name} has no allowed licence"))?;
        let license_text = licenses.iter().map(String::as_str).collect::<Vec<_>>().join(" AND ");
        writeln!(file, "{name}  {license_text}  {}", package.repository.as_deref().unwrap_or("crates.io"))?;
        for text in texts(package, &licenses).with_context(|| name.clone())? {
            owners.entry(text).or_default().insert(name.clone());
        }
    }
    // Sorted by the first package of each text.
    let mut sections: Vec<(&BTreeSet<String>, &String)> = owners.iter().map(|(text, names)| (names, text)).collect();
    sections.sort();
    for (names, text) in sections {
        let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        write!(file, "\n{RULE}\n{names}\n{RULE}\n\n{text}")?;
    }
    let dashboard = fs::read_to_string(root.join(DASHBOARD)).with_context(|| format!("cannot read {DASHBOARD}"))?;
    write!(file, "\n{RULE}\nnpm packages in the dashboard\n{RULE}\n\n{}", normalized(&dashboard))?;
    let apache = fs::read_to_string(root.join("LICENSE")).context("cannot read LICENSE")?;
    write!(file, "\n{RULE}\nEverything under {APACHE}\n{RULE}\n\n{}", normalized(&apache))?;
    Ok(file)
}

/// Returns the texts that must be distributed with a package.
fn texts(package: &Package, licenses: &BTreeSet<String>) -> anyhow::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let depth = if package.is_native { DEPTH_MAX } else { 1 };
    let is_apache_alone = licenses.len() == 1 && licenses.contains(APACHE);
    read(&package.dir, depth, package.is_native || !is_apache_alone, &mut found)?;
    // A package with several licences has the texts of all. The Apache License is included once at the end.
    found.retain(|text| !is_apache_license(text) && !is_gnu_license(text));
    if !is_apache_alone && found.is_empty() {
        let missing: Vec<&String> = licenses.iter().filter(|license| *license != APACHE).collect();
        if missing.iter().any(|license| *license != "MIT") {
            bail!("has no file with the text of {missing:?}");
        }
        let authors = if package.authors.is_empty() {
            format!("the authors of {}", package.name)
        } else {
            package.authors.join(", ")
        };
        found.insert(format!("MIT License\n\nCopyright (c) {authors}\n\n{MIT}"));
    }
    Ok(found)
}

/// Reads notices, and licences if `with_licenses` is set.
fn read(dir: &Path, depth: usize, with_licenses: bool, found: &mut BTreeSet<String>) -> anyhow::Result<()> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let is_license =
            ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "UNLICENSE"].iter().any(|word| name.starts_with(word));
        let is_included = name.starts_with("NOTICE") || with_licenses && is_license && !name.contains("APACHE");
        let kind = entry.file_type()?;
        if kind.is_dir() && depth > 1 {
            read(&entry.path(), depth - 1, with_licenses, found)?;
        } else if kind.is_file() && is_included && !name.ends_with(".RS") && !name.ends_with(".PY") {
            let text = fs::read(entry.path()).with_context(|| format!("cannot read {}", entry.path().display()))?;
            found.insert(normalized(&String::from_utf8_lossy(&text)));
        }
    }
    Ok(())
}

/// Normalizes line endings, trailing spaces and surrounding empty lines.
fn normalized(text: &str) -> String {
    let lines: Vec<&str> = text.trim_start_matches('\u{feff}').lines().map(str::trim_end).collect();
    format!("{}\n", lines.join("\n").trim_matches('\n'))
}

/// Whether the text is only the Apache License.
fn is_apache_license(text: &str) -> bool {
    let start: String = text.split_whitespace().take(6).collect::<Vec<_>>().join(" ");
    start.starts_with("Apache License Version 2.0, January 2004") && text.len() < 12_500
}

/// Whether the text is a GNU licence, which the policy never chooses.
fn is_gnu_license(text: &str) -> bool {
    text.trim_start().starts_with("GNU ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_endings_are_normalized() {
        assert_eq!(normalized("\u{feff}\r\nA  \r\nB\r\n\r\n"), "A\nB\n");
    }

    #[test]
    fn only_plain_apache_license_texts_are_skipped() {
        assert!(is_apache_license("    Apache License\n  Version 2.0, January 2004\n"));
        assert!(!is_apache_license("MIT License\n"));
        assert!(!is_apache_license(&format!("Apache License\nVersion 2.0, January 2004\n{}", "more ".repeat(3000))));
    }
}
