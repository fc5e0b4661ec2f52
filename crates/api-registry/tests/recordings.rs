//! Replays recorded writes to upstream's API server against the pure create and update path.
//!
//! Admission and allocation are not part of that path, so only the fields that they do not set are compared.
//! `KNARR_ONLY=deployments` selects scenarios by name and prints every difference.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;

use api::kind::{Context, Kind, Requester};
use api_registry::decode::{self, Media};
use api_registry::strategy::{self, GeneratedIds, Target};
use apimachinery::field_validation::FieldValidation;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::status::Status;
use apimachinery::time::Time;
use apimachinery::{Value, json};

const NOW: Time = Time::from_unix(1_700_000_000, 0);

#[derive(Default)]
struct Score {
    all: usize,
    code: usize,
    shape: usize,
    same: usize,
}

/// A request and the objects that existed before.
struct Request<'a> {
    kind: Arc<Kind>,
    version: String,
    namespace: String,
    name: String,
    query: BTreeMap<String, String>,
    old: Option<&'a Value>,
}

#[test]
fn compare_writes_with_recordings() {
    let dir = test_requirements::upstream("golden");
    #[expect(clippy::disallowed_methods, reason = "a developer selects one kind by it; the gate sets nothing")]
    let only = std::env::var("KNARR_ONLY").ok();
    let kinds = api::kinds::all();
    let mut scores: BTreeMap<String, Score> = BTreeMap::new();
    for file in ["invalid.jsonl", "strict.jsonl", "update.jsonl"] {
        for line in std::fs::read_to_string(dir.join(file)).unwrap().lines() {
            // Each scenario was recorded in a separate namespace.
            let scenario = json::parse(line.replace("$NS", "ns0").as_bytes()).unwrap();
            let name = scenario["name"].as_str().unwrap().to_owned();
            if only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
                play(&kinds, &scenario, &name, only.is_some(), &mut scores);
            }
        }
    }
    let mut total = Score::default();
    for (kind, score) in &scores {
        println!(
            "{kind:60} {:5} code {:5.1} shape {:5.1} same {:5.1}",
            score.all,
            percent(score.code, score.all),
            percent(score.shape, score.all),
            percent(score.same, score.all)
        );
        total.all += score.all;
        total.code += score.code;
        total.shape += score.shape;
        total.same += score.same;
    }
    let (code, same) = (percent(total.code, total.all), percent(total.same, total.all));
    println!("{} writes: code {code:.2}, shape {:.2}, same {same:.2}", total.all, percent(total.shape, total.all));
    assert!(only.is_some() || code > 94.0, "{code:.2} % of the codes are as recorded");
}

fn percent(part: usize, of: usize) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}

fn play(kinds: &[Arc<Kind>], scenario: &Value, name: &str, loud: bool, scores: &mut BTreeMap<String, Score>) {
    let mut last = Value::Null;
    for (number, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
        let (sent, expect) = (&step["do"], &step["expect"]);
        let Some(body) = body_of(sent, &last) else { continue };
        let method = sent["method"].as_str().unwrap_or("GET");
        let path = sent["path"].as_str().unwrap();
        let recorded = unblot(&expect["body"]);
        if expect.is_null() {
            continue;
        }
        let supported = (sent["type"].as_str().is_none_or(|media| Media::of(media).is_some()))
            .then(|| request(kinds, path, (method == "PUT").then_some(&last)))
            .flatten()
            .filter(|_| matches!(method, "POST" | "PUT"));
        if let Some(request) = supported {
            let media = Media::of(sent["type"].as_str().unwrap_or_default()).unwrap();
            let got = serve(&request, &body, media);
            let kind = name.split('/').nth(1).unwrap_or_default().to_owned();
            compare(&got, expect, &recorded, scores.entry(kind).or_default(), |details| {
                if loud {
                    println!("--- {name} step {number}: {method} {path}\n    sent {}\n{details}", brief(&body));
                }
            });
        }
        let accepted = matches!(expect["code"].as_int(), Some(200 | 201));
        if sent["keep"].as_bool().unwrap_or(accepted) && recorded.get("metadata").is_some() {
            last = recorded;
        }
    }
}

fn brief(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().take(1500).collect()
}

/// Returns the body of a step: verbatim, or the last object with a change.
fn body_of(sent: &Value, last: &Value) -> Option<Vec<u8>> {
    if let Some(change) = sent.get("change") {
        let merged = apimachinery::patch::Patch::Merge(change.as_object()?.clone()).apply(last.clone(), None).ok()?;
        return Some(json::to_vec(&merged));
    }
    if let Some(set) = sent.get("set").and_then(Value::as_array) {
        let mut object = last.clone();
        let path: Vec<&str> = set[0].as_array()?.iter().map(|step| step.as_str().unwrap()).collect();
        put(&mut object, &path, &set[1])?;
        return Some(json::to_vec(&object));
    }
    match sent.get("body")? {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        body => Some(json::to_vec(body)),
    }
}

fn put(value: &mut Value, path: &[&str], new: &Value) -> Option<()> {
    let (first, rest) = path.split_first()?;
    let remove = new.as_str() == Some("$REMOVE");
    match value {
        Value::Array(items) => {
            let at: usize = first.parse().ok()?;
            match rest {
                [] if remove => drop((at < items.len()).then(|| items.remove(at))?),
                [] => *items.get_mut(at)? = new.clone(),
                rest => put(items.get_mut(at)?, rest, new)?,
            }
        }
        Value::Object(fields) => match rest {
            [] if remove => drop(fields.remove(first)?),
            [] => drop(fields.insert(*first, new.clone())),
            rest => put(fields.get_mut(first)?, rest, new)?,
        },
        _ => return None,
    }
    Some(())
}

fn request<'a>(kinds: &[Arc<Kind>], path: &str, old: Option<&'a Value>) -> Option<Request<'a>> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, plural, name) = match rest {
        ["namespaces", namespace, plural, name @ ..] => (*namespace, *plural, name),
        [plural, name @ ..] => ("", *plural, name),
        [] => return None,
    };
    let kind = kinds.iter().find(|kind| kind.group == group && kind.plural == plural)?.clone();
    kind.version(version)?;
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    let query: BTreeMap<_, _> = query.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let old = old.filter(|old| name.first().is_some_and(|name| Meta::of(old).name() == *name));
    let name = match name {
        [] => String::new(),
        [name] => (*name).to_owned(),
        _ => return None,
    };
    (name.is_empty() || old.is_some()).then(|| Request {
        kind,
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        name,
        query,
        old,
    })
}

fn serve(request: &Request<'_>, bytes: &[u8], media: Media) -> Result<Value, Status> {
    let kind = &*request.kind;
    let version = kind.version(&request.version).unwrap();
    let mode = request.query.get("fieldValidation").map_or("", String::as_str).parse::<FieldValidation>();
    // Option errors are tested elsewhere.
    let Ok(mode) = mode else { return Err(Status::bad_request("options")) };
    let mut object = decode::object(bytes, media, kind, version, mode)?.object;
    let (namespace, name) = (request.namespace.as_str(), request.name.as_str());
    let target = Target { kind, version, namespace, name, subresource: "", manager: "unknown" };
    strategy::address(&target, &mut object)?;
    let requester = Requester { name: "admin".into(), groups: vec!["system:masters".into()], ..Requester::default() };
    let context = Context { version, subresource: "", now: NOW, requester: &requester };
    let ids = GeneratedIds { uid: "00000000-0000-0000-0000-000000000001".into(), suffix: "abcde".into() };
    api_registry::conversion::to_stored(&mut object, kind, version);
    match request.old {
        None => strategy::create(kind, &mut object, &ids, &context)?,
        Some(old) => {
            let mut old = old.clone();
            api_registry::conversion::to_stored(&mut old, kind, version);
            strategy::check_preconditions(kind, &mut object, &old, "KEY")?;
            strategy::update(kind, &mut object, &old, &context)?
        }
    };
    strategy::normalize(kind, &mut object);
    api_registry::conversion::from_stored(&mut object, kind, version);
    Ok(object)
}

fn compare(got: &Result<Value, Status>, expect: &Value, recorded: &Value, score: &mut Score, report: impl Fn(String)) {
    let code = expect["code"].as_int().unwrap();
    let message = recorded["message"].as_str().unwrap_or_default();
    // Not part of this path: options, conflicts with existing objects, admission, allocation.
    let elsewhere = matches!(code, 403 | 404 | 409 | 415 | 500) || message.contains("Options.meta.k8s.io");
    if elsewhere || message.contains("provided IP") || message.contains("already allocated") {
        return;
    }
    score.all += 1;
    let (got_code, got_body) = match got {
        Ok(object) => (if code == 200 { 200 } else { 201 }, comparable(object)),
        Err(status) => (i64::from(status.code), status.to_value()),
    };
    if got_code != code {
        let status_message = if code < 300 { got_body["message"].clone() } else { recorded["message"].clone() };
        return report(format!("    code {got_code}, recorded {code}: {status_message}"));
    }
    score.code += 1;
    let expected = if code < 300 { comparable(recorded) } else { recorded.clone() };
    if wordless(&got_body) == wordless(&expected) {
        score.shape += 1;
    }
    if got_body == expected {
        score.same += 1;
    } else {
        report(difference(&got_body, &expected, ""));
    }
}

/// Returns an object without random values and the fields set by admission and allocation.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(mut meta) = MetaMut::of(&mut object) {
        for field in ["uid", "creationTimestamp", "managedFields", "resourceVersion", "name"] {
            meta.remove(field);
        }
    }
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        if kind == "Service" {
            for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "ports", "healthCheckNodePort"] {
                spec.remove(field);
            }
        }
        if kind == "Pod" {
            for field in
                ["volumes", "tolerations", "serviceAccount", "serviceAccountName", "priority", "preemptionPolicy"]
            {
                spec.remove(field);
            }
            for list in ["containers", "initContainers"] {
                for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                    container.as_object_mut().map(|container| container.remove("volumeMounts"));
                }
            }
        }
    }
    object
}

fn wordless(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut out = apimachinery::Object::new();
            for (key, value) in fields.iter().filter(|(key, _)| *key != "message") {
                let mut value = wordless(value);
                if let ("causes", Value::Array(causes)) = (key, &mut value) {
                    causes.sort_by_key(ToString::to_string);
                }
                out.insert(key, value);
            }
            Value::Object(out)
        }
        Value::Array(items) => Value::Array(items.iter().map(wordless).collect()),
        other => other.clone(),
    }
}

fn difference(got: &Value, want: &Value, path: &str) -> String {
    match (got, want) {
        (Value::Object(got), Value::Object(want)) => {
            let keys: std::collections::BTreeSet<&str> = got.keys().chain(want.keys()).collect();
            let each = |key: &&str| match (got.get(key), want.get(key)) {
                (Some(got), Some(want)) if got == want => String::new(),
                (Some(got), Some(want)) => difference(got, want, &format!("{path}.{key}")),
                (Some(got), None) => format!("    {path}.{key}: unexpected {got}\n"),
                (None, want) => format!("    {path}.{key}: missing {}\n", want.unwrap_or(&Value::Null)),
            };
            keys.iter().map(each).collect()
        }
        (Value::Array(got), Value::Array(want)) if got.len() == want.len() => {
            let pairs = got.iter().zip(want).enumerate().filter(|(_, (got, want))| got != want);
            pairs.map(|(at, (got, want))| difference(got, want, &format!("{path}[{at}]"))).collect()
        }
        _ => format!("    {path}:\n      got  {got}\n      want {want}\n"),
    }
}

/// Replaces the placeholders of a recorded body by values.
fn unblot(body: &Value) -> Value {
    let text = json::to_string(body);
    let text = text.replace("\"<node port>\"", "30000").replace("<time>", "2023-11-14T22:13:20Z");
    let text = text.replace("<uid>", "00000000-0000-0000-0000-000000000001").replace("<service ip>", "10.96.0.7");
    json::parse(text.replace("<resourceVersion>", "7").replace("<random>", "abcde").as_bytes()).unwrap()
}
