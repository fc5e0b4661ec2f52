//! Controller cache view: snapshots of the declared kinds.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;

use apimachinery::collection::{Collection, IndexBy};
use apimachinery::meta::Meta;
use apimachinery::{GroupResource, Key, Resource, Str, Value};

/// The objects of a kind, with lookup by key, by namespace and by the indexes of [`index_by`].
pub type Objects = Collection<Value>;

/// The kinds that a controller may read. A snapshot of each kind is taken at its first use and kept.
pub struct Cache<'s> {
    /// A short list. Most views read one or two kinds, and a view is created for every change.
    kinds: Vec<(GroupResource, OnceCell<KindSnapshot>)>,
    snapshot: Box<dyn Fn(GroupResource) -> KindSnapshot + 's>,
    rejection: Option<Rejection>,
    responses: Answers,
    memory: Option<Value>,
}

/// A snapshot of a kind.
pub struct KindSnapshot {
    pub objects: Objects,
    /// The store revision of the snapshot; 0 if the server's versions are not numbers.
    pub revision: u64,
}

/// A request to the API server for data that is not cached.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerQuery {
    pub resource: Resource,
    /// The object; all objects of the namespace if the name is empty.
    pub key: Key,
    /// `scale` and the like; empty for the object itself.
    pub subresource: Str,
    /// The label selector of a list request, also if there is a name. `None` requests a single object.
    pub labels: Option<String>,
    /// The body of a POST request whose object is not stored, such as a `SubjectAccessReview`.
    pub body: Option<Value>,
    /// The minimum store revision of the response. No request is sent if the kind's cache reaches it shortly.
    pub as_of: Option<u64>,
}

impl ServerQuery {
    /// Requests all objects of a kind in a namespace; in all namespaces if it is empty.
    pub fn all(resource: &Resource, namespace: &str) -> Self {
        Self {
            resource: resource.clone(),
            key: Key::new(namespace, ""),
            subresource: Str::default(),
            labels: Some(String::new()),
            body: None,
            as_of: None,
        }
    }

    /// Requires a response at least as new as this version of `object`.
    #[must_use]
    pub fn since(self, object: &Value) -> Self {
        Self { as_of: Some(version(object)), ..self }
    }
}

impl fmt::Display for ServerQuery {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, key, subresource, labels, body, as_of } = self;
        write!(out, "{resource}/{}/{key}/{subresource}?{}", resource.version, labels.as_deref().unwrap_or("-"))?;
        as_of.map_or(Ok(()), |revision| write!(out, " as of {revision}"))?;
        body.as_ref().map_or(Ok(()), |body| write!(out, " {body}"))
    }
}

/// The response to a [`ServerQuery`]: an object, an object with `items` for a list, or an error message.
pub type ServerResponse = Result<Value, String>;

/// Responses by request.
#[derive(Clone, Debug, Default)]
pub struct Answers(BTreeMap<String, ServerResponse>);

impl Answers {
    pub fn insert(&mut self, query: &ServerQuery, response: ServerResponse) {
        self.0.insert(query.to_string(), response);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the response to a request; `None` if it was not sent yet.
    pub fn of(&self, query: &ServerQuery) -> Option<&ServerResponse> {
        self.0.get(&query.to_string())
    }
}

/// The rejection of an action of the last plan for the same key. Kept in memory until a plan for the key is executed
/// completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The written resource.
    pub resource: Resource,
    /// `status` and the like; empty for the object itself.
    pub subresource: &'static str,
    /// Whether the action was a creation.
    pub create: bool,
    /// The reason in the server's Status, such as `Forbidden`.
    pub reason: String,
    /// The message in the server's Status.
    pub message: String,
}

impl Rejection {
    /// Whether a write of objects of this kind was rejected, rather than of a subresource.
    pub fn is_of(&self, resource: GroupResource) -> bool {
        self.resource.is(resource) && self.subresource.is_empty()
    }
}

impl<'s> Cache<'s> {
    /// Returns a view of these kinds. `snapshot` returns the objects of a kind.
    pub fn new(kinds: &[GroupResource], snapshot: impl Fn(GroupResource) -> KindSnapshot + 's) -> Self {
        let kinds = kinds.iter().map(|kind| (*kind, OnceCell::new())).collect();
        Self { kinds, snapshot: Box::new(snapshot), rejection: None, responses: Answers::default(), memory: None }
    }

    /// Adds the rejection of the last plan.
    #[must_use]
    pub fn with_rejection(self, rejection: Option<Rejection>) -> Self {
        Self { rejection, ..self }
    }

    /// Adds the responses to [`crate::Controller::queries`].
    #[must_use]
    pub fn with_responses(self, responses: Answers) -> Self {
        Self { responses, ..self }
    }

    /// Returns the response to a request; `None` if it was not sent yet.
    pub fn response(&self, query: &ServerQuery) -> Option<&ServerResponse> {
        self.responses.of(query)
    }

    /// Adds the memory of the last plan for the key.
    #[must_use]
    pub fn reminded(self, memory: Option<Value>) -> Self {
        Self { memory, ..self }
    }

    /// Returns [`crate::Plan::remember`] of the last plan for the key. Lost when the process exits.
    pub const fn memory(&self) -> Option<&Value> {
        self.memory.as_ref()
    }

    /// Returns the rejection of an action of the last plan for the observed key.
    pub const fn rejection(&self) -> Option<&Rejection> {
        self.rejection.as_ref()
    }

    /// Returns all objects of a kind.
    ///
    /// # Panics
    /// If the controller does not declare that it reads the kind.
    pub fn of(&self, kind: GroupResource) -> &Objects {
        &self.kind_snapshot(kind).objects
    }

    /// Whether the kind's snapshot is at least as new as this version of `object`, so that it contains all writes
    /// before it or in the same transaction. Each kind has a separate watch, and any of them may lag. Returns `true` if
    /// versions are not comparable.
    ///
    /// # Panics
    /// If the controller does not declare that it reads the kind.
    pub fn has_reached(&self, kind: GroupResource, object: &Value) -> bool {
        let revision = self.kind_snapshot(kind).revision;
        revision == 0 || revision >= version(object)
    }

    fn kind_snapshot(&self, kind: GroupResource) -> &KindSnapshot {
        let Some((_, cell)) = self.kinds.iter().find(|(have, _)| *have == kind) else {
            panic!("{kind} is read but not declared")
        };
        cell.get_or_init(|| (self.snapshot)(kind))
    }

    pub fn get(&self, kind: GroupResource, key: &Key) -> Option<&Value> {
        self.of(kind).get(key)
    }

    /// Returns the objects of a kind in a namespace, sorted by name.
    pub fn in_namespace<'a>(
        &'a self,
        kind: GroupResource,
        namespace: &str,
    ) -> impl Iterator<Item = &'a Value> + use<'a, 's> {
        self.of(kind).in_namespace(namespace).map(|entry| &entry.value)
    }

    /// Returns the objects of a kind that are controlled by the object with this UID.
    pub fn controlled_by<'a>(
        &'a self,
        kind: GroupResource,
        uid: &str,
    ) -> impl Iterator<Item = &'a Value> + use<'a, 's> {
        self.of(kind).by("controller", uid).map(|entry| &entry.value)
    }

    /// Returns the objects of a kind in a namespace without a controller.
    pub fn orphans<'a>(
        &'a self,
        kind: GroupResource,
        namespace: &str,
    ) -> impl Iterator<Item = &'a Value> + use<'a, 's> {
        self.of(kind).by("controller", &orphans_of(namespace)).map(|entry| &entry.value)
    }

    /// Returns the objects of a kind that are owned by the object with this UID.
    pub fn owned_by<'a>(&'a self, kind: GroupResource, uid: &str) -> impl Iterator<Item = &'a Value> + use<'a, 's> {
        self.of(kind).by("owner", uid).map(|entry| &entry.value)
    }

    /// Returns the objects of a kind, usually pods, on a node.
    pub fn on_node<'a>(&'a self, kind: GroupResource, node: &str) -> impl Iterator<Item = &'a Value> + use<'a, 's> {
        self.of(kind).by("node", node).map(|entry| &entry.value)
    }
}

/// Returns the indexes of every kind.
pub fn index_by() -> Vec<IndexBy<Value>> {
    let controller = |key: &Key, object: &Value| {
        let found = Meta::of(object).controller();
        vec![found.map_or_else(|| orphans_of(&key.namespace), |owner| owner.uid().into())]
    };
    let owner = |_: &Key, object: &Value| -> Vec<Str> {
        Meta::of(object).owner_references().map(|owner| owner.uid().into()).collect()
    };
    let node = |_: &Key, object: &Value| -> Vec<Str> {
        object.str_at(&["spec", "nodeName"]).filter(|node| !node.is_empty()).map(Str::from).into_iter().collect()
    };
    vec![IndexBy::new("controller", controller), IndexBy::new("owner", owner), IndexBy::new("node", node)]
}

/// Returns the resourceVersion of an object; 0 if it is not a number.
fn version(object: &Value) -> u64 {
    Meta::of(object).resource_version().parse().unwrap_or(0)
}

/// Returns the key of the `controller` index for objects without a controller in a namespace. No UID contains a slash.
pub fn orphans_of(namespace: &str) -> Str {
    format!("/{namespace}").into()
}

#[cfg(test)]
mod tests {
    use api::resources::{PODS, SECRETS};
    use apimachinery::collection::Entry;
    use apimachinery::time::Time;
    use apimachinery::value;

    use super::*;

    fn pods() -> KindSnapshot {
        let mut pods = Objects::new(index_by());
        let owner = value!([{"uid": "u", "controller": true}, {"uid": "v"}]);
        for (name, owners, node) in [("x", owner, "n1"), ("y", value!([]), "n1"), ("z", value!([{"uid": "v"}]), "")] {
            let value = value!({"metadata": {"namespace": "a", "name": name, "ownerReferences": owners},
                "spec": {"nodeName": node}});
            pods.insert(Entry::of(value, Time::from_unix(0, 0)));
        }
        KindSnapshot { objects: pods, revision: 10 }
    }

    fn names<'a>(found: impl IntoIterator<Item = &'a Value>) -> Vec<&'a str> {
        found.into_iter().map(|object| Meta::of(object).name()).collect()
    }

    #[test]
    fn objects_are_indexed_by_controller_owner_and_node() {
        let cache = Cache::new(&[PODS], |_| pods());
        assert_eq!(names(cache.controlled_by(PODS, "u")), ["x"]);
        assert_eq!(names(cache.orphans(PODS, "a")), ["y", "z"]);
        assert_eq!(names(cache.owned_by(PODS, "v")), ["x", "z"]);
        assert_eq!(names(cache.on_node(PODS, "n1")), ["x", "y"]);
        assert_eq!(names(cache.in_namespace(PODS, "b")), [""; 0]);
    }

    #[test]
    fn snapshots_are_compared_with_the_version_of_an_object() {
        let check = |revision: u64, version: &str, expect: bool| {
            let cache = Cache::new(&[PODS], |_| KindSnapshot { revision, ..pods() });
            let object = value!({"metadata": {"resourceVersion": version}});
            assert_eq!(cache.has_reached(PODS, &object), expect, "{revision} and {version}");
        };
        check(9, "10", false);
        check(10, "10", true);
        check(11, "9", true);
        check(0, "10", true);
        check(10, "x", true);
    }

    #[test]
    #[should_panic(expected = "secrets is read but not declared")]
    fn undeclared_kinds_cannot_be_read() {
        Cache::new(&[PODS], |_| pods()).of(SECRETS);
    }
}
