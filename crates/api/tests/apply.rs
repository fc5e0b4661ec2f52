//! Managed fields compared with recordings of Kubernetes 1.36, request by request.
//!
//! The recordings contain the object after each write. Given the object before a write and the request (apply) or the
//! resulting object (any other write), the same managers or the same error must result.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use api::catalogue;
use apimachinery::apply::scale::{ReplicasPaths, owners_after_scale, owners_of_scale};
use apimachinery::apply::{Error, FieldSet, OneVersion, Owners, Write, field_set, zero};
use apimachinery::time::Time;
use apimachinery::{GroupVersionKind, Value, json};

#[test]
fn compare_managers_after_apply() {
    let results = replay(&["apply"], is_apply);
    results.report("applies");
    assert!(results.wrong.is_empty(), "{} of {} differ", results.wrong.len(), results.checked());
    assert!(results.same >= 280, "only {} applies were found", results.same);
}

#[test]
fn compare_managers_after_other_writes() {
    let results = replay(&["apply", "lifecycle", "update"], |step| !is_apply(step));
    results.report("other writes");
    assert!(results.wrong.is_empty(), "{} of {} differ", results.wrong.len(), results.checked());
    assert!(results.same >= 540, "only {} writes were found", results.same);
}

#[test]
fn compare_managers_after_scale() {
    let scenarios = recordings("subresources");
    let scale = scenarios.iter().find(|it| it["name"].as_str() == Some("subresources/scale")).expect("it is recorded");
    let mut parent = Value::Null;
    let mut checked = 0;
    for step in scale["steps"].as_array().unwrap_or_default().iter().filter_map(|step| Step::of("scale", step)) {
        if step.response.str_at(&["kind"]) == Some("Deployment") {
            if step.method == "GET" {
                assert_eq!(owners_of(&parent), owners_of(step.response));
                checked += 1;
            }
            parent = step.response.clone();
        } else if step.is_write() && step.response.str_at(&["kind"]) == Some("Scale") {
            write_scale(&step, &mut parent);
        }
    }
    assert_eq!(checked, 2);
}

/// Writes the `scale` of a deployment and updates the deployment's managed fields.
fn write_scale(step: &Step<'_>, parent: &mut Value) {
    let kind = GroupVersionKind::of("autoscaling", "v1", "Scale");
    let schema = catalogue::schema(&kind).expect("every kind is in the catalogue");
    let paths = ReplicasPaths::spec_replicas("apps/v1");
    let owners = Owners::of(parent).expect("recorded owners can be read");
    let mut live = step.response.clone();
    let metadata = live.get_mut("metadata").and_then(Value::as_object_mut).expect("objects have metadata");
    metadata.insert("managedFields", owners_of_scale(&owners, &paths).to_value());
    let spec = live.get_mut("spec").and_then(Value::as_object_mut).expect("scales have a spec");
    spec.insert("replicas", parent["spec"]["replicas"].clone());
    let versions = OneVersion {
        api_version: "autoscaling/v1",
        schema,
        reset_fields: FieldSet::of_fields(&["status"]),
        empty: zero(schema),
    };
    let write = Write {
        versions: &versions,
        api_version: "autoscaling/v1",
        kind: "Scale",
        subresource: "scale",
        manager: step.parameter("fieldManager").unwrap_or_default(),
        now: NOW,
    };
    let written = if is_apply(step) {
        write.apply(Some(&live), step.body, true).map(|applied| applied.object)
    } else {
        write.update(Some(&live), step.response.clone())
    };
    let written = written.expect("the write was accepted");
    let scale = Owners::of(&written).expect("owners can be read");
    let after = owners_after_scale(&owners, &scale, "apps/v1", &paths);
    let metadata = parent.get_mut("metadata").and_then(Value::as_object_mut).expect("objects have metadata");
    metadata.insert("managedFields", after.to_value());
    let spec = parent.get_mut("spec").and_then(Value::as_object_mut).expect("deployments have a spec");
    spec.insert("replicas", written["spec"]["replicas"].clone());
}

const NOW: Time = Time::from_unix(1_700_000_000, 0);

/// Counts of compared writes.
#[derive(Default)]
struct ResultCounts {
    same: usize,
    /// Writes after which the server set more fields: these are in the object and have no manager.
    within: usize,
    wrong: Vec<String>,
}

impl ResultCounts {
    fn checked(&self) -> usize {
        self.same + self.within + self.wrong.len()
    }

    fn report(&self, what: &str) {
        for wrong in &self.wrong {
            println!("{wrong}");
        }
        println!(
            "{what}: {} the same, {} but for fields the server set, {} wrong",
            self.same,
            self.within,
            self.wrong.len()
        );
    }
}

/// A recorded request and response.
struct Step<'a> {
    name: &'a str,
    method: &'a str,
    path: &'a str,
    query: &'a str,
    body: &'a Value,
    code: i64,
    response: &'a Value,
    content_type: &'a str,
}

impl<'a> Step<'a> {
    fn of(name: &'a str, step: &'a Value) -> Option<Self> {
        let (path, query) = step["do"]["path"].as_str()?.split_once('?').unwrap_or((step["do"]["path"].as_str()?, ""));
        Some(Self {
            name,
            method: step["do"]["method"].as_str().unwrap_or("GET"),
            path,
            query,
            body: &step["do"]["body"],
            code: step["expect"]["code"].as_int()?,
            response: &step["expect"]["body"],
            content_type: step["do"]["type"].as_str().unwrap_or_default(),
        })
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        self.query.split('&').filter_map(|it| it.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    fn is_write(&self) -> bool {
        matches!(self.method, "POST" | "PUT" | "PATCH") && (self.code == 200 || self.code == 201)
    }

    fn subresource(&self) -> &'static str {
        if self.path.ends_with("/status") { "status" } else { "" }
    }

    /// Returns the path of the object, without subresource or query.
    fn object_path(&self) -> String {
        match (self.method, self.response.str_at(&["metadata", "name"])) {
            ("POST", Some(name)) => format!("{}/{name}", self.path),
            _ => self.path.trim_end_matches("/status").to_owned(),
        }
    }
}

fn is_apply(step: &Step<'_>) -> bool {
    step.content_type.starts_with("application/apply-patch")
}

/// Replays recordings and checks the writes that `filter` selects.
fn replay(files: &[&str], filter: fn(&Step<'_>) -> bool) -> ResultCounts {
    let mut results = ResultCounts::default();
    for file in files {
        for scenario in recordings(file) {
            replay_one(&scenario, filter, &mut results);
        }
    }
    results
}

fn recordings(file: &str) -> Vec<Value> {
    let path = test_requirements::upstream(&format!("golden/{file}.jsonl"));
    let text = std::fs::read_to_string(path).expect("a recording can be read");
    // The recordings replace ports that differ between runs by a string where a number belongs.
    let text = text.replace("\"<node port>\"", "30000");
    json::parse_all(text.as_bytes()).expect("recordings are JSON")
}

fn replay_one(scenario: &Value, filter: fn(&Step<'_>) -> bool, results: &mut ResultCounts) {
    let name = scenario["name"].as_str().unwrap_or_default();
    let mut objects: BTreeMap<String, Value> = BTreeMap::new();
    for step in scenario["steps"].as_array().unwrap_or_default().iter().filter_map(|step| Step::of(name, step)) {
        let path = step.object_path();
        if filter(&step) && matches!(step.method, "POST" | "PUT" | "PATCH") {
            check(&step, objects.get(&path), results);
        }
        let deleted = step.method == "DELETE" && step.response.at(&["metadata", "deletionTimestamp"]).is_none();
        if deleted && step.code == 200 {
            objects.remove(&path);
        } else if (step.code == 200 || step.code == 201)
            && step.parameter("dryRun").is_none()
            && is_object(step.response)
        {
            objects.insert(path, step.response.clone());
        }
    }
}

fn is_object(response: &Value) -> bool {
    response.str_at(&["metadata", "uid"]).is_some() && response.str_at(&["kind"]).is_some()
}

fn check(step: &Step<'_>, live: Option<&Value>, results: &mut ResultCounts) {
    let described = if is_apply(step) { step.body } else { step.response };
    let Ok(kind) = GroupVersionKind::of_object(described) else { return };
    let Some(schema) = catalogue::schema(&kind) else { return };
    let api_version = kind.api_version();
    let reset: &[&str] = match (step.subresource(), kind.kind.as_str()) {
        ("status", _) => &["spec"],
        (_, "CertificateSigningRequest") => &["spec", "status"],
        _ => &["status"],
    };
    let mut empty = zero(schema);
    if let Value::Object(empty) = &mut empty {
        empty.insert("apiVersion", api_version.clone());
        empty.insert("kind", kind.kind.clone());
    }
    let versions = OneVersion { api_version: &api_version, schema, reset_fields: FieldSet::of_fields(reset), empty };
    let write = Write {
        versions: &versions,
        api_version: &api_version,
        kind: &kind.kind,
        subresource: step.subresource(),
        manager: step.parameter("fieldManager").unwrap_or_default(),
        now: NOW,
    };
    if is_apply(step) {
        check_apply(step, &write, live, results);
    } else if step.is_write() && is_object(step.response) {
        check_update(step, &write, live, results);
    }
}

fn check_apply(step: &Step<'_>, write: &Write<'_>, live: Option<&Value>, results: &mut ResultCounts) {
    if write.manager.is_empty() || step.code == 422 || step.code == 404 {
        return;
    }
    let force = step.parameter("force") == Some("true");
    match (write.apply(live, step.body, force), step.is_write()) {
        (Ok(applied), true) => {
            let have = owners_of(&applied.object);
            let mut want = owners_of(step.response);
            // The server's controllers write the status of some kinds between two requests.
            let before = live.map(owners_of).unwrap_or_default();
            want.retain(|who, _| !who.ends_with(" status") || before.contains_key(who) || have.contains_key(who));
            results.compare(step, &lines(&have), &lines(&want));
        }
        (Ok(applied), false) => {
            results.compare(step, &lines(&owners_of(&applied.object)), &recorded_error(step.response));
        }
        (Err(error), true) => results.compare(step, &error_lines(&error), &lines(&owners_of(step.response))),
        (Err(error), false) => results.compare(step, &error_lines(&error), &recorded_error(step.response)),
    }
}

fn error_lines(error: &Error) -> Vec<String> {
    let causes: Vec<_> = match error {
        Error::Conflict(conflicts) => {
            conflicts.causes().map(|cause| format!("{} {}", cause.field, cause.message)).collect()
        }
        _ => Vec::new(),
    };
    std::iter::once(error.to_string()).chain(causes).collect()
}

fn recorded_error(status: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = status["details"]["causes"].as_array().unwrap_or_default().iter();
    let causes = causes.filter(|cause| cause["reason"].as_str() == Some("FieldManagerConflict"));
    let causes = causes.map(|cause| format!("{} {}", text(&cause["field"]), text(&cause["message"])));
    std::iter::once(text(&status["message"])).chain(causes).collect()
}

fn check_update(step: &Step<'_>, write: &Write<'_>, live: Option<&Value>, results: &mut ResultCounts) {
    let mut new = step.response.clone();
    if let Some(Value::Object(metadata)) = new.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    let want = owners_of(step.response);
    match write.update(live, new) {
        Ok(object) if differs_by_what_the_server_set(step, write, &owners_of(&object), &want) => results.within += 1,
        Ok(object) => results.compare(step, &lines(&owners_of(&object)), &lines(&want)),
        Err(error) => results.compare(step, &error_lines(&error), &lines(&want)),
    }
}

/// Whether the difference results from fields that the server sets or clears after tracking managers: addresses,
/// finalizers, fields of another service type. Fields that the server sets are in the recorded object, in no recorded
/// set and not in the request. Fields that it clears are in a recorded set and not in the recorded object.
fn differs_by_what_the_server_set(
    step: &Step<'_>,
    write: &Write<'_>,
    have: &BTreeMap<String, FieldSet>,
    want: &BTreeMap<String, FieldSet>,
) -> bool {
    let Some(schema) = write.versions.schema(write.api_version) else { return false };
    if have == want || !have.keys().eq(want.keys()) {
        return false;
    }
    let requested = field_set(schema, step.body);
    let present = field_set(schema, step.response);
    have.iter().zip(want).all(|((_, have), (_, want))| {
        let (set, cleared) = (have.difference(want), want.difference(have));
        let set_by_server = set.is_empty() || step.method == "POST" && set.intersection(&requested).is_empty();
        set_by_server && cleared.intersection(&present).is_empty()
    })
}

/// Returns the field set of each manager, without times, which recordings hide.
fn owners_of(object: &Value) -> BTreeMap<String, FieldSet> {
    let owners = Owners::of(object).expect("recorded owners can be read");
    let who = |it: &apimachinery::apply::Owner| {
        format!("{} {} {} {}", it.manager, it.operation.as_str(), it.api_version, it.subresource)
    };
    owners.list().iter().map(|it| (who(it), it.fields.clone())).collect()
}

fn lines(owners: &BTreeMap<String, FieldSet>) -> Vec<String> {
    owners.iter().map(|(who, fields)| format!("{who}: {}", fields.to_json())).collect()
}

impl ResultCounts {
    fn compare(&mut self, step: &Step<'_>, have: &[String], want: &[String]) {
        if have == want {
            self.same += 1;
            return;
        }
        let mut wrong = format!("{}: {} {}?{} answered {}\n", step.name, step.method, step.path, step.query, step.code);
        for line in have.iter().filter(|line| !want.contains(line)) {
            writeln!(wrong, "  have {line}").expect("writing to memory cannot fail");
        }
        for line in want.iter().filter(|line| !have.contains(line)) {
            writeln!(wrong, "  want {line}").expect("writing to memory cannot fail");
        }
        self.wrong.push(wrong);
    }
}
