//! Model of the API server: objects in memory, versions, conflicts and deletion, without validation and defaulting.

use std::collections::BTreeMap;
use std::fmt;

use api::resources::{PODS, by_name};
use apimachinery::collection::Entry;
use apimachinery::meta::{Meta, MetaMut, name_suffix, prepare_create};
use apimachinery::patch;
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Resource, Value, value};

use crate::cache::{Answers, Cache, KindSnapshot, Objects, ServerResponse, index_by};
use crate::{Action, AfterEffect, Controller, Patch, Preconditions, Propagation, ServerQuery, SideEffect, kinds};

/// Maximum rounds of requests of a controller.
const QUERY_ROUNDS_MAX: usize = 4;

/// The objects of a simulated cluster, and the log of executed actions.
#[derive(Clone)]
pub struct FakeCluster {
    pub now: Time,
    /// One line for each executed action.
    pub log: Vec<String>,
    objects: BTreeMap<String, Objects>,
    revision: u64,
    created: u64,
    responses: Answers,
    frozen_kinds: BTreeMap<String, (Objects, u64)>,
}

/// A rejection of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteError {
    NotFound,
    AlreadyExists,
    /// A precondition failed.
    Conflict,
    Invalid(String),
}

impl FakeCluster {
    pub fn new(now: Time) -> Self {
        Self {
            now,
            log: Vec::new(),
            objects: BTreeMap::new(),
            revision: 100,
            created: 0,
            responses: Answers::default(),
            frozen_kinds: BTreeMap::new(),
        }
    }

    /// Returns the objects of a kind: `pods`, `deployments.apps`.
    pub fn of(&self, kind: impl fmt::Display) -> Objects {
        self.objects.get(&kind.to_string()).cloned().unwrap_or_else(|| Objects::new(index_by()))
    }

    pub fn get(&self, resource: &Resource, key: &Key) -> Option<&Value> {
        self.objects.get(&resource.to_string())?.get(key)
    }

    /// Returns the cache view of the controller `C`.
    pub fn cache<C: Controller>(&self) -> Cache<'_> {
        Cache::new(C::READS, |kind| self.kind_snapshot(kind)).with_responses(self.responses.clone())
    }

    /// Returns the cache view of the controller `C` for a key, with its memory and the responses to its requests.
    pub fn cache_for<C: Controller>(&self, key: &Key, memory: Option<&Value>) -> Cache<'_> {
        let mut responses = self.responses.clone();
        for _ in 0..QUERY_ROUNDS_MAX {
            let view = self.cache::<C>().reminded(memory.cloned()).with_responses(responses.clone());
            let queries = C::queries(&view, key, self.now);
            let before = responses.len();
            for query in queries.iter().filter(|query| responses.of(query).is_none()).collect::<Vec<_>>() {
                if let Some(response) = self.list(query) {
                    responses.insert(query, response);
                }
            }
            if responses.len() == before {
                break;
            }
        }
        self.cache::<C>().reminded(memory.cloned()).with_responses(responses)
    }

    /// Freezes a kind for controllers until [`FakeCluster::show`], as a lagging watch does.
    pub fn hold(&mut self, kind: GroupResource) {
        self.frozen_kinds.insert(kind.to_string(), (self.of(kind), self.revision));
    }

    /// Ends the freeze of a kind.
    pub fn show(&mut self, kind: GroupResource) {
        self.frozen_kinds.remove(&kind.to_string());
    }

    fn kind_snapshot(&self, kind: GroupResource) -> KindSnapshot {
        let (objects, revision) =
            self.frozen_kinds.get(&kind.to_string()).cloned().unwrap_or_else(|| (self.of(kind), self.revision));
        KindSnapshot { objects, revision }
    }

    /// Responds to a list request for a kind of the model.
    fn list(&self, query: &ServerQuery) -> Option<ServerResponse> {
        let plain =
            query.key.name.is_empty() && query.body.is_none() && query.labels.as_ref().is_some_and(String::is_empty);
        let kind = query.resource.to_string();
        by_name(&kind).filter(|_| plain)?;
        let objects = self.of(&kind);
        let within =
            objects.iter().filter(|it| query.key.namespace.is_empty() || it.key.namespace == query.key.namespace);
        let items: Vec<Value> = within.map(|it| it.value.clone()).collect();
        Some(Ok(value!({"items": items})))
    }

    /// Sets the response to a request.
    pub fn set_response(&mut self, query: &ServerQuery, response: ServerResponse) {
        self.responses.insert(query, response);
    }

    /// Creates an object and returns its key.
    ///
    /// # Panics
    /// If an object with that name exists.
    pub fn add(&mut self, resource: &Resource, object: Value) -> Key {
        self.create(resource, object).unwrap_or_else(|error| panic!("{resource}: {error:?}"))
    }

    /// Returns the revision of the newest change.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Changes an object. The generation increases if anything except metadata and status changes.
    ///
    /// # Panics
    /// If the object does not exist.
    pub fn change(&mut self, resource: &Resource, key: &Key, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(resource, key).cloned().unwrap_or_else(|| panic!("no {resource} {key}"));
        change(&mut object);
        self.store(resource, object);
    }

    /// Deletes an object as the API server: immediately, or after its finalizers are removed and its kubelet confirms.
    pub fn delete(&mut self, resource: &Resource, key: &Key, propagation: Option<Propagation>, grace: Option<u32>) {
        let Some(mut object) = self.get(resource, key).cloned() else { return };
        let on_node = object.str_at(&["spec", "nodeName"]).is_some_and(|node| !node.is_empty());
        let graceful = *resource == kinds::PODS && on_node && grace != Some(0);
        if let Some(mut meta) = MetaMut::of(&mut object) {
            match propagation {
                Some(Propagation::Foreground) => drop(meta.add_finalizer("foregroundDeletion")),
                Some(Propagation::Orphan) => drop(meta.add_finalizer("orphan")),
                Some(Propagation::Background) | None => {}
            }
            if !meta.view().is_deleting() {
                let seconds = if graceful { grace.unwrap_or(30).into() } else { 0 };
                meta.set_deletion(self.now.plus(Duration::from_seconds(seconds)), seconds);
            }
            if has_finalizers(&object) || graceful {
                if *resource == kinds::NAMESPACES {
                    set(&mut object, "status", "phase", "Terminating".into());
                }
                self.store(resource, object);
                return;
            }
        }
        self.remove(resource, key);
    }

    /// Removes an object, ignoring its finalizers.
    pub fn remove(&mut self, resource: &Resource, key: &Key) {
        self.revision += 1;
        if let Some(objects) = self.objects.get_mut(&resource.to_string()) {
            objects.remove(key);
        }
    }

    /// Executes an action as the API server.
    pub fn execute(&mut self, action: &Action) -> Result<(), WriteError> {
        self.log.push(action.to_string());
        match action {
            Action::Create { resource, object, .. } => self.create(resource, object.clone()).map(drop),
            Action::Update { resource, object, .. } => {
                let key = Key::of(object);
                let old = self.checked(resource, &key, &Preconditions::unchanged(object))?;
                let mut new = object.clone();
                carry(&mut new, old, "status");
                self.store(resource, new);
                Ok(())
            }
            Action::UpdateStatus { resource, object } => {
                let key = Key::of(object);
                let mut new = self.checked(resource, &key, &Preconditions::unchanged(object))?.clone();
                carry(&mut new, object, "status");
                // As for most kinds, a status write may also change annotations.
                let annotations = Meta::of(object).value("annotations").cloned();
                if let (Some(mut meta), Some(annotations)) = (MetaMut::of(&mut new), annotations) {
                    meta.set("annotations", annotations);
                }
                self.store(resource, new);
                Ok(())
            }
            Action::Patch { resource, key, only_if, patch, .. } => {
                let old = self.checked(resource, key, only_if)?.clone();
                let new = apply(resource, old, patch)?;
                if Meta::of(&new).owner_references().filter(|owner| owner.is_controller()).count() > 1 {
                    return Err(WriteError::Invalid("only one reference can have controller set to true".to_owned()));
                }
                self.store(resource, new);
                Ok(())
            }
            Action::Apply { resource, object, .. } => self.apply(resource, object),
            Action::Post { resource, key, subresource, body } => self.post(resource, key, subresource, body),
            Action::Delete { resource, key, only_if, propagation, grace_seconds, .. } => {
                match self.checked(resource, key, only_if) {
                    Ok(_) => self.delete(resource, key, *propagation, *grace_seconds),
                    Err(WriteError::NotFound) => {}
                    Err(error) => return Err(error),
                }
                Ok(())
            }
            Action::DeleteAll { resource, namespace } => {
                for entry in self.of(resource).in_namespace(namespace) {
                    self.delete(resource, &entry.key, None, None);
                }
                Ok(())
            }
            Action::UpdateSubresource { resource, subresource, object } => {
                self.update_part(resource, subresource, object)
            }
            Action::Event { .. } => Ok(()),
        }
    }

    /// Executes an action that needs a side effect. The result of the side effect is its description.
    pub fn execute_after<E: SideEffect>(&mut self, after: &AfterEffect<E>) -> Result<(), WriteError> {
        let description = after.effect.to_string();
        self.log.push(description.clone());
        self.execute(&after.action_with(description.into()))
    }

    /// Formats all objects without UIDs, versions, times and generated name suffixes, which differ between runs.
    pub fn picture(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (kind, objects) in &self.objects {
            for entry in objects.iter() {
                let mut object = entry.value.clone();
                let base = Meta::of(&object).generate_name().to_owned();
                if let Some(mut meta) = MetaMut::of(&mut object)
                    && !base.is_empty()
                {
                    meta.set("name", format!("{base}*"));
                }
                blur_generation(&mut object);
                blur(&mut object);
                lines.push(format!("{kind} {object}"));
            }
        }
        lines.sort();
        lines
    }

    /// Creates an object as the API server and returns its key.
    pub fn create(&mut self, resource: &Resource, mut object: Value) -> Result<Key, WriteError> {
        // The creation count is the seed of all generated values.
        self.created += 1;
        let uid = format!("uid-{}", self.created);
        // Consecutive numbers give distant names, like random ones.
        let suffix = name_suffix(self.created.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20);
        prepare_create(&mut object, &uid, self.now, &suffix);
        let key = Key::of(&object);
        if key.name.is_empty() {
            return Err(WriteError::Invalid("name or generateName is required".to_owned()));
        }
        if self.get(resource, &key).is_some() {
            return Err(WriteError::AlreadyExists);
        }
        if let Some(object) = object.as_object_mut() {
            object.insert("apiVersion", resource.api_version());
            object.insert("kind", resource.kind.clone());
        }
        if let Some(mut meta) = MetaMut::of(&mut object) {
            meta.set("generation", 1);
        }
        self.insert(resource, object);
        Ok(key)
    }

    fn apply(&mut self, resource: &Resource, object: &Value) -> Result<(), WriteError> {
        match self.get(resource, &Key::of(object)).cloned() {
            Some(current) => self.store(resource, patch::merge::apply(current, object.clone())),
            None => drop(self.create(resource, object.clone())?),
        }
        Ok(())
    }

    fn post(&mut self, resource: &Resource, key: &Key, subresource: &str, body: &Value) -> Result<(), WriteError> {
        self.checked(resource, key, &Preconditions::default())?;
        match subresource {
            "binding" => {
                let node = body.text_at(&["target", "name"]).to_owned();
                self.change(resource, key, |pod| set(pod, "spec", "nodeName", node.into()));
            }
            "eviction" => self.delete(resource, key, None, None),
            other => return Err(WriteError::Invalid(format!("the model knows no subresource {other}"))),
        }
        Ok(())
    }

    fn update_part(&mut self, resource: &Resource, subresource: &str, object: &Value) -> Result<(), WriteError> {
        let key = Key::of(object);
        let mut new = self.checked(resource, &key, &Preconditions::unchanged(object))?.clone();
        match subresource {
            "finalize" => carry(&mut new, object, "spec"),
            "approval" => carry(&mut new, object, "status"),
            other => return Err(WriteError::Invalid(format!("the model knows no subresource {other}"))),
        }
        self.store(resource, new);
        Ok(())
    }

    fn checked(&self, resource: &Resource, key: &Key, only_if: &Preconditions) -> Result<&Value, WriteError> {
        let object = self.get(resource, key).ok_or(WriteError::NotFound)?;
        let meta = Meta::of(object);
        let differs = |expected: &Option<apimachinery::Str>, have: &str| {
            expected.as_ref().is_some_and(|expected| expected != have)
        };
        if differs(&only_if.uid, meta.uid()) || differs(&only_if.resource_version, meta.resource_version()) {
            return Err(WriteError::Conflict);
        }
        Ok(object)
    }

    /// Stores a changed object, or removes it if its last finalizer was removed.
    fn store(&mut self, resource: &Resource, mut object: Value) {
        let key = Key::of(&object);
        let old = self.get(resource, &key).cloned().unwrap_or_default();
        let changed = desired_fields(&old) != desired_fields(&object);
        if let Some(mut meta) = MetaMut::of(&mut object) {
            meta.set("generation", Meta::of(&old).generation() + i64::from(changed));
        }
        let meta = Meta::of(&object);
        let waits_for_kubelet = meta.deletion_grace_period_seconds().is_some_and(|seconds| seconds > 0);
        if meta.is_deleting() && !has_finalizers(&object) && !waits_for_kubelet {
            self.remove(resource, &key);
        } else {
            self.insert(resource, object);
        }
    }

    fn insert(&mut self, resource: &Resource, mut object: Value) {
        self.revision += 1;
        if let Some(mut meta) = MetaMut::of(&mut object) {
            meta.set_resource_version(self.revision);
        }
        let objects = self.objects.entry(resource.to_string()).or_insert_with(|| Objects::new(index_by()));
        objects.insert(Entry { key: Key::of(&object), revision: self.revision, observed_at: self.now, value: object });
    }
}

impl fmt::Debug for FakeCluster {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.picture()).finish()
    }
}

/// Simulates all kubelets in one step: binds and runs pods, and removes deleted pods. Returns whether it acted.
pub fn kubelet(cluster: &mut FakeCluster) -> bool {
    let mut busy = false;
    for entry in cluster.of(PODS).iter() {
        let (key, pod) = (&entry.key, &entry.value);
        if Meta::of(pod).is_deleting() {
            if Meta::of(pod).finalizers().next().is_none() {
                cluster.remove(&kinds::PODS, key);
                busy = true;
            }
        } else if !matches!(pod.str_at(&["status", "phase"]), Some("Running" | "Succeeded" | "Failed")) {
            let now = cluster.now.to_string();
            cluster.change(&kinds::PODS, key, |pod| {
                set(pod, "spec", "nodeName", "node".into());
                let status = value!({"phase": "Running", "conditions": [
                    {"type": "Ready", "status": "True", "lastTransitionTime": now}]});
                pod.as_object_mut().expect("a pod is an object").insert("status", status);
            });
            busy = true;
        }
    }
    busy
}

fn apply(resource: &Resource, old: Value, patch: &Patch) -> Result<Value, WriteError> {
    match patch {
        Patch::Merge(patch) => Ok(patch::merge::apply(old, patch.clone())),
        Patch::Strategic(patch) => {
            let invalid = |cause: &str| WriteError::Invalid(format!("a strategic merge patch of {resource}: {cause}"));
            let schema = api::catalogue::schema(&resource.group_version_kind()).ok_or_else(|| invalid("no schema"))?;
            let (Value::Object(old), Value::Object(patch)) = (old, patch.clone()) else {
                return Err(invalid("not an object"));
            };
            let patched = patch::strategic::apply(old, patch, schema).map_err(|error| invalid(&error.to_string()))?;
            Ok(Value::Object(patched))
        }
    }
}

/// Copies a field from another object.
fn carry(into: &mut Value, from: &Value, field: &str) {
    let Some(object) = into.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => drop(object.insert(field, value.clone())),
        None => drop(object.remove(field)),
    }
}

fn set(object: &mut Value, section: &str, field: &str, value: Value) {
    let Some(object) = object.as_object_mut() else { return };
    if let Some(section) = object.get_or_insert_with(section, Value::object).as_object_mut() {
        section.insert(field, value);
    }
}

/// Whether a deleted object has finalizers. Namespaces also have them in their spec.
fn has_finalizers(object: &Value) -> bool {
    let in_spec = object.at(&["spec", "finalizers"]).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    in_spec || Meta::of(object).finalizers().next().is_some()
}

/// Returns the fields of the desired state.
fn desired_fields(object: &Value) -> Vec<(&str, &Value)> {
    let fields = object.as_object().into_iter().flat_map(apimachinery::Object::iter);
    fields.filter(|(key, _)| !matches!(*key, "metadata" | "status")).collect()
}

/// Replaces generations by whether the last one was observed, because interrupted runs may take a different number of
/// steps.
fn blur_generation(object: &mut Value) {
    let generation = Meta::of(object).generation();
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut)
        && let Some(observed) = status.get_mut("observedGeneration")
    {
        *observed = (observed.as_int() == Some(generation)).into();
    }
    if let Some(mut meta) = MetaMut::of(object) {
        meta.remove("generation");
    }
}

/// Removes values that differ between runs.
fn blur(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|key, value| {
                let time = (key.ends_with("Time") || key.ends_with("Timestamp")) && value.as_str().is_some();
                !time && !matches!(key, "uid" | "resourceVersion")
            });
            object.iter_mut().for_each(|(_, value)| blur(value));
        }
        Value::Array(items) => items.iter_mut().for_each(blur),
        _ => {}
    }
}
