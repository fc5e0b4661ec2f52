//! Replays patches recorded from kube-apiserver where the patch alone determines the result.

use std::collections::BTreeMap;

use api::catalogue;
use apimachinery::patch::{ErrorClass, PatchType, apply_patch};
use apimachinery::schema::Shape;
use apimachinery::{GroupVersionKind, Schema, Value, json};

/// Metadata that the server changes on writes.
const SERVERS: [&str; 5] =
    ["managedFields", "resourceVersion", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// The scenario whose patches cause allocation or release of addresses and ports.
const ALLOCATES: &str = "services/allocation";

#[test]
fn compare_patches_with_recordings() {
    let files = std::fs::read_dir(test_requirements::upstream("golden")).unwrap();
    let mut counts = BTreeMap::new();
    let mut wrong = Vec::new();
    for file in files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|it| it == "jsonl")) {
        for line in std::fs::read_to_string(file).unwrap().lines() {
            replay(&json::parse(line.as_bytes()).unwrap(), &mut counts, &mut wrong);
        }
    }
    println!("{counts:#?}");
    assert!(counts.keys().any(|verdict| verdict.ends_with(" same")), "nothing could be compared");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn replay(scenario: &Value, counts: &mut BTreeMap<String, usize>, wrong: &mut Vec<String>) {
    let mut live: BTreeMap<String, Value> = BTreeMap::new();
    for step in scenario["steps"].as_array().unwrap_or_default() {
        let (request, response) = (&step["do"], &step["expect"]);
        let (path, query) = split(request["path"].as_str().unwrap_or_default());
        let object = path.strip_suffix("/status").unwrap_or(path);
        if request["method"].as_str() == Some("PATCH") {
            let kind = PatchType::from_content_type(request["type"].as_str().unwrap_or_default());
            if let (Ok(kind), Some(before)) = (kind, live.get(object))
                && kind != PatchType::Apply
            {
                let mut verdict = evaluate(kind, before, &request["body"], response, path != object);
                if scenario["name"].as_str() == Some(ALLOCATES) && matches!(verdict, Comparison::Differs(_)) {
                    verdict = Comparison::Undecided;
                }
                if let Comparison::Differs(how) = &verdict {
                    wrong.push(format!("{}: {request}: {how}", scenario["name"]));
                }
                *counts.entry(format!("{kind:?} {}", verdict.name())).or_default() += 1;
            }
        }
        let body = &response["body"];
        let stored = matches!(response["code"], Value::Int(200 | 201)) && !query.contains("dryRun");
        if let (true, Some(name)) = (stored, body.str_at(&["metadata", "name"])) {
            let key =
                if request["method"].as_str() == Some("POST") { format!("{object}/{name}") } else { object.into() };
            live.insert(key, body.clone());
        }
    }
}

enum Comparison {
    Same,
    Rejected,
    /// The result depends on more than the patch: validation, admission, defaulting or a read-only part.
    Undecided,
    Differs(String),
}

impl Comparison {
    const fn name(&self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Rejected => "refused as recorded",
            Self::Undecided => "not decided by the patch",
            Self::Differs(_) => "differs",
        }
    }
}

fn evaluate(kind: PatchType, before: &Value, patch: &Value, response: &Value, status: bool) -> Comparison {
    let Some(schema) = schema_of(before) else { return Comparison::Undecided };
    let body = match patch {
        Value::String(raw) => raw.as_bytes().to_vec(),
        patch => json::to_vec(patch),
    };
    let outcome = apply_patch(kind, before.clone(), &body, Some(schema));
    let message = response["body"]["message"].as_str().unwrap_or_default();
    match (response["code"].as_int(), outcome) {
        (Some(200), Ok(mut after)) => {
            prune(&mut after, schema);
            compare(&after, &response["body"], before, status)
        }
        (Some(200), Err(error)) => Comparison::Differs(format!("refused: {error}")),
        (Some(400), Err(error)) if error.blame() == ErrorClass::BadRequest => Comparison::Rejected,
        (Some(422), Err(error)) if error.blame() == ErrorClass::Unprocessable => Comparison::Rejected,
        (Some(422), Ok(_)) if message.starts_with("the server rejected our request") => {
            Comparison::Differs("not refused".to_owned())
        }
        (_, Ok(_)) => Comparison::Undecided,
        (code, Err(error)) => Comparison::Differs(format!("recorded as {code:?}, refused: {error}")),
    }
}

/// Compares the patched object with the recorded one, except for changes by the server.
fn compare(actual: &Value, recorded: &Value, before: &Value, status: bool) -> Comparison {
    if recorded["kind"] != before["kind"] {
        return Comparison::Undecided;
    }
    let (actual, recorded) = (tidy(actual, before, status), tidy(recorded, before, status));
    if actual == recorded { Comparison::Same } else { Comparison::Differs(format!("{actual} instead of {recorded}")) }
}

fn tidy(object: &Value, before: &Value, status: bool) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, value| !SERVERS.contains(&key) && !is_empty(value));
    }
    // A status write changes only the status, and other writes do not change it.
    let preserved_field = if status { "spec" } else { "status" };
    if let Some(object) = object.as_object_mut() {
        match before.get(preserved_field) {
            Some(value) => object.insert(preserved_field, value.clone()),
            None => object.remove(preserved_field),
        };
        object.retain(|_, value| !is_empty(value));
    }
    object
}

/// Drops unknown fields, as decoding does after every patch.
fn prune(value: &mut Value, schema: Schema<'_>) {
    match (schema.shape(), value) {
        (Shape::Struct(_), Value::Object(object)) => object.retain(|key, value| {
            let field = schema.field(key);
            field.is_some_and(|(_, schema)| {
                prune(value, schema);
                true
            })
        }),
        (Shape::Map(map), Value::Object(object)) => {
            object.iter_mut().for_each(|(_, value)| prune(value, schema.other(map.value)));
        }
        (Shape::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| prune(item, schema.other(list.item)));
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(object) => object.is_empty(),
        Value::Array(items) => items.is_empty(),
        value => value.is_null(),
    }
}

fn schema_of(object: &Value) -> Option<Schema<'static>> {
    let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    catalogue::schema(&GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() })
}

fn split(path: &str) -> (&str, &str) {
    path.split_once('?').unwrap_or((path, ""))
}
