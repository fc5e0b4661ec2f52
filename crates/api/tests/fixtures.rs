//! Upstream's serialization fixtures decode to the same object from all three encodings and encode to the same bytes.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::path::Path;

use apimachinery::protobuf::{self, Envelope};
use apimachinery::{GroupVersionKind, Schema, Value, json, yaml};

/// The files and schema of one object.
struct Fixture {
    name: String,
    schema: Schema<'static>,
    json: Vec<u8>,
    yaml: String,
    protobuf: Vec<u8>,
}

fn fixtures() -> Vec<Fixture> {
    let dir = test_requirements::upstream("reference/fixtures");
    let mut names: Vec<String> = std::fs::read_dir(&dir)
        .unwrap()
        .filter_map(|entry| Some(entry.unwrap().file_name().to_str()?.strip_suffix(".json")?.to_owned()))
        .collect();
    names.sort();
    assert!(names.len() > 100, "the folder holds all fixtures");
    names.into_iter().map(|name| fixture(&dir, name)).collect()
}

fn fixture(dir: &Path, name: String) -> Fixture {
    let read = |kind: &str| std::fs::read(dir.join(format!("{name}.{kind}"))).unwrap();
    // group.version.Kind, where the group may contain dots and the core group is named core.
    let mut parts = name.rsplitn(3, '.');
    let (kind, version, group) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let group = if group == "core" { "" } else { group };
    let gvk = GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() };
    let schema = api::catalogue::schema(&gvk).unwrap_or_else(|| panic!("{gvk} is not in the catalogue"));
    let (json, protobuf) = (read("json"), read("pb"));
    Fixture { schema, json, yaml: String::from_utf8(read("yaml")).unwrap(), protobuf, name }
}

/// Runs `check` on all fixtures and reports every failure.
fn check(check: impl Fn(&Fixture) -> Result<(), String>) {
    let failures: Vec<String> = fixtures()
        .iter()
        .filter_map(|fixture| check(fixture).err().map(|error| format!("{}: {error}", fixture.name)))
        .collect();
    assert!(failures.is_empty(), "{} fail\n{}", failures.len(), failures.join("\n"));
}

fn same(found: &Value, expected: &Value) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("\n  found    {found}\n  expected {expected}")) }
}

#[test]
fn compare_decoded_protobuf_with_json() {
    check(|fixture| {
        let envelope = Envelope::decode(&fixture.protobuf).map_err(|error| error.to_string())?;
        let mut found = protobuf::decode(envelope.raw, fixture.schema).map_err(|error| error.to_string())?;
        for (key, text) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
            if !text.is_empty() {
                found.as_object_mut().unwrap().insert(key, text);
            }
        }
        same(&found, &json::parse(&fixture.json).unwrap())
    });
}

#[test]
fn compare_kinds_of_envelopes() {
    check(|fixture| {
        // The envelope of a watch event has no kind.
        if Envelope::decode(&fixture.protobuf).unwrap().kind.is_empty() {
            return Ok(());
        }
        let found = protobuf::decode_object(&fixture.protobuf, &api::catalogue::schema);
        same(&found.map_err(|error| error.to_string())?, &json::parse(&fixture.json).unwrap())
    });
}

#[test]
fn compare_encoded_protobuf() {
    check(|fixture| {
        let mut bytes = Vec::new();
        let object = json::parse(&fixture.json).unwrap();
        protobuf::encode_object(&object, fixture.schema, &mut bytes).map_err(|error| error.to_string())?;
        if bytes == fixture.protobuf {
            return Ok(());
        }
        let at = bytes.iter().zip(&fixture.protobuf).take_while(|(a, b)| a == b).count();
        let around = |bytes: &[u8]| format!("{:?}", bytes[at.saturating_sub(40)..].escape_ascii().to_string());
        Err(format!("differ at {at}:\n  {}\n  {}", around(&bytes), around(&fixture.protobuf)))
    });
}

#[test]
fn compare_written_json() {
    check(|fixture| {
        let object = json::parse(&fixture.json).unwrap();
        let mut line = Vec::new();
        api::codec::JSON.write_as(&object, fixture.schema, &mut line);
        let (found, expect) = (json::indent(&line), &fixture.json);
        if found == *expect {
            return Ok(());
        }
        let at = found.iter().zip(expect).take_while(|(a, b)| a == b).count();
        let around = |bytes: &[u8]| bytes[at.saturating_sub(60)..].escape_ascii().to_string();
        Err(format!("differ at {at}:\n  {:.200}\n  {:.200}", around(&found), around(expect)))
    });
}

#[test]
fn compare_yaml_with_json() {
    check(|fixture| {
        let found = yaml::parse(&fixture.yaml).map_err(|error| error.to_string())?;
        same(&found, &json::parse(&fixture.json).unwrap())
    });
}

#[test]
fn compare_written_yaml() {
    check(|fixture| {
        let found = yaml::to_string(&json::parse(&fixture.json).unwrap());
        if found == fixture.yaml {
            return Ok(());
        }
        let lines = found.lines().zip(fixture.yaml.lines()).find(|(a, b)| a != b);
        Err(format!("first difference: {lines:?}"))
    });
}
