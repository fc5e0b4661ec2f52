//! Discovery and OpenAPI, compared with a recording of kube-apiserver.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Kind;
use api::kind::Version;
use apimachinery::{Object, Value, json, value};
use openapi::discovery::{self, AggregatedVersion};
use openapi::{Table, v2, v3};

fn read(reference: &std::path::Path, file: &str) -> Value {
    let path = reference.join(file);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    json::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a test with all versions enabled, as on the recorded server.
fn with_table<T>(test: impl FnOnce(&Table<'_>) -> T) -> T {
    let kinds: Vec<Arc<Kind>> = api::kinds::all();
    test(&Table { kinds: &kinds, served: &|_: &Kind, _: &Version| true })
}

#[test]
fn compare_discovery() {
    let reference = test_requirements::upstream("reference");
    with_table(|table| {
        let (mut same, mut differences) = (0, Vec::new());
        let mut check = |file: &str, actual: Option<Value>| {
            let mut expected = read(&reference, &format!("discovery/{file}.json"));
            let mut actual = actual.unwrap_or_else(|| panic!("{file}: nothing"));
            for document in [&mut actual, &mut expected] {
                remove_stored_versions(document);
                keep_versions_of(table, document);
            }
            if actual == expected {
                same += 1;
            } else {
                differences.push(format!("{file}: {}", first_difference(&actual, &expected, "")));
            }
        };
        check("api", Some(discovery::legacy_versions(table, "10.10.10.10:8050")));
        check("apis", Some(discovery::groups(table)));
        check("api__v1", discovery::resources(table, "", "v1"));
        for group in table.groups().into_iter().filter(|group| !group.is_empty()) {
            check(&format!("apis__{group}"), discovery::group(table, group));
            for version in table.versions(group) {
                check(&format!("apis__{group}__{version}"), discovery::resources(table, group, version));
            }
        }
        check("aggregated_v2", Some(discovery::aggregated(table, AggregatedVersion::V2)));
        assert!(differences.is_empty(), "{same} documents are the same, not these: {differences:#?}");
    });
}

/// Kinds that upstream still stores in versions not served by default, while Knarr stores them in the served version.
const STORED_ELSEWHERE: [&str; 4] =
    ["CustomResourceDefinition", "DeviceTaintRule", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];

fn remove_stored_versions(document: &mut Value) {
    let resources = document.get_mut("resources").and_then(Value::as_array_mut);
    for resource in resources.into_iter().flatten().filter_map(Value::as_object_mut) {
        let kind = resource.get("kind").and_then(Value::as_str).unwrap_or_default();
        if STORED_ELSEWHERE.contains(&kind) {
            resource.remove("storageVersionHash");
        }
    }
}

/// Drops versions of groups that the table does not have.
fn keep_versions_of(table: &Table<'_>, document: &mut Value) {
    fn retain(table: &Table<'_>, group: &mut Value) {
        let name = group.str_at(&["metadata", "name"]).or(group.str_at(&["name"])).unwrap_or_default().to_owned();
        let known = table.versions(&name);
        if let Some(versions) = group.get_mut("versions").and_then(Value::as_array_mut) {
            versions.retain(|version| version.str_at(&["version"]).is_none_or(|version| known.contains(&version)));
        }
    }
    retain(table, document);
    for list in ["groups", "items"] {
        let groups = document.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        groups.for_each(|group| retain(table, group));
    }
}

#[test]
fn compare_schemas_and_operations() {
    let reference = test_requirements::upstream("reference");
    let (mut schemas, mut operations) = (Score::default(), Score::default());
    with_table(|table| {
        for path in v3::documents(table) {
            let name = format!("openapi-v3/{}_openapi.json", path.replace('/', "__"));
            if !reference.join(&name).exists() {
                continue;
            }
            let (mut actual, mut expected) = (v3::document(table, &path).unwrap(), read(&reference, &name));
            [&mut actual, &mut expected].into_iter().for_each(strip);
            let members = ["components", "schemas"];
            schemas.compare(&path, actual.at(&members), expected.at(&members));
            operations.compare(&path, actual.get("paths"), expected.get("paths"));
        }
        let (mut actual, mut expected) = (v2::document(table), read(&reference, "swagger.json"));
        for document in [&mut actual, &mut expected] {
            resolve(document);
            strip(document);
        }
        schemas.compare("v2", actual.get("definitions"), expected.get("definitions"));
        operations.compare("v2", actual.get("paths"), expected.get("paths"));
    });
    schemas.print("schemas");
    operations.print("paths");
    assert!(schemas.share() > 0.98, "schemas");
    assert!(operations.share() > 0.97, "paths");
}

/// The number of equal members of two objects.
#[derive(Default)]
struct Score {
    same: usize,
    all: usize,
    differences: BTreeMap<String, String>,
}

impl Score {
    fn compare(&mut self, document: &str, actual: Option<&Value>, expected: Option<&Value>) {
        static NONE: Object = Object::new();
        let object = |value: Option<&Value>| value.and_then(Value::as_object).unwrap_or(&NONE).clone();
        let (actual, expected) = (object(actual), object(expected));
        for (name, expected) in expected.iter() {
            self.all += 1;
            match actual.get(name) {
                Some(actual) if actual == expected => self.same += 1,
                Some(actual) => {
                    let difference = first_difference(actual, expected, "");
                    self.differences.insert(name.to_owned(), format!("{document}: {difference}"));
                }
                None => drop(self.differences.insert(name.to_owned(), format!("{document}: absent"))),
            }
        }
        for name in actual.keys().filter(|name| !expected.contains_key(name)) {
            self.all += 1;
            self.differences.insert(name.to_owned(), format!("{document}: not upstream's"));
        }
    }

    fn share(&self) -> f64 {
        self.same as f64 / self.all.max(1) as f64
    }

    fn print(&self, what: &str) {
        println!("{what}: {} of {} are the same", self.same, self.all);
        for (name, difference) in self.differences.iter().take(60) {
            println!("  {name} in {difference}");
        }
    }
}

/// Removes descriptions, the order of required fields, and features that upstream only has with alpha features enabled
/// (CBOR, shards).
fn strip(value: &mut Value) {
    match value {
        Value::Object(object) => {
            let description = object.get("description").is_some_and(|description| description.as_str().is_some());
            object.retain(|key, _| !(key.contains("cbor") || description && key == "description"));
            if let Some(Value::Array(required)) = object.get_mut("required") {
                required.sort_by_key(|name| name.as_str().unwrap_or_default().to_owned());
            }
            object.iter_mut().for_each(|(_, value)| strip(value));
        }
        Value::Array(items) => {
            items.retain(|item| {
                !item.as_str().is_some_and(|text| text.contains("cbor"))
                    && item.str_at(&["name"]) != Some("shardSelector")
            });
            items.iter_mut().for_each(strip);
            if items.iter().any(|item| item.get("in").is_some()) {
                items.sort_by_key(|item| item.text_at(&["name"]).to_owned());
            }
        }
        _ => {}
    }
}

/// Inlines shared parameters.
fn resolve(document: &mut Value) {
    let shared = document["parameters"].clone();
    fn walk(value: &mut Value, shared: &Value) {
        if let Some(name) = value.str_at(&["$ref"]).and_then(|path| path.strip_prefix("#/parameters/")) {
            *value = shared[name].clone();
        }
        match value {
            Value::Object(object) => object.iter_mut().for_each(|(_, value)| walk(value, shared)),
            Value::Array(items) => items.iter_mut().for_each(|value| walk(value, shared)),
            _ => {}
        }
    }
    walk(document, &shared);
}

fn first_difference(actual: &Value, expected: &Value, path: &str) -> String {
    match (actual, expected) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, expected) in b.iter() {
                let below = format!("{path}.{key}");
                match a.get(key) {
                    Some(actual) if actual != expected => return first_difference(actual, expected, &below),
                    Some(_) => {}
                    None => return format!("{below} is absent, theirs {}", short(expected)),
                }
            }
            let extra = a.iter().find(|(key, _)| !b.contains_key(key));
            extra.map(|(key, value)| format!("{path}.{key} is extra: {}", short(value))).unwrap_or_default()
        }
        (Value::Array(a), Value::Array(b)) => {
            let differ = a.iter().zip(b).position(|(a, b)| a != b);
            match differ {
                Some(at) => first_difference(&a[at], &b[at], &format!("{path}[{at}]")),
                None => {
                    let at = a.len().min(b.len());
                    let more = |list: &[Value]| list.get(at).map_or_else(String::new, short);
                    format!("{path} has {} items, theirs {}: {} {}", a.len(), b.len(), more(a), more(b))
                }
            }
        }
        _ => format!("{path}: {} theirs {}", short(actual), short(expected)),
    }
}

fn short(value: &Value) -> String {
    json::to_string(value).chars().take(200).collect()
}

#[test]
fn hashes_change_with_the_kinds_and_the_index_lists_all_documents() {
    let kinds = api::kinds::all();
    let all = Table { kinds: &kinds, served: &|_: &Kind, _: &Version| true };
    let usual = Table { kinds: &kinds, served: &|_: &Kind, version: &Version| version.served };
    let index = v3::index(&usual);
    assert_ne!(v3::index(&all), index);
    assert_ne!(v2::document_hash(&all), v2::document_hash(&usual));
    for path in index["paths"].as_object().unwrap().keys() {
        assert!(v3::document_hash(&usual, path).is_some(), "{path}");
    }
    assert_eq!(v3::document(&usual, "apis/nothing"), None);
    assert_eq!(v3::document(&usual, "apis/apps/v9"), None);
    assert_eq!(v3::document_hash(&all, "api/v1"), v3::document_hash(&usual, "api/v1"), "the documents are equal");
    assert_eq!(value!({"paths": {}})["paths"], Value::object());
}
