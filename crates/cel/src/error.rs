//! CEL compile errors with source positions, printed in cel-go's format.

use std::fmt;

/// An error at a source position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The source offset in bytes.
    pub offset: u32,
    pub message: String,
}

/// All errors of an expression, in source order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Findings {
    source_text: Box<str>,
    findings: Vec<Finding>,
}

impl Findings {
    pub(crate) fn new(source: &str, mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| finding.offset);
        Self { source_text: source.into(), findings }
    }

    pub(crate) fn one(source: &str, finding: Finding) -> Self {
        Self { source_text: source.into(), findings: vec![finding] }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Finding> {
        self.findings.iter()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, finding) in self.findings.iter().enumerate() {
            if at > 0 {
                out.write_str("\n")?;
            }
            show(out, &self.source_text, finding)?;
        }
        Ok(())
    }
}

/// Writes `ERROR: <input>:line:column: message`, the line, and a caret under the column.
fn show(out: &mut fmt::Formatter<'_>, source: &str, finding: &Finding) -> fmt::Result {
    if source.is_empty() {
        // An empty source has no line and no column.
        return write!(out, "ERROR: <input>:1:0: {}", finding.message);
    }
    let mut offset = (finding.offset as usize).min(source.len());
    while !source.is_char_boundary(offset) {
        offset -= 1;
    }
    let start = source[..offset].rfind('\n').map_or(0, |newline| newline + 1);
    let line = source[..offset].matches('\n').count() + 1;
    let before = &source[start..offset];
    write!(out, "ERROR: <input>:{line}:{}: {}", before.chars().count() + 1, finding.message)?;
    let text = source[start..].split('\n').next().unwrap_or_default();
    write!(out, "\n | {}\n | ", text.replace('\t', " "))?;
    // Wide characters get wide marks, so that a terminal shows the caret in the right column.
    for c in before.chars() {
        out.write_str(if c.len_utf8() > 1 { "\u{ff0e}" } else { "." })?;
    }
    let wide = source[offset..].chars().next().is_some_and(|c| c.len_utf8() > 1);
    out.write_str(if wide { "\u{ff3e}" } else { "^" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, offset: u32, expect: &str) {
        let finding = Finding { offset, message: "no".into() };
        assert_eq!(Findings::one(source, finding).to_string(), expect);
    }

    #[test]
    fn caret_marks_the_column() {
        check("a.b", 1, "ERROR: <input>:1:2: no\n | a.b\n | .^");
        check("a &&\n\tb", 6, "ERROR: <input>:2:2: no\n |  b\n | .^");
        check("", 0, "ERROR: <input>:1:0: no");
    }

    #[test]
    fn wide_characters_are_marked_wide() {
        check("'ü' + ü", 4, "ERROR: <input>:1:4: no\n | 'ü' + ü\n | .．.^");
        check("'ü' + ü", 7, "ERROR: <input>:1:7: no\n | 'ü' + ü\n | .．....＾");
    }
}
