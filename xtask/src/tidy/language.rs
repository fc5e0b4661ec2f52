//! Comments, messages and documents use the words of the Kubernetes and Linux documentation.
//!
//! The check rejects private synonyms ([`REJECTED_WORDS`]) in comments, Markdown documents and the strings of log, error and help messages, and
//! doc comments that start with an interrogative. Text between backticks is exempt: `nobody` is a user of Linux.

use super::Tree;

/// Rejected words and phrases, each with the established ones.
const REJECTED_WORDS: &[(&str, &str)] = &[
    ("anew", "again"),
    ("anybody", "name the subject"),
    ("errand", "side effect"),
    ("errands", "side effects"),
    ("everybody", "name the subject"),
    ("folder", "directory"),
    ("folders", "directories"),
    ("in words", "with an error message"),
    ("is said", "is reported"),
    ("is told", "is notified"),
    ("looked at", "inspected"),
    ("nobody", "name the subject"),
    ("plug-in", "plugin"),
    ("plug-ins", "plugins"),
    ("processor", "CPU"),
    ("processors", "CPUs"),
    ("puts out", "evicts"),
    ("says so", "reports it"),
    ("so many", "name the limit"),
    ("somebody", "name the subject"),
    ("whoever", "name the subject"),
    ("whom", "rewrite the sentence"),
];

/// A doc comment starts with a noun or a verb. `Whether` is for booleans.
const INTERROGATIVES: &[&str] = &["What", "Who", "Whose", "Whom", "How", "Why", "Where"];

/// Lines with one of these contain a message that an operator reads.
const MESSAGES: &[&str] = &["tracing::", "#[error(", "#[arg(", "#[command(", "about = ", "help = "];

/// Documents in other languages, and this list itself.
const EXEMPT: &[&str] = &["README.ko.md", "THIRD_PARTY_LICENSES", "xtask/src/tidy/language.rs"];

pub(super) fn check(tree: &Tree, findings: &mut Vec<String>) {
    for (path, text) in tree.files.iter().filter(|(path, _)| !EXEMPT.contains(&path.as_str())) {
        if path.ends_with(".md") {
            check_document(path, text, findings);
        } else if path.ends_with(".rs") {
            check_source(path, text, findings);
        }
    }
}

fn check_document(path: &str, text: &str, findings: &mut Vec<String>) {
    let mut in_code = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            findings.extend(rejected(line).map(|finding| format!("{path}:{}: {finding}", at + 1)));
        }
    }
}

fn check_source(path: &str, text: &str, findings: &mut Vec<String>) {
    let mut before = None;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let marker = ["///", "//!", "//"].into_iter().find(|marker| line.starts_with(marker));
        let mut report = |finding: String| findings.push(format!("{path}:{}: {finding}", at + 1));
        match marker {
            Some(marker) => {
                rejected(line).for_each(&mut report);
                let first = line[marker.len()..].split_whitespace().next().unwrap_or_default();
                if marker != "//" && before != Some(marker) && INTERROGATIVES.contains(&first) {
                    report(format!("the doc comment starts with {first:?}: state the contract or the reason"));
                }
            }
            None if MESSAGES.iter().any(|message| line.contains(message)) => {
                rejected(&without_placeholders(line)).for_each(&mut report);
            }
            None => {}
        }
        before = marker;
    }
}

/// Returns a finding for each rejected word of a line.
fn rejected(line: &str) -> impl Iterator<Item = String> {
    let text = without_code(line).to_lowercase();
    REJECTED_WORDS
        .iter()
        .filter(move |(word, _)| has_word(&text, word))
        .map(|(word, instead)| format!("{word:?} is not used here: {instead}"))
}

/// Removes `{…}` from a format string: the names in it are identifiers.
fn without_placeholders(line: &str) -> String {
    let mut parts = line.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + " " + part.split_once('}').map_or(part, |(_, after)| after))
}

/// Removes the text between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-');
    text.match_indices(word)
        .any(|(at, _)| !is_part(text[..at].chars().next_back()) && !is_part(text[at + word.len()..].chars().next()))
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

    fn count(path: &str, text: &str) -> usize {
        findings(path, text).len()
    }

    #[test]
    fn rejected_words_are_found_in_comments_messages_and_documents() {
        assert_eq!(findings("a.rs", "// Nobody asks.\n"), ["a.rs:1: \"nobody\" is not used here: name the subject"]);
        assert_eq!(count("a.rs", "    tracing::warn!(\"the folder is missing\");\n"), 1);
        assert_eq!(count("a.rs", "#[error(\"whoever wrote {0}\")]\n"), 1);
        assert_eq!(count("docs/a.md", "Plug-ins are files.\n"), 1);
    }

    #[test]
    fn code_and_other_strings_are_exempt() {
        assert_eq!(
            count("a.rs", "let folder = \"nobody\";\n// Runs as `nobody`.\n// An attribute of processor-wide scope.\n"),
            0
        );
        assert_eq!(count("docs/a.md", "```sh\nls folder\n```\n"), 0);
        assert_eq!(count("README.ko.md", "folder\n"), 0);
        assert_eq!(count("a.rs", "#[error(\"{folder} of {} failed\")]\n"), 0);
    }

    #[test]
    fn doc_comments_that_start_with_an_interrogative_are_rejected() {
        assert_eq!(count("a.rs", "/// What a pod requests.\nfn a() {}\n"), 1);
        assert_eq!(count("a.rs", "/// Whether the pod is ready.\nfn a() {}\n"), 0);
        // A line in the middle of a sentence may start with any word.
        assert_eq!(count("a.rs", "/// Decides\n/// what is next.\n/// Where it stops is a detail.\nfn a() {}\n"), 0);
        assert_eq!(count("a.rs", "// Why: a reason.\n"), 0);
    }
}
