//! Every HTTP method × URL form × kind × role: what a request did to the store, or showed of it, is something that the role permits.
//!
//! The oracle knows nothing of how the server reads a URL. It compares the store before and after each request, looks at what a read
//! returned, and asks the role whether it permits that verb in that scope. A matrix in which nothing happens would prove nothing,
//! so every verb of every kind must have been seen to run for somebody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::kind::{Connect, Does, Keeping, Kind, Question, Subresource, Verb};
use http::Method;
use machinery::meta::{Meta, MetaMut};
use machinery::{Value, json, value};

use crate::cluster::{ADMIN, Answer, Cluster, OTHER, Objects, ROLES, Role, TENANT};
use crate::samples::{Samples, names};

const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json";

/// The methods, and the media types of their bodies.
const METHODS: [(Method, &str); 8] = [
    (Method::GET, ""),
    (Method::HEAD, ""),
    (Method::OPTIONS, ""),
    (Method::POST, JSON),
    (Method::PUT, JSON),
    (Method::PATCH, MERGE),
    (Method::PATCH, APPLY),
    (Method::DELETE, ""),
];

/// Where the resource stands in the URL.
const PLACES: [&str; 2] = ["", "namespaces/tenant/"];

/// Kinds whose status the server itself writes later, so that it is not compared.
const SERVERS_OWN: [&str; 4] = ["CustomResourceDefinition", "APIService", "FlowSchema", "PriorityLevelConfiguration"];

/// One URL of a kind.
struct Url<'a> {
    text: String,
    /// The name in it.
    name: Option<&'a str>,
    subresource: Option<&'a Subresource>,
}

/// One request.
struct Case<'a> {
    kind: &'a Kind,
    role: Role,
    method: &'a Method,
    media: &'a str,
    url: &'a Url<'a>,
}

struct Matrix {
    cluster: Cluster,
    samples: Samples,
    /// The store as every request finds it.
    baseline: Objects,
    requests: usize,
    /// The verbs that were seen to run, by resource.
    seen: BTreeMap<String, BTreeSet<&'static str>>,
    violations: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_verb_and_scope_that_were_authorized_are_the_verb_and_scope_that_ran() {
    let cluster = Cluster::start().await;
    let mut matrix = Matrix {
        cluster,
        samples: Samples::new(),
        baseline: Objects::new(),
        requests: 0,
        seen: BTreeMap::new(),
        violations: Vec::new(),
    };
    for (plural, kind, scope) in [("widgets", "Widget", "Namespaced"), ("machines", "Machine", "Cluster")] {
        matrix.define(plural, kind, scope).await;
    }
    let kinds: Vec<Arc<Kind>> = matrix.cluster.server.state().table().kinds.clone();
    assert!(kinds.len() > 75, "the table has all kinds: {}", kinds.len());
    for kind in &kinds {
        matrix.seed(kind).await;
    }
    assert!(matrix.violations.is_empty(), "{}", matrix.violations.join("\n"));
    matrix.baseline = matrix.cluster.objects().await;
    for kind in &kinds {
        matrix.kind(kind).await;
    }
    let violations = matrix.violations;
    assert!(
        violations.is_empty(),
        "{} violations, the first are:\n{}",
        violations.len(),
        violations[..violations.len().min(40)].join("\n")
    );
    let unseen: Vec<String> = kinds.iter().filter_map(|kind| unseen(kind, &matrix.seen)).collect();
    assert!(unseen.is_empty(), "nobody was seen to:\n{}", unseen.join("\n"));
    println!("{} requests to {} kinds", matrix.requests, kinds.len());
}

/// The verbs of a kind that nobody was seen to run.
fn unseen(kind: &Kind, seen: &BTreeMap<String, BTreeSet<&'static str>>) -> Option<String> {
    let resource = kind.qualified_resource();
    let seen = seen.get(&resource).cloned().unwrap_or_default();
    let wanted = kind.verbs.iter().map(|verb| verb.name());
    let wanted: Vec<&str> = wanted.filter(|verb| !seen.contains(verb)).collect();
    (!wanted.is_empty()).then(|| format!("{} {resource}", wanted.join(", ")))
}

fn version(kind: &Kind) -> &str {
    &kind.versions.iter().find(|version| version.served).expect("all versions are served").name
}

fn root(kind: &Kind) -> String {
    match kind.group.as_str() {
        "" => format!("/api/{}/", version(kind)),
        group => format!("/apis/{group}/{}/", version(kind)),
    }
}

impl Matrix {
    /// Makes a custom resource with all subresources.
    async fn define(&mut self, plural: &str, kind: &str, scope: &str) {
        let definition = value!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": (format!("{plural}.example.com"))},
            "spec": {
                "group": "example.com", "scope": scope, "names": {"plural": plural, "kind": kind},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
                    },
                }],
            },
        });
        let url = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let made = self.cluster.send(ADMIN, Method::POST, url, JSON, json::to_vec(&definition)).await;
        assert_eq!(made.code, 201, "{}", made.body);
        self.cluster.until(&format!("/apis/example.com/v1/{plural}"), |answer| answer.code == 200).await;
    }

    /// Creates the objects of a kind that requests are about.
    async fn seed(&mut self, kind: &Kind) {
        if matches!(kind.keeping, Keeping::Answered(_)) || kind.plural == "namespaces" {
            return;
        }
        let [name, _] = names(kind);
        let namespaces: &[&str] = if kind.is_namespaced() { &[TENANT, OTHER] } else { &[""] };
        for namespace in namespaces {
            let place = if kind.is_namespaced() { format!("namespaces/{namespace}/") } else { String::new() };
            let url = format!("{}{place}{}", root(kind), kind.plural);
            let object = self.samples.object(kind, version(kind), namespace, name);
            let made = self.cluster.send(ADMIN, Method::POST, &url, JSON, json::to_vec(&object)).await;
            if made.code != 201 {
                self.violations.push(format!("POST {url}: the sample is not valid: {}", made.told()));
            }
        }
        if matches!(kind.kind.as_str(), "CustomResourceDefinition" | "APIService") {
            let url = format!("{}{}/{name}", root(kind), kind.plural);
            self.cluster.until(&url, |answer| answer.body.at(&["status", "conditions"]).is_some()).await;
        }
    }

    /// All requests to a kind.
    async fn kind(&mut self, kind: &Arc<Kind>) {
        for prefix in ["", "watch/", "proxy/"] {
            for place in PLACES {
                for url in urls(kind, prefix, place) {
                    for role in ROLES {
                        // Who holds neither verb of the prefixes is refused below them as anywhere else.
                        if !prefix.is_empty() && !matches!(role.verb, "watch" | "proxy" | "*") {
                            continue;
                        }
                        for (method, media) in &METHODS {
                            self.request(&Case { kind, role, method, media, url: &url }).await;
                        }
                    }
                }
            }
        }
    }

    async fn request(&mut self, case: &Case<'_>) {
        let before = self.cluster.revision();
        let Case { role, method, media, url, .. } = *case;
        let query = if media == APPLY { "?fieldManager=matrix&force=true" } else { "" };
        let text = format!("{}{query}", url.text);
        let answer = self.cluster.send(role, method.clone(), &text, media, self.body(case)).await;
        self.requests += 1;
        let what = format!("{} {method} {text} ({media}): {}", role.user, answer.told());
        self.judge_answer(case, &answer, &what);
        if self.cluster.revision() != before {
            self.judge_effects(case, &answer, &what).await;
        }
    }

    /// What is sent: a new object, the object with a change, or a change of it.
    fn body(&self, case: &Case<'_>) -> Vec<u8> {
        let Case { kind, method, media, url, .. } = *case;
        let [existing, fresh] = names(kind);
        // A binding is of a pod that there is.
        let name = url.name.unwrap_or(if kind.plural == "bindings" { existing } else { fresh });
        let sample = || self.samples.object(kind, version(kind), TENANT, name);
        let part = url.subresource.and_then(|part| part.kind.clone().map(|gvk| (part, gvk)));
        let mut object = match (method, media, part) {
            (_, MERGE, _) => {
                return json::to_vec(
                    &value!({"metadata": {"annotations": {"changed": "yes"}}, "spec": {"replicas": 3, "size": 3}}),
                );
            }
            (&Method::POST | &Method::PUT | &Method::PATCH, _, Some((part, gvk))) => {
                value!({
                    "apiVersion": (gvk.api_version()), "kind": (gvk.kind.as_str()), "metadata": {"name": name},
                    "spec": {"replicas": (if part.name == "scale" { 3 } else { 0 })},
                    "target": {"kind": "Node", "name": "sample"},
                })
            }
            (&Method::PUT, ..) => match self.stored(kind, url) {
                Some(stored) if stored.get("apiVersion") == sample().get("apiVersion") => stored,
                // It is stored in another version.
                Some(stored) => {
                    let mut object = sample();
                    let version = Meta::of(&stored).resource_version();
                    MetaMut::of(&mut object).unwrap().set("resourceVersion", version);
                    object
                }
                None => sample(),
            },
            (&Method::POST | &Method::PATCH, ..) => sample(),
            _ => return Vec::new(),
        };
        if let Some(mut meta) = MetaMut::of(&mut object) {
            meta.set("annotations", value!({"changed": "yes"}));
            meta.remove("managedFields");
        }
        json::to_vec(&object)
    }

    /// The object that a URL is about, as the store has it.
    fn stored(&self, kind: &Kind, url: &Url<'_>) -> Option<Value> {
        let namespace = if kind.is_namespaced() { TENANT } else { "" };
        let key = self.cluster.server.state().layout.key(kind, namespace, url.name?);
        let (bytes, revision) = self.baseline.get(std::str::from_utf8(&key).unwrap())?;
        let mut object = json::parse(bytes).unwrap();
        MetaMut::of(&mut object).unwrap().set_resource_version(revision.unsigned_abs());
        Some(object)
    }

    /// Judges what a request was shown, or reached outside the store.
    fn judge_answer(&mut self, case: &Case<'_>, answer: &Answer, what: &str) {
        let Case { kind, method, url, .. } = *case;
        let is_served = answer.code < 300;
        let place = if url.text.contains("namespaces/tenant/") { TENANT } else { "" };
        let place = if kind.is_namespaced() { place } else { "" };
        if let Some(verbs) = reached(kind, url, method)
            && !matches!(answer.code, 401 | 403 | 404 | 405)
        {
            self.require(case, &verbs, place, what);
            return;
        }
        if !is_served || !matches!(*method, Method::GET | Method::HEAD) {
            return;
        }
        if *method == Method::HEAD {
            // The answer has no body, so that only its URL names what was read.
            let verb = match url.name {
                _ if url.text.contains("/watch/") => "watch",
                Some(_) => "get",
                None => "list",
            };
            let scope = scope(kind, place, url.name.unwrap_or_default());
            self.require(case, &[verb], &scope, what);
            return;
        }
        let (verb, objects) = match answer.body.get("items").and_then(Value::as_array) {
            _ if answer.is_watch => ("watch", answer.body.get("object").cloned().into_iter().collect()),
            Some(items) => ("list", items.to_vec()),
            None => ("get", vec![answer.body.clone()]),
        };
        for object in &objects {
            let meta = Meta::of(object);
            let scope = scope(kind, meta.namespace(), meta.name());
            self.require(case, &[verb], &scope, what);
        }
    }

    /// Judges what a request did to the store, and undoes it.
    async fn judge_effects(&mut self, case: &Case<'_>, answer: &Answer, what: &str) {
        let Case { kind, url, .. } = *case;
        let after = self.cluster.objects().await;
        let span = self.cluster.server.state().layout.span_start(kind, "");
        let is_action = url.subresource.is_some_and(|part| matches!(part.does, Does::Bind | Does::Evict));
        let binds = kind.plural == "bindings" || is_action;
        let keys: BTreeSet<&String> = after.keys().chain(self.baseline.keys()).collect();
        let mut findings = Vec::new();
        for key in keys {
            let [old, new] = [self.baseline.get(key), after.get(key)].map(|found| found.map(|(bytes, _)| bytes));
            if old == new {
                continue;
            }
            let [old, new] = [old, new].map(|found| found.map(|bytes| json::parse(bytes).unwrap()));
            let Some(verbs) = effect(old.as_ref(), new.as_ref()) else { continue };
            let verbs: &[&str] = if binds { &["create"] } else { verbs };
            let object = new.or(old).unwrap();
            let meta = Meta::of(&object);
            let is_of_kind = key.starts_with(&span) || (binds && key.contains("/pods/"));
            if !is_of_kind && goes_along(kind, key) {
                continue;
            }
            if !is_of_kind || answer.code >= 400 {
                self.violations.push(format!("{what}: changed {key}"));
            }
            let place = if key.contains("/namespaces/") { meta.name() } else { meta.namespace() };
            findings.push((verbs.to_vec(), place.to_owned()));
        }
        for (verbs, place) in findings {
            self.require(case, &verbs, &place, what);
        }
        self.settle(kind).await;
    }

    /// Brings the store back to the baseline, once the server has done what it does after the request.
    async fn settle(&mut self, kind: &Kind) {
        if kind.kind == "CustomResourceDefinition" {
            // Deleted definitions go once their objects are gone.
            let gone = |answer: &Answer| answer.body.at(&["metadata", "deletionTimestamp"]).is_none();
            for (key, _) in self.cluster.objects().await {
                if let Some(name) = key.strip_prefix("/registry/apiextensions.k8s.io/customresourcedefinitions/") {
                    self.cluster.until(&format!("{}{}/{name}", root(kind), kind.plural), gone).await;
                }
            }
        }
        self.cluster.restore(&self.baseline).await;
        if SERVERS_OWN.contains(&kind.kind.as_str()) {
            for plural in ["widgets", "machines"] {
                self.cluster.until(&format!("/apis/example.com/v1/{plural}"), |answer| answer.code == 200).await;
            }
        }
        self.baseline = self.cluster.objects().await;
    }

    /// Notes that one of the verbs ran in a scope, which the role must permit.
    fn require(&mut self, case: &Case<'_>, verbs: &[&'static str], scope: &str, what: &str) {
        if case.role.permits(verbs, scope) {
            let ran = if verbs.len() == 1 { verbs[0] } else { own_verb(case) };
            self.seen.entry(case.kind.qualified_resource()).or_default().insert(ran);
            return;
        }
        let scope = if scope.is_empty() { "the cluster" } else { scope };
        self.violations.push(format!("{what}: ran {} in {scope}", verbs.join(" or ")));
    }
}

/// Which of several verbs with the same effect a request was, for the count of what was seen.
fn own_verb(case: &Case<'_>) -> &'static str {
    match (case.method, case.url.name) {
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, Some(_)) => "delete",
        (&Method::DELETE, None) => "deletecollection",
        _ => "",
    }
}

/// The URLs of a kind below a prefix, in a place: the collection, an object that there is, one that there is not, and subresources.
fn urls<'a>(kind: &'a Kind, prefix: &str, place: &str) -> Vec<Url<'a>> {
    let base = format!("{}{prefix}{place}{}", root(kind), kind.plural);
    let [sample, fresh] = names(kind);
    let mut urls = vec![
        Url { text: base.clone(), name: None, subresource: None },
        Url { text: format!("{base}/{sample}"), name: Some(sample), subresource: None },
        Url { text: format!("{base}/{fresh}"), name: Some(fresh), subresource: None },
    ];
    let own = kind.versions.iter().find(|one| one.served).map(|one| &one.subresources[..]).unwrap_or_default();
    for part in kind.subresources.iter().chain(own) {
        let text = format!("{base}/{sample}/{}", part.name);
        urls.push(Url { text, name: Some(sample), subresource: Some(part) });
    }
    urls
}

/// The verbs that a request needs which leaves no trace in the store once it was not refused: it opened a stream, or was answered.
fn reached(kind: &Kind, url: &Url<'_>, method: &Method) -> Option<Vec<&'static str>> {
    if let Keeping::Answered(question) = kind.keeping {
        return (question != Question::ComponentStatus).then(|| vec![Verb::Create.name()]);
    }
    Some(match &url.subresource?.does {
        Does::Token | Does::Connect(Connect::Exec | Connect::Attach | Connect::PortForward) => vec!["create"],
        Does::Connect(Connect::Log) => vec!["get"],
        Does::Connect(Connect::Proxy) => vec![match *method {
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "options",
        }],
        Does::Part | Does::Scale(_) | Does::Bind | Does::Evict => return None,
    })
}

/// The verbs by which an object can have changed so; none if it did not.
fn effect(old: Option<&Value>, new: Option<&Value>) -> Option<&'static [&'static str]> {
    match (old, new) {
        (None, Some(_)) => Some(&["create"]),
        (Some(_), None) => Some(&["delete", "deletecollection"]),
        (Some(old), Some(new)) if compared(old) != compared(new) => {
            // The server makes some objects anew when they were deleted.
            let is_another = Meta::of(new).uid() != Meta::of(old).uid();
            let ends = is_another || (Meta::of(new).is_deleting() && !Meta::of(old).is_deleting());
            Some(if ends { &["delete", "deletecollection"] } else { &["update", "patch"] })
        }
        _ => None,
    }
}

/// What of an object only requests change.
fn compared(object: &Value) -> Value {
    let mut object = object.clone();
    if SERVERS_OWN.iter().any(|kind| object.str_at(&["kind"]) == Some(*kind))
        && let Value::Object(fields) = &mut object
    {
        fields.remove("status");
        MetaMut::of(&mut object).unwrap().remove("managedFields");
    }
    object
}

/// Whether the server writes a key of another kind because of a request: the address of a service, and what there is of a definition.
fn goes_along(kind: &Kind, key: &str) -> bool {
    match kind.kind.as_str() {
        "Service" => key.contains("/ipaddresses/"),
        "CustomResourceDefinition" => key.contains("/apiservices/") || key.contains("/example.com/"),
        _ => false,
    }
}

/// The scope of an object: its namespace, or the cluster. A namespace is in its own.
fn scope(kind: &Kind, namespace: &str, name: &str) -> String {
    let own = if kind.group.is_empty() && kind.plural == "namespaces" { name } else { namespace };
    own.to_owned()
}
