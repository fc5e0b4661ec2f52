//! Decoding of built-in kinds against exchanges recorded from the real API server, where those are at hand.

use std::path::PathBuf;

use machinery::conform::conform;
use machinery::field_validation::FieldValidation;
use machinery::{GroupVersionKind, Value, json};

/// Recordings that send whole objects of built-in kinds.
const FILES: [&str; 5] = ["invalid.jsonl", "strict.jsonl", "update.jsonl", "lifecycle.jsonl", "services.jsonl"];

#[derive(Default)]
struct Tally {
    refused: usize,
    warned: usize,
    accepted: usize,
    different: Vec<String>,
}

#[test]
fn what_upstream_refuses_or_warns_of_while_decoding_so_do_we_in_the_same_words() {
    let folder = shared().join("golden");
    if !folder.is_dir() {
        println!("skipped: {} is not there", folder.display());
        return;
    }
    let mut tally = Tally::default();
    for file in FILES {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        for line in text.lines() {
            let scenario = json::parse(line.as_bytes()).unwrap();
            let name = scenario.str_at(&["name"]).unwrap_or_default();
            for (at, step) in scenario["steps"].as_array().unwrap_or_default().iter().enumerate() {
                compare(&format!("{file} {name} step {at}"), step, &mut tally);
            }
        }
    }
    let Tally { refused, warned, accepted, different } = tally;
    println!("{refused} refusals, {warned} warnings and {accepted} objects without either are as recorded");
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    assert!(refused > 700 && warned > 80 && accepted > 1000, "the recordings were read");
}

fn shared() -> PathBuf {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    option_env!("KNARR_SHARED").unwrap_or(beside).into()
}

fn compare(step_name: &str, step: &Value, tally: &mut Tally) {
    let method = step.str_at(&["do", "method"]).unwrap_or_default();
    let query = step.str_at(&["do", "path"]).and_then(|path| path.split_once('?')).map_or("", |(_, query)| query);
    let mode = query.split('&').find_map(|pair| pair.strip_prefix("fieldValidation=")).unwrap_or_default();
    let Ok(mode) = mode.parse::<FieldValidation>() else { return };
    let bytes = match &step["do"]["body"] {
        Value::String(text) => text.as_bytes().to_vec(),
        body => json::to_vec(body),
    };
    let Ok((mut object, duplicate)) = json::parse_strict(&bytes) else { return };
    let Ok(kind) = GroupVersionKind::of_object(&object) else { return };
    let Some(schema) = api::catalogue::schema(&kind) else { return };
    let expect = &step["expect"];
    let message = expect.str_at(&["body", "message"]).unwrap_or_default();
    let code = expect["code"].as_int().unwrap_or_default();
    // Errors that come before decoding, and answers that do not tell whether it succeeded.
    if !matches!(method, "POST" | "PUT") || !matches!(code, 200 | 201 | 400 | 422) || message.contains("no kind") {
        return;
    }
    let found = match conform(&mut object, schema) {
        Err(error) => Err(error.to_string()),
        Ok(unknown) => mode.judge(&duplicate, &unknown).map_err(|error| error.to_string()),
    };
    let handled = format!(" in version {:?} cannot be handled as a ", kind.version);
    let expected = match message.split_once(&handled).and_then(|(_, rest)| rest.split_once(": ")) {
        Some((_, error)) => Err(error.to_owned()),
        None if code == 400 => return,
        None => Ok(warnings(expect)),
    };
    match (&found, &expected) {
        _ if found != expected => {
            tally.different.push(format!("{step_name}\n  found    {found:?}\n  recorded {expected:?}"));
        }
        (Err(_), _) => tally.refused += 1,
        (Ok(warnings), _) if !warnings.is_empty() => tally.warned += 1,
        (Ok(_), _) => tally.accepted += 1,
    }
}

/// The warnings about fields in an answer, without the frame that HTTP puts around them.
fn warnings(expect: &Value) -> Vec<String> {
    let all = expect["warnings"].as_array().unwrap_or_default().iter().filter_map(Value::as_str);
    let texts = all.filter_map(|text| text.strip_prefix("299 - \"")?.strip_suffix('"'));
    texts.map(|text| text.replace("\\\"", "\"")).filter(|text| text.contains(" field \"")).collect()
}
