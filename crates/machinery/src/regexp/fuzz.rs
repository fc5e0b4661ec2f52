//! What a fuzz target and the replay of its corpus do with a pattern and, after a zero byte, a text.

use super::{Code, compile, translate};

/// Little enough for every pattern to be compiled at once.
const BYTES_MAX: usize = 1 << 20;

/// What is a pattern to Go's grammar is one to the engine, unless it is too large; an error shows a part of the pattern.
pub fn check(input: &[u8]) {
    let Ok(input) = std::str::from_utf8(input) else { return };
    let (pattern, text) = input.split_once('\0').unwrap_or((input, ""));
    match compile(pattern, BYTES_MAX) {
        Ok(regex) => {
            let found = regex.find(text).map(|found| found.range());
            assert_eq!(found.is_some(), regex.is_match(text), "{pattern:?} on {text:?}");
        }
        Err(error) if matches!(error.code, Code::Large | Code::NestingDepth) => {
            let translated = translate(pattern).expect("it was read before it was compiled");
            let is_deep = error.code == Code::NestingDepth;
            let refused = regex::RegexBuilder::new(&translated).size_limit(BYTES_MAX).build();
            let syntax = matches!(refused, Err(regex::Error::Syntax(ref why)) if !why.contains("exceeded the maximum"));
            assert!(!syntax, "{pattern:?} became {translated:?}, deep: {is_deep}");
        }
        Err(error) => {
            assert!(pattern.contains(&error.expression), "{pattern:?}: {error}");
            assert!(translate(pattern).is_err());
        }
    }
    // What is quoted is found as it is.
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
    fn the_corpus_of_patterns_is_read_without_a_finding() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/regexp");
        let files: Vec<_> = std::fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty());
        files.iter().for_each(|file| super::check(&std::fs::read(file).unwrap()));
    }
}
