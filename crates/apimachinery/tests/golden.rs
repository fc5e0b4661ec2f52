//! Decoding of built-in kinds, compared with recordings of the upstream API server.

use apimachinery::conform::conform;
use apimachinery::field_validation::FieldValidation;
use apimachinery::schema::structural;
use apimachinery::{GroupVersionKind, Path, Value, json};

/// Recordings that contain complete objects of built-in kinds.
const FILES: [&str; 5] = ["invalid.jsonl", "strict.jsonl", "update.jsonl", "lifecycle.jsonl", "services.jsonl"];

#[derive(Default)]
struct ResultCounts {
    rejected: usize,
    warned: usize,
    accepted: usize,
    different: Vec<String>,
}

#[test]
fn compare_decoding_errors_and_warnings() {
    let mut counts = ResultCounts::default();
    each_step(|name, step| compare(name, step, &mut counts));
    let ResultCounts { rejected, warned, accepted, different } = counts;
    println!("{rejected} refusals, {warned} warnings and {accepted} objects without either are as recorded");
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    assert!(rejected > 700 && warned > 80 && accepted > 1000, "the recordings were read");
}

#[test]
fn compare_crd_schema_errors() {
    let (mut rejected, mut accepted, mut different) = (0, 0, Vec::new());
    each_step(|name, step| {
        let Some((found, recorded)) = schema_findings(step) else { return };
        match found == recorded {
            true if found.is_empty() => accepted += 1,
            true => rejected += 1,
            false => different.push(format!("{name}\n  found    {found:?}\n  recorded {recorded:?}")),
        }
    });
    println!("{rejected} refused and {accepted} accepted schemas are as recorded");
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    assert!(rejected > 40 && accepted > 80, "the recordings were read");
}

#[test]
fn compare_conformed_output() {
    let (mut same, mut different) = (0, Vec::new());
    each_step(|name, step| {
        // Recordings have placeholders for values that differ in every run.
        let text = step["expect"]["body"].to_string().replace("\"<node port>\"", "30000");
        let text = text.replace("<time>", "2026-01-01T00:00:00Z");
        let printed = json::parse(text.as_bytes()).unwrap();
        let Ok(kind) = GroupVersionKind::of_object(&printed) else { return };
        // Recorded tables lack the column descriptions.
        let Some(schema) = api::catalogue::schema(&kind).filter(|_| kind.kind != "Table") else { return };
        let mut again = printed.clone();
        match conform(&mut again, schema) {
            Ok(unknown) if unknown.is_empty() && again == printed => same += 1,
            result => different.push(format!("{name}\n  {result:?}\n  found    {again}\n  recorded {printed}")),
        }
    });
    println!("{same} objects stay as recorded");
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    assert!(same > 1000, "the recordings were read");
}

/// Calls `visit` with each recorded step and its name.
fn each_step(mut visit: impl FnMut(&str, &Value)) {
    let dir = test_requirements::upstream("golden");
    for file in FILES {
        let text = std::fs::read_to_string(dir.join(file)).expect("a recording can be read");
        for line in text.lines() {
            let scenario = json::parse(line.as_bytes()).expect("a recording is JSON");
            let name = scenario.str_at(&["name"]).unwrap_or_default();
            for (at, step) in scenario["steps"].as_array().unwrap_or_default().iter().enumerate() {
                visit(&format!("{file} {name} step {at}"), step);
            }
        }
    }
}

/// Returns Knarr's and upstream's errors for the schema of a CRD, without upstream's errors about CEL and other parts
/// of the CRD. [`None`] if the step is not a CRD with a schema.
fn schema_findings(step: &Value) -> Option<(Vec<String>, Vec<String>)> {
    const AT: &str = "spec.validation.openAPIV3Schema";
    let code = step["expect"]["code"].as_int()?;
    let mut crd = step["do"]["body"].clone();
    if crd["kind"].as_str() != Some("CustomResourceDefinition") || !matches!(code, 201 | 422) {
        return None;
    }
    let kind = GroupVersionKind::of_object(&crd).ok()?;
    conform(&mut crd, api::catalogue::schema(&kind)?).ok()?;
    let schema = crd["spec"]["versions"][0].at(&["schema", "openAPIV3Schema"])?;
    let (spec, validation) = (Path::of("spec"), "validation");
    let (validation, word) = (spec.field(validation), "openAPIV3Schema");
    let found = structural::check(schema, &validation.field(word)).iter().map(ToString::to_string).collect();
    let causes = step["expect"]["body"]["details"]["causes"].as_array().unwrap_or_default();
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
    let recorded = causes
        .iter()
        .map(|cause| (text(cause, "field"), text(cause, "message")))
        .filter(|(field, message)| field.starts_with(AT) && !message.contains("compilation failed"))
        .map(|(field, message)| format!("{field}: {message}"))
        .collect();
    Some((found, recorded))
}

fn compare(step_name: &str, step: &Value, counts: &mut ResultCounts) {
    let method = step.str_at(&["do", "method"]).unwrap_or_default();
    let query = step.str_at(&["do", "path"]).and_then(|path| path.split_once('?')).map_or("", |(_, query)| query);
    let mode = query.split('&').find_map(|pair| pair.strip_prefix("fieldValidation=")).unwrap_or_default();
    let Ok(mode) = mode.parse::<FieldValidation>() else { return };
    let bytes = match &step["do"]["body"] {
        Value::String(text) => text.as_bytes().to_vec(),
        body => json::to_vec(body),
    };
    let Ok(mut object) = json::parse(&bytes) else { return };
    let Ok(kind) = GroupVersionKind::of_object(&object) else { return };
    let Some(schema) = api::catalogue::schema(&kind) else { return };
    let expect = &step["expect"];
    let message = expect.str_at(&["body", "message"]).unwrap_or_default();
    let code = expect["code"].as_int().unwrap_or_default();
    // Skip errors that precede decoding, and responses that do not show whether decoding succeeded.
    if !matches!(method, "POST" | "PUT") || !matches!(code, 200 | 201 | 400 | 422) || message.contains("no kind") {
        return;
    }
    let found = match conform(&mut object, schema) {
        Err(error) => Err(error.to_string()),
        Ok(unknown) => mode.check(json::findings(&bytes, &unknown)).map_err(|error| error.to_string()),
    };
    let handled = format!(" in version {:?} cannot be handled as a ", kind.version);
    let expected = match message.split_once(&handled).and_then(|(_, rest)| rest.split_once(": ")) {
        Some((_, error)) => Err(error.to_owned()),
        None if code == 400 => return,
        None => Ok(warnings(expect)),
    };
    match (&found, &expected) {
        _ if found != expected => {
            counts.different.push(format!("{step_name}\n  found    {found:?}\n  recorded {expected:?}"));
        }
        (Err(_), _) => counts.rejected += 1,
        (Ok(warnings), _) if !warnings.is_empty() => counts.warned += 1,
        (Ok(_), _) => counts.accepted += 1,
    }
}

/// Returns the warnings about fields in a response, without the framing of the HTTP header.
fn warnings(expect: &Value) -> Vec<String> {
    let all = expect["warnings"].as_array().unwrap_or_default().iter().filter_map(Value::as_str);
    let texts = all.filter_map(|text| text.strip_prefix("299 - \"")?.strip_suffix('"'));
    texts.map(|text| text.replace("\\\"", "\"")).filter(|text| text.contains(" field \"")).collect()
}
