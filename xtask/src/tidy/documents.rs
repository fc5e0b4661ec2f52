//! Checks of documents: valid links, existing tests of the crates' invariants, translations with the same structure.

use super::Tree;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const ARCHITECTURE_BYTES_MAX: usize = 20_480;

/// Documents and their translations.
const TRANSLATED: &[(&str, &str)] = &[("README.md", "README.ko.md")];

/// Heading of the invariants in the docs of a crate.
const INVARIANTS: &str = "# Invariants";

/// Marker of an invariant's enforcement: *Enforced by* followed by names in backticks.
const ENFORCED: &str = "*Enforced by* ";

pub(super) fn check(tree: &Tree, findings: &mut Vec<String>) {
    for (path, text) in tree.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for target in local_links(text) {
            let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
            if !tree.root.join(dir).join(target).exists() {
                findings.push(format!("{path}: links to {target}, which does not exist"));
            }
        }
    }
    for (original, translation) in TRANSLATED {
        match (tree.files.get(*original), tree.files.get(*translation)) {
            (Some(one), Some(other)) => {
                let differing = differences(one, other).into_iter();
                findings.extend(differing.map(|what| format!("{translation}: {what} than {original}")));
            }
            _ => findings.push(format!("{translation}: this file or {original} is missing")),
        }
    }
    match tree.files.get(ARCHITECTURE).map(String::len) {
        Some(bytes) if bytes <= ARCHITECTURE_BYTES_MAX => {}
        Some(bytes) => findings.push(format!("{ARCHITECTURE}: {bytes} bytes, more than {ARCHITECTURE_BYTES_MAX}")),
        None => findings.push(format!("{ARCHITECTURE}: missing")),
    }
    check_invariants(tree, findings);
}

/// Checks that every invariant in the docs of a crate names its tests, and that the tests exist.
fn check_invariants(tree: &Tree, findings: &mut Vec<String>) {
    for (path, text) in tree.rust().filter(|(path, _)| is_crate_root(path)) {
        let Some(invariants) = invariants(text) else { continue };
        if invariants.is_empty() {
            findings.push(format!("{path}: the section {INVARIANTS:?} has no invariants"));
        }
        for invariant in &invariants {
            if enforcers(invariant).next().is_none() {
                findings.push(format!("{path}: no test enforces the invariant {invariant:?}"));
            }
            for name in enforcers(invariant).filter(|name| !is_enforced(tree, name)) {
                findings.push(format!("{path}: names the test `{name}`, which does not exist"));
            }
        }
    }
}

fn is_crate_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["crates", _, "src", "lib.rs" | "main.rs"])
}

/// Whether a name is a check of `cargo xtask` or an existing function.
fn is_enforced(tree: &Tree, name: &str) -> bool {
    let test = format!("fn {}(", name.rsplit("::").next().unwrap_or(name));
    name.starts_with("cargo xtask ") || tree.rust().any(|(_, text)| text.contains(&test))
}

/// Returns the differences between the structure and the commands of a document and its translation.
fn differences(original: &str, translation: &str) -> Vec<&'static str> {
    let (one, other) = (Shape::of(original), Shape::of(translation));
    let mut found = Vec::new();
    let mut differs = |is: bool, what| found.extend(is.then_some(what));
    differs(one.headings != other.headings, "has other headings");
    differs(one.rows != other.rows, "has other tables");
    differs(one.blocks != other.blocks, "has other commands");
    found
}

/// The structure of a document, which is the same in every language.
#[derive(Default)]
struct Shape<'a> {
    /// The depth of each heading.
    headings: Vec<usize>,
    /// The number of cells of each table row.
    rows: Vec<usize>,
    /// The content of code blocks.
    blocks: Vec<&'a str>,
}

impl<'a> Shape<'a> {
    fn of(text: &'a str) -> Self {
        let mut shape = Self::default();
        let mut in_code_block = false;
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                in_code_block = !in_code_block;
            } else if in_code_block {
                shape.blocks.push(line);
            } else if line.starts_with('#') {
                shape.headings.push(line.bytes().take_while(|byte| *byte == b'#').count());
            } else if line.starts_with('|') {
                shape.rows.push(line.matches('|').count());
            }
        }
        shape
    }
}

fn local_links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', '#', ' ']).next())
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"))
}

/// Returns the list items below the heading of the invariants, each as one line; `None` without the heading.
fn invariants(text: &str) -> Option<Vec<String>> {
    let docs = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let mut section = docs.skip_while(|line| *line != INVARIANTS);
    section.next()?;
    let mut found: Vec<String> = Vec::new();
    for line in section.take_while(|line| !line.starts_with("# ")) {
        match (line.strip_prefix("- "), found.last_mut()) {
            (Some(first), _) => found.push(first.to_owned()),
            (None, Some(invariant)) if !line.is_empty() => *invariant += &format!(" {line}"),
            (None, _) => {}
        }
    }
    Some(found)
}

/// Returns the names in backticks after the marker, up to the end of the sentence.
fn enforcers(invariant: &str) -> impl Iterator<Item = &str> {
    invariant.split(ENFORCED).skip(1).flat_map(|rest| {
        let sentence = rest.split(". ").next().unwrap_or(rest);
        sentence.split('`').skip(1).step_by(2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enforcers_are_the_names_up_to_the_end_of_the_sentence() {
        let check = |invariant: &str, expect: &[&str]| {
            assert_eq!(enforcers(invariant).collect::<Vec<_>>(), expect, "{invariant}");
        };
        check("X. *Enforced by* `a::b` and `c`.", &["a::b", "c"]);
        check("Y `z`. *Enforced by* `cargo xtask tidy`. See `d`.", &["cargo xtask tidy"]);
        check("Y `z`.", &[]);
    }

    #[test]
    fn invariants_are_the_list_items_below_the_heading_of_the_crate_docs() {
        let text = "//! A.\n//!\n//! - b\n//!\n//! # Invariants\n//!\n//! - X. *Enforced\n//!   by* `c`.\n//! - Y.\n";
        assert_eq!(invariants(text), Some(vec!["X. *Enforced by* `c`.".to_owned(), "Y.".to_owned()]));
        assert_eq!(invariants(&format!("{text}//!\n//! # More\n//! - d\nfn e() {{}}\n//! - f\n")), invariants(text));
        assert_eq!(invariants("//! A.\n"), None);
    }

    #[test]
    fn invariants_without_an_existing_test_are_found() {
        let check = |path: &str, docs: &str, expect: &[&str]| {
            let text = format!("//! A.\n//!\n//! # Invariants\n//!\n{docs}\nfn c() {{}}\n");
            let tree = Tree { root: ".".into(), files: [(path.to_owned(), text)].into() };
            let mut findings = Vec::new();
            check_invariants(&tree, &mut findings);
            assert_eq!(findings, expect);
        };
        let root = "crates/a/src/lib.rs";
        check(root, "//! - X. *Enforced by* `c` and `cargo xtask tidy`.", &[]);
        check(root, "//! - X. *Enforced by* `d`.", &["crates/a/src/lib.rs: names the test `d`, which does not exist"]);
        check(root, "//! - X.", &["crates/a/src/lib.rs: no test enforces the invariant \"X.\""]);
        check(root, "", &["crates/a/src/lib.rs: the section \"# Invariants\" has no invariants"]);
        check("crates/a/src/b.rs", "//! - X.", &[]);
    }

    #[test]
    fn translation_must_have_the_headings_tables_and_commands_of_its_original() {
        let original = "# A\n| x | y |\n```sh\n# run\n```\n## B\n";
        let check = |translation: &str, expect: &[&str]| assert_eq!(differences(original, translation), expect);
        check("# 가\n| 나 | 다 |\n```sh\n# run\n```\n## 라\n", &[]);
        check("# 가\n| 나 | 다 |\n```sh\n# run\n```\n", &["has other headings"]);
        check("# 가\n| 나 |\n```sh\n# 실행\n```\n## 라\n", &["has other tables", "has other commands"]);
    }

    #[test]
    fn only_relative_links_are_checked() {
        let text = "[a](docs/a.md) [b](https://example.org) [c](#here) [d](b.md#part)";
        assert_eq!(local_links(text).collect::<Vec<_>>(), ["docs/a.md", "b.md"]);
    }
}
