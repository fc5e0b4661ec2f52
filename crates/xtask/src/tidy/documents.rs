//! Documents that stay true: links lead somewhere, invariants name tests that exist.

use super::Tree;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const ARCHITECTURE_LINES_MAX: usize = 400;

/// How an invariant names what enforces it: *Enforced by* followed by names in backticks.
const ENFORCED: &str = "*Enforced by* ";

pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    for (path, text) in tree.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for target in local_links(text) {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            if !tree.root.join(folder).join(target).exists() {
                findings.push(format!("{path}: links to {target}, which is not there"));
            }
        }
    }
    let Some(architecture) = tree.files.get(ARCHITECTURE) else {
        findings.push(format!("{ARCHITECTURE}: is missing"));
        return;
    };
    if architecture.lines().count() > ARCHITECTURE_LINES_MAX {
        findings.push(format!("{ARCHITECTURE}: over {ARCHITECTURE_LINES_MAX} lines"));
    }
    for name in enforcers(architecture) {
        let test = format!("fn {}(", name.rsplit("::").next().unwrap_or(name));
        let is_check = name.starts_with("cargo xtask ");
        if !is_check && !tree.rust().any(|(_, text)| text.contains(&test)) {
            findings.push(format!("{ARCHITECTURE}: names the test `{name}`, which is not there"));
        }
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
    fn every_name_after_the_mark_is_an_enforcer_until_the_sentence_ends() {
        let text = "1. X. *Enforced by* `a::b` and\n   `c`.\n2. Y `z`. *Enforced by* `cargo xtask tidy`.\n";
        assert_eq!(enforcers(text).collect::<Vec<_>>(), ["a::b", "c", "cargo xtask tidy"]);
    }

    #[test]
    fn only_links_into_the_tree_are_followed() {
        let text = "[a](docs/a.md) [b](https://example.org) [c](#here) [d](b.md#part)";
        assert_eq!(local_links(text).collect::<Vec<_>>(), ["docs/a.md", "b.md"]);
    }
}
