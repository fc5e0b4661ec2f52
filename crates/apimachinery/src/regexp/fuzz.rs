//! Fuzz target of the regexp translator. The input is a pattern and, after a zero byte, a text.

use super::{Code, compile, translate};

/// Small enough that every pattern compiles quickly.
const BYTES_MAX: usize = 1 << 20;

/// Checks that the engine accepts every pattern that Go's grammar accepts, unless it is too large, and that errors
/// quote a part of the pattern.
pub fn check(input: &[u8]) {
    let Ok(input) = std::str::from_utf8(input) else { return };
    let (pattern, text) = input.split_once('\0').unwrap_or((input, ""));
    match compile(pattern, BYTES_MAX) {
        Ok(regex) => {
            let found = regex.find(text).map(|found| found.range());
            assert_eq!(found.is_some(), regex.is_match(text), "{pattern:?} on {text:?}");
        }
        Err(error) if matches!(error.code, Code::Large | Code::NestingDepth) => {
            let translated = translate(pattern).expect("the pattern was parsed above");
            let is_deep = error.code == Code::NestingDepth;
            let result = regex::RegexBuilder::new(&translated).size_limit(BYTES_MAX).build();
            let syntax =
                matches!(result, Err(regex::Error::Syntax(message)) if !message.contains("exceeded the maximum"));
            assert!(!syntax, "{pattern:?} became {translated:?}, deep: {is_deep}");
        }
        Err(error) => {
            assert!(pattern.contains(&error.expression), "{pattern:?}: {error}");
            assert!(translate(pattern).is_err());
        }
    }
    // A quoted text matches itself.
    if !text.contains(r"\E")
        && let Ok(regex) = compile(&format!(r"\Q{text}\E"), BYTES_MAX)
    {
        let found = regex.find(text).map(|found| found.range());
        assert_eq!(found, Some(0..text.len()), "{text:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn corpus_of_patterns_passes() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/regexp");
        let files: Vec<_> = std::fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty());
        files.iter().for_each(|file| super::check(&std::fs::read(file).unwrap()));
    }
}
