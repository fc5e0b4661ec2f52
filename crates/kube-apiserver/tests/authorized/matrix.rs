//! Authorization matrix of every HTTP method × URL form × kind × role: the effects and results of a request are
//! permitted by the role.
//!
//! The oracle does not parse URLs as the server does. It compares the store before and after each request, inspects
//! what a read returned, and checks that the role permits that verb in that scope. A matrix in which nothing happens
//! would prove nothing, so every verb of every kind must succeed for some role.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::kind::{Connect, Kind, Persistence, Subresource, SubresourceAction, Verb, VirtualKind};
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Value, json, value};
use http::Method;

use crate::cluster::{ADMIN, ApiResponse, Cluster, OTHER, Objects, ROLES, Role, TENANT};
use crate::samples::{Samples, names};

const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json";

/// The methods and their content types.
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

/// The scope segments of the URL before the resource.
const PLACES: [&str; 2] = ["", "namespaces/tenant/"];

/// Kinds whose status the server updates asynchronously; the status is not compared.
const SERVERS_OWN: [&str; 4] = ["CustomResourceDefinition", "APIService", "FlowSchema", "PriorityLevelConfiguration"];

/// One URL of a kind.
struct Url<'a> {
    text: String,
    /// The object name in the URL.
    name: Option<&'a str>,
    subresource: Option<&'a Subresource>,
}

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
    /// The state of the store before every request.
    baseline: Objects,
    requests: usize,
    /// The verbs that succeeded, by resource.
    seen: BTreeMap<String, BTreeSet<&'static str>>,
    violations: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_executes_only_the_authorized_verb_and_scope() {
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
    let kinds: Vec<Arc<Kind>> = matrix.cluster.server.state().storage.table().kinds.clone();
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
    assert!(unseen.is_empty(), "no request succeeded for these verbs:\n{}", unseen.join("\n"));
    println!("{} requests to {} kinds", matrix.requests, kinds.len());
}

/// Returns the verbs of a kind that never succeeded.
fn unseen(kind: &Kind, seen: &BTreeMap<String, BTreeSet<&'static str>>) -> Option<String> {
    let resource = kind.qualified_resource();
    let seen = seen.get(&resource).cloned().unwrap_or_default();
    let missing = kind.verbs.iter().map(|verb| verb.name());
    let missing: Vec<&str> = missing.filter(|verb| !seen.contains(verb)).collect();
    (!missing.is_empty()).then(|| format!("{} {resource}", missing.join(", ")))
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
    /// Creates a CRD with all subresources.
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
        self.cluster.until(&format!("/apis/example.com/v1/{plural}"), |response| response.code == 200).await;
    }

    /// Creates the objects of a kind that the requests target.
    async fn seed(&mut self, kind: &Kind) {
        if matches!(kind.persistence, Persistence::Virtual(_)) || kind.plural == "namespaces" {
            return;
        }
        let [name, _] = names(kind);
        let namespaces: &[&str] = if kind.is_namespaced() { &[TENANT, OTHER] } else { &[""] };
        for namespace in namespaces {
            let scope = if kind.is_namespaced() { format!("namespaces/{namespace}/") } else { String::new() };
            let url = format!("{}{scope}{}", root(kind), kind.plural);
            let object = self.samples.object(kind, version(kind), namespace, name);
            let made = self.cluster.send(ADMIN, Method::POST, &url, JSON, json::to_vec(&object)).await;
            if made.code != 201 {
                self.violations.push(format!("POST {url}: the sample is not valid: {}", made.code_and_message()));
            }
        }
        if matches!(kind.kind.as_str(), "CustomResourceDefinition" | "APIService") {
            let url = format!("{}{}/{name}", root(kind), kind.plural);
            self.cluster.until(&url, |response| response.body.at(&["status", "conditions"]).is_some()).await;
        }
    }

    /// Sends all requests for a kind.
    async fn kind(&mut self, kind: &Arc<Kind>) {
        for prefix in ["", "watch/", "proxy/"] {
            for scope in PLACES {
                for url in urls(kind, prefix, scope) {
                    for role in ROLES {
                        // Roles without `watch` or `proxy` are rejected below these prefixes as anywhere else, so they
                        // are skipped.
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
        let response = self.cluster.send(role, method.clone(), &text, media, self.body(case)).await;
        self.requests += 1;
        let what = format!("{} {method} {text} ({media}): {}", role.user, response.code_and_message());
        self.check_response(case, &response, &what);
        if self.cluster.revision() != before {
            self.check_effects(case, &response, &what).await;
        }
    }

    /// Returns the request body: a new object, a modified object, or a patch.
    fn body(&self, case: &Case<'_>) -> Vec<u8> {
        let Case { kind, method, media, url, .. } = *case;
        let [existing, fresh] = names(kind);
        // A binding needs an existing pod.
        let name = url.name.unwrap_or(if kind.plural == "bindings" { existing } else { fresh });
        let sample = || self.samples.object(kind, version(kind), TENANT, name);
        let subresource =
            url.subresource.and_then(|subresource| subresource.kind.clone().map(|gvk| (subresource, gvk)));
        let mut object = match (method, media, subresource) {
            (_, MERGE, _) => {
                return json::to_vec(
                    &value!({"metadata": {"annotations": {"changed": "yes"}}, "spec": {"replicas": 3, "size": 3}}),
                );
            }
            (&Method::POST | &Method::PUT | &Method::PATCH, _, Some((subresource, gvk))) => {
                value!({
                    "apiVersion": (gvk.api_version()), "kind": (gvk.kind.as_str()), "metadata": {"name": name},
                    "spec": {"replicas": (if subresource.name == "scale" { 3 } else { 0 })},
                    "target": {"kind": "Node", "name": "sample"},
                })
            }
            (&Method::PUT, ..) => match self.stored(kind, url) {
                Some(stored) if stored.get("apiVersion") == sample().get("apiVersion") => stored,
                // The stored object is in another version.
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

    /// Returns the stored object of a URL.
    fn stored(&self, kind: &Kind, url: &Url<'_>) -> Option<Value> {
        let namespace = if kind.is_namespaced() { TENANT } else { "" };
        let key = self.cluster.server.state().storage.layout.key(kind, namespace, url.name?);
        let (bytes, revision) = self.baseline.get(std::str::from_utf8(&key).unwrap())?;
        let mut object = json::parse(bytes).unwrap();
        MetaMut::of(&mut object).unwrap().set_resource_version(revision.unsigned_abs());
        Some(object)
    }

    /// Checks what a response returned, or what a request reached outside the store.
    fn check_response(&mut self, case: &Case<'_>, response: &ApiResponse, what: &str) {
        let Case { kind, method, url, .. } = *case;
        let is_served = response.code < 300;
        let namespace = if url.text.contains("namespaces/tenant/") { TENANT } else { "" };
        let namespace = if kind.is_namespaced() { namespace } else { "" };
        if let Some(verbs) = reached(kind, url, method)
            && !matches!(response.code, 401 | 403 | 404 | 405)
        {
            self.require(case, &verbs, namespace, what);
            return;
        }
        if !is_served || !matches!(*method, Method::GET | Method::HEAD) {
            return;
        }
        if *method == Method::HEAD {
            // The response has no body, so only the URL names what was read.
            let verb = match url.name {
                _ if url.text.contains("/watch/") => "watch",
                Some(_) => "get",
                None => "list",
            };
            let scope = scope(kind, namespace, url.name.unwrap_or_default());
            self.require(case, &[verb], &scope, what);
            return;
        }
        let (verb, objects) = match response.body.get("items").and_then(Value::as_array) {
            _ if response.is_watch => ("watch", response.body.get("object").cloned().into_iter().collect()),
            Some(items) => ("list", items.to_vec()),
            None => ("get", vec![response.body.clone()]),
        };
        for object in &objects {
            let meta = Meta::of(object);
            let scope = scope(kind, meta.namespace(), meta.name());
            self.require(case, &[verb], &scope, what);
        }
    }

    /// Checks the effects of a request on the store, and reverts them.
    async fn check_effects(&mut self, case: &Case<'_>, response: &ApiResponse, what: &str) {
        let Case { kind, url, .. } = *case;
        let after = self.cluster.objects().await;
        let span = self.cluster.server.state().storage.layout.span_start(kind, "");
        let is_action = url
            .subresource
            .is_some_and(|subresource| matches!(subresource.does, SubresourceAction::Bind | SubresourceAction::Evict));
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
            if !is_of_kind || response.code >= 400 {
                self.violations.push(format!("{what}: changed {key}"));
            }
            let namespace = if key.contains("/namespaces/") { meta.name() } else { meta.namespace() };
            findings.push((verbs.to_vec(), namespace.to_owned()));
        }
        for (verbs, namespace) in findings {
            self.require(case, &verbs, &namespace, what);
        }
        self.restore_baseline(kind).await;
    }

    /// Restores the baseline once the server has finished the asynchronous work of the request.
    async fn restore_baseline(&mut self, kind: &Kind) {
        if kind.kind == "CustomResourceDefinition" {
            // A deleted CRD is removed once its objects are deleted.
            let not_terminating =
                |response: &ApiResponse| response.body.at(&["metadata", "deletionTimestamp"]).is_none();
            for (key, _) in self.cluster.objects().await {
                if let Some(name) = key.strip_prefix("/registry/apiextensions.k8s.io/customresourcedefinitions/") {
                    self.cluster.until(&format!("{}{}/{name}", root(kind), kind.plural), not_terminating).await;
                }
            }
        }
        self.cluster.restore(&self.baseline).await;
        if SERVERS_OWN.contains(&kind.kind.as_str()) {
            for plural in ["widgets", "machines"] {
                self.cluster.until(&format!("/apis/example.com/v1/{plural}"), |response| response.code == 200).await;
            }
        }
        self.baseline = self.cluster.objects().await;
    }

    /// Records that one of the verbs ran in a scope, and reports a violation unless the role permits it.
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

/// Returns the verb of a request among several with the same effect, for the coverage count.
fn own_verb(case: &Case<'_>) -> &'static str {
    match (case.method, case.url.name) {
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, Some(_)) => "delete",
        (&Method::DELETE, None) => "deletecollection",
        _ => "",
    }
}

/// Returns the URLs of a kind: the collection, an existing object, a missing one, and subresources.
fn urls<'a>(kind: &'a Kind, prefix: &str, scope: &str) -> Vec<Url<'a>> {
    let base = format!("{}{prefix}{scope}{}", root(kind), kind.plural);
    let [sample, fresh] = names(kind);
    let mut urls = vec![
        Url { text: base.clone(), name: None, subresource: None },
        Url { text: format!("{base}/{sample}"), name: Some(sample), subresource: None },
        Url { text: format!("{base}/{fresh}"), name: Some(fresh), subresource: None },
    ];
    let own = kind.versions.iter().find(|one| one.served).map(|one| &one.subresources[..]).unwrap_or_default();
    for subresource in kind.subresources.iter().chain(own) {
        let text = format!("{base}/{sample}/{}", subresource.name);
        urls.push(Url { text, name: Some(sample), subresource: Some(subresource) });
    }
    urls
}

/// Returns the verbs required by a successful request without effects on the store: a stream or a review.
fn reached(kind: &Kind, url: &Url<'_>, method: &Method) -> Option<Vec<&'static str>> {
    if let Persistence::Virtual(question) = kind.persistence {
        return (question != VirtualKind::ComponentStatus).then(|| vec![Verb::Create.name()]);
    }
    Some(match &url.subresource?.does {
        SubresourceAction::Token
        | SubresourceAction::Connect(Connect::Exec | Connect::Attach | Connect::PortForward) => vec!["create"],
        SubresourceAction::Connect(Connect::Log) => vec!["get"],
        SubresourceAction::Connect(Connect::Proxy) => vec![match *method {
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "options",
        }],
        SubresourceAction::Fields
        | SubresourceAction::Scale(_)
        | SubresourceAction::Bind
        | SubresourceAction::Evict => {
            return None;
        }
    })
}

/// Returns the verbs that can cause a change of an object, or `None` if it did not change.
fn effect(old: Option<&Value>, new: Option<&Value>) -> Option<&'static [&'static str]> {
    match (old, new) {
        (None, Some(_)) => Some(&["create"]),
        (Some(_), None) => Some(&["delete", "deletecollection"]),
        (Some(old), Some(new)) if compared(old) != compared(new) => {
            // The server re-creates some objects after their deletion.
            let is_another = Meta::of(new).uid() != Meta::of(old).uid();
            let ends = is_another || (Meta::of(new).is_deleting() && !Meta::of(old).is_deleting());
            Some(if ends { &["delete", "deletecollection"] } else { &["update", "patch"] })
        }
        _ => None,
    }
}

/// Returns the parts of an object that only requests change.
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

/// Whether the server writes a key of another kind because of a request: a Service's IPAddress, or the APIService and
/// instances of a CRD.
fn goes_along(kind: &Kind, key: &str) -> bool {
    match kind.kind.as_str() {
        "Service" => key.contains("/ipaddresses/"),
        "CustomResourceDefinition" => key.contains("/apiservices/") || key.contains("/example.com/"),
        _ => false,
    }
}

/// Returns the scope of an object: its namespace, or empty for the cluster. A Namespace object is in its own scope.
fn scope(kind: &Kind, namespace: &str, name: &str) -> String {
    let own = if kind.group.is_empty() && kind.plural == "namespaces" { name } else { namespace };
    own.to_owned()
}
