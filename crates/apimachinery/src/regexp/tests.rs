//! Tests of the regexp translator against recorded results of Go.
//!
//! `go_answers.jsonl` was written by Go 1.27: the texts, then for each pattern either the error, or the matching texts
//! and the positions of the first matches in all texts joined by `|`. Its first patterns were hand-picked, the others
//! were generated from random pieces of the grammar.

use super::*;
use crate::json;

const GO_RESULTS: &str = include_str!("go_answers.jsonl");
const BYTES_MAX: usize = 10 << 20;

fn strings(line: &str) -> Vec<String> {
    let value = json::parse(line.as_bytes()).unwrap();
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn patterns_match_like_in_go() {
    let mut lines = GO_RESULTS.lines();
    let texts = strings(lines.next().unwrap());
    let joined = texts.join("|");
    let mut wrong = Vec::new();
    for line in lines {
        let [pattern, first, second] = <[String; 3]>::try_from(strings(line)).unwrap();
        let actual = match compile(&pattern, BYTES_MAX) {
            Err(error) => ("error".to_owned(), error.to_string()),
            Ok(regex) => {
                let bits = texts.iter().map(|text| if regex.is_match(text) { '1' } else { '0' }).collect();
                let spans = regex.find_iter(&joined).take(6).map(|found| format!("{}-{}", found.start(), found.end()));
                (bits, spans.collect::<Vec<_>>().join(" "))
            }
        };
        if actual != (first.clone(), second.clone()) {
            let written = translate(&pattern).unwrap_or_default();
            wrong
                .push(format!("{pattern:?} as {written:?}\n  Go   {first} {second}\n  ours {} {}", actual.0, actual.1));
        }
    }
    assert!(wrong.is_empty(), "{} patterns differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn oversized_patterns_are_rejected() {
    let error = compile(r"(\pL{30}){30}", 1 << 20).unwrap_err();
    assert_eq!(error.to_string(), r"error parsing regexp: expression too large: `(\pL{30}){30}`");
    let deep = format!("{}a{}", "(".repeat(2_000), ")".repeat(2_000));
    assert_eq!(compile(&deep, 1 << 20).unwrap_err().code, Code::NestingDepth);
}

proptest::proptest! {
    #[test]
    fn translated_patterns_compile(pattern in r"([ab\\\[\]\^\-(){}*+?|.$pdwQEi:,12<>é]|\(\?){0,24}") {
        if let Ok(translated) = translate(&pattern) {
            proptest::prop_assert!(Regex::new(&translated).is_ok(), "{pattern:?} became {translated:?}");
        }
    }
}
