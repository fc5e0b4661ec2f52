//! The text in the editor: the header with errors, and the comparison with the saved text.

use std::fmt::Write;

use apimachinery::{json, yaml};

/// The reason that the file must be edited again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reason {
    pub head: String,
    pub details: Vec<String>,
}

const HEADER: &str = "# Please edit the object below. Lines beginning with a '#' will be ignored,
# and an empty file will abort the edit. If an error occurs while saving this file will be
# reopened with the relevant failures.
#
";
const LAST_APPLIED_HEADER: &str = "# Please edit the 'last-applied-configuration' annotations below.
# Lines beginning with a '#' will be ignored, and an empty file will abort the edit.
#
";

/// Returns the comment at the start of the file.
pub(super) fn header(reasons: &[Reason], last_applied: bool) -> String {
    let mut text = if last_applied { LAST_APPLIED_HEADER } else { HEADER }.to_owned();
    for reason in reasons {
        let colon = if reason.details.is_empty() { "" } else { ":" };
        let _ = writeln!(text, "# {}{colon}", commented(&reason.head));
        for detail in &reason.details {
            let _ = writeln!(text, "# * {}", commented(detail));
        }
        text.push_str("#\n");
    }
    text
}

/// Starts each line of a text but the first with `# `.
fn commented(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        out.push(c);
        let next = text.as_bytes().get(at + 1);
        if c == '\n' && next.is_some_and(|next| *next != b'#') {
            out.push_str("# ");
        }
    }
    out
}

/// Removes the lines that are comments.
pub(super) fn without_comments(text: &str) -> String {
    let is_comment = |line: &str| {
        let line = line.trim();
        line.starts_with('#') && !line.starts_with("#!")
    };
    text.split('\n').filter(|line| !is_comment(line)).collect::<Vec<_>>().join("\n")
}

/// Returns the content of a file for comparison, without comments and layout.
pub(super) fn content(text: &str) -> String {
    if text.trim_start().starts_with('{') {
        return text.to_owned();
    }
    match yaml::parse(text) {
        Ok(value) => json::to_string(&value),
        Err(_) => without_comments(text),
    }
}

/// Whether a line is neither empty nor a comment.
pub(super) fn has_content(text: &str) -> bool {
    text.lines().any(|line| !line.trim().is_empty() && !line.trim().starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_comments() {
        let reasons = [
            Reason { head: "a\nb".to_owned(), details: Vec::new() },
            Reason { head: "c".to_owned(), details: vec!["d".to_owned(), "e".to_owned()] },
        ];
        let text = header(&reasons, false);
        assert_eq!(text.strip_prefix(HEADER), Some("# a\n# b\n#\n# c:\n# * d\n# * e\n#\n"));
    }

    #[test]
    fn comments_and_layout_are_not_content() {
        assert_eq!(content("# x\na: 1\nb: 2\n"), content("b:   2\na: 1\n"));
        assert_ne!(content("a: 1\n"), content("a: 2\n"));
        assert_eq!(content("# x\na: {\n"), "a: {\n");
        assert!(!has_content("# x\n  \n  # y\n"));
        assert!(has_content("# x\na\n"));
    }
}
