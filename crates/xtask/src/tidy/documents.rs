//! Checks of documents: valid links, existing tests of invariants, translations with the same structure.

use super::Tree;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const ARCHITECTURE_LINES_MAX: usize = 400;

/// Documents and their translations.
const TRANSLATED: &[(&str, &str)] = &[("README.md", "README.ko.md")];

/// Marker of an invariant's enforcement: *Enforced by* followed by names in backticks.
const ENFORCED: &str = "*Enforced by* ";

pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    for (path, text) in tree.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for target in local_links(text) {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            if !tree.root.join(folder).join(target).exists() {
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
    let Some(architecture) = tree.files.get(ARCHITECTURE) else {
        findings.push(format!("{ARCHITECTURE}: missing"));
        return;
    };
    if architecture.lines().count() > ARCHITECTURE_LINES_MAX {
        findings.push(format!("{ARCHITECTURE}: more than {ARCHITECTURE_LINES_MAX} lines"));
    }
    for name in enforcers(architecture) {
        let test = format!("fn {}(", name.rsplit("::").next().unwrap_or(name));
        let is_check = name.starts_with("cargo xtask ");
        if !is_check && !tree.rust().any(|(_, text)| text.contains(&test)) {
            findings.push(format!("{ARCHITECTURE}: names the test `{name}`, which does not exist"));
        }
    }
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
        let mut inside = false;
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                inside = !inside;
            } else if inside {
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

fn enforcers(text: &str) -> impl Iterator<Item = &str> {
    text.split(ENFORCED).skip(1).flat_map(|rest| {
        let sentence = rest.split(".\n").next().unwrap_or(rest);
        sentence.split('`').skip(1).step_by(2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enforcers_are_the_names_up_to_the_end_of_the_sentence() {
        let text = "1. X. *Enforced by* `a::b` and\n   `c`.\n2. Y `z`. *Enforced by* `cargo xtask tidy`.\n";
        assert_eq!(enforcers(text).collect::<Vec<_>>(), ["a::b", "c", "cargo xtask tidy"]);
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
