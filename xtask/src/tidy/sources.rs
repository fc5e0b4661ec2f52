//! Checks of source files: a first line that states the purpose, a maximum length, no escape hatches.

use super::Tree;
use super::layers::DECIDING;

/// Maximum number of lines of a file without its tests.
const LINES_MAX: usize = 700;

/// Files that may be longer, and the reason.
const LONG: &[(&str, &str)] = &[];

/// Paths with side effects, which the product code of pure crates must not use.
const OUTSIDE: &[&str] = &["std::fs", "std::net::Tcp", "std::net::Udp", "std::process::", "std::env", "std::thread"];

pub(super) fn check(tree: &Tree, findings: &mut Vec<String>) {
    for (path, text) in tree.rust() {
        check_purpose(path, text, findings);
        let product = without_tests(path, text);
        let lines = product.lines().count();
        if lines > LINES_MAX && !LONG.iter().any(|(long, _)| *long == path) {
            findings.push(format!("{path}: {lines} lines without tests; more than {LINES_MAX} needs a reason in LONG"));
        }
        if is_deciding(path) {
            for word in OUTSIDE.iter().filter(|word| product.lines().any(|line| code(line).contains(**word))) {
                findings.push(format!("{path}: a pure crate uses {word}"));
            }
        }
        for (at, line) in text.lines().enumerate() {
            if code(line).trim_start().starts_with(concat!("#[", "ignore")) {
                findings.push(format!("{path}:{}: a test is ignored; enable or delete it", at + 1));
            }
        }
    }
}

fn check_purpose(path: &str, text: &str, findings: &mut Vec<String>) {
    let first = text.lines().next().unwrap_or_default();
    match first.strip_prefix("//! ") {
        Some(purpose)
            if purpose.ends_with(['.', ':', ','])
                || text.lines().nth(1).is_some_and(|next| next.starts_with("//! ")) => {}
        Some(_) => findings.push(format!("{path}: the first line is not a sentence")),
        // libFuzzer's entry points must start with `#![no_main]`; a `tests.rs` belongs to its parent module.
        None if path.starts_with("fuzz/") || path.ends_with("/tests.rs") => {}
        None => findings.push(format!("{path}: the first line does not state the purpose of the file")),
    }
}

/// Returns the product code of a file: nothing of a test file, otherwise the part before the tests.
fn without_tests<'a>(path: &str, text: &'a str) -> &'a str {
    let in_test_dir = path.split('/').any(|part| matches!(part, "tests" | "benches" | "tests.rs"));
    if in_test_dir { "" } else { text.split("\n#[cfg(test)]").next().unwrap_or_default() }
}

fn is_deciding(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.next() == Some("crates")
        && parts.next().is_some_and(|name| DECIDING.contains(&name))
        && parts.next() == Some("src")
}

/// Strips the comment of a line.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let tree = Tree { root: ".".into(), files: [(path.to_owned(), text.to_owned())].into() };
        let mut findings = Vec::new();
        check(&tree, &mut findings);
        findings
    }

    #[test]
    fn file_with_a_purpose_passes() {
        assert_eq!(findings("crates/a/src/lib.rs", "//! What it is for.\n"), [""; 0]);
    }

    #[test]
    fn file_without_a_purpose_is_found() {
        assert_eq!(findings("crates/a/src/lib.rs", "fn main() {}\n").len(), 1);
    }

    #[test]
    fn long_file_is_found_but_long_tests_are_allowed() {
        let lines = "x\n".repeat(LINES_MAX);
        assert_eq!(findings("crates/a/src/b.rs", &format!("//! Long.\n{lines}")).len(), 1);
        assert_eq!(findings("crates/a/src/b.rs", &format!("//! Long.\n#[cfg(test)]\n{lines}")).len(), 0);
        assert_eq!(findings("crates/a/tests/b.rs", &format!("//! Long.\n{lines}")).len(), 0);
    }

    #[test]
    fn file_access_in_a_pure_crate_is_found_except_in_tests() {
        let reads = "use std::fs;";
        assert_eq!(findings("crates/apimachinery/src/b.rs", &format!("//! Reads.\n{reads}\n")).len(), 1);
        assert_eq!(findings("crates/apimachinery/src/b.rs", &format!("//! Reads.\n// {reads}\n")).len(), 0);
        assert_eq!(findings("crates/apimachinery/tests/b.rs", &format!("//! Reads.\n{reads}\n")).len(), 0);
        assert_eq!(findings("crates/knarr/src/b.rs", &format!("//! Reads.\n{reads}\n")).len(), 0);
    }

    #[test]
    fn ignored_test_is_found() {
        let text = format!("//! Tests.\n{}]\n", concat!("#[", "ignore"));
        assert_eq!(findings("crates/a/tests/b.rs", &text).len(), 1);
    }
}
