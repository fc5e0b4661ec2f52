//! What a controller sees: the objects of the kinds it declared, as they were at one moment each.

use std::any::Any;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;

use machinery::collection::{Collection, IndexBy};
use machinery::meta::Meta;
use machinery::{Key, Resource, Str, Value};

use crate::config::Configs;

/// The objects of a kind, found by key, by namespace and by the indexes of [`index_by`].
pub type Objects = Collection<Value>;

/// The kinds that a controller may read. A snapshot of each is taken when it is first looked at, and kept.
pub struct Cache<'s> {
    /// A handful, of which most views read one or two: a view is made for every change.
    kinds: Vec<(&'static str, OnceCell<Shown>)>,
    snapshot: Box<dyn Fn(&str) -> Shown + 's>,
    refusal: Option<Refusal>,
    configs: Configs,
    answers: Answers,
    memory: Option<Value>,
}

/// The objects of a kind as a cache has them.
pub struct Shown {
    /// The objects.
    pub objects: Objects,
    /// The version of the store up to which they are true; 0 if the server's versions are not numbers.
    pub revision: u64,
}

/// Something to ask the server for that no cache holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The kind.
    pub resource: Resource,
    /// Which one; all of the namespace if it has no name.
    pub key: Key,
    /// `scale` and the like; empty for the object itself.
    pub subresource: Str,
    /// Only what has such labels; a list is what comes back, also if there is a name. Not a list if absent.
    pub labels: Option<String>,
    /// What is posted where asking is a request that the server answers and forgets, such as a `SubjectAccessReview`.
    pub body: Option<Value>,
    /// The version of the store that the answer must show at least. Nothing is asked if the cache of the kind gets there in a moment.
    pub as_of: Option<u64>,
}

impl Ask {
    /// All objects of a kind in a namespace; of all namespaces if that is empty.
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

    /// The same, as it was when this version of `object` was written, or later.
    #[must_use]
    pub fn since(self, object: &Value) -> Self {
        Self { as_of: Some(version(object)), ..self }
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, key, subresource, labels, body, as_of } = self;
        write!(out, "{resource}/{}/{key}/{subresource}?{}", resource.version, labels.as_deref().unwrap_or("-"))?;
        as_of.map_or(Ok(()), |revision| write!(out, " as of {revision}"))?;
        body.as_ref().map_or(Ok(()), |body| write!(out, " {body}"))
    }
}

/// What the server said to an [`Ask`]: an object, or a list as an object with `items`, or why there is none.
pub type Answer = Result<Value, String>;

/// What the server said, by what it was asked.
#[derive(Clone, Debug, Default)]
pub struct Answers(BTreeMap<String, Answer>);

impl Answers {
    /// Takes in an answer.
    pub fn insert(&mut self, ask: &Ask, answer: Answer) {
        self.0.insert(ask.to_string(), answer);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was asked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The answer to an ask; `None` if it was not asked yet.
    pub fn of(&self, ask: &Ask) -> Option<&Answer> {
        self.0.get(&ask.to_string())
    }
}

/// How the server refused an action of the last plan for the same key. Known to the process that was refused, and only until a
/// plan for the key is carried out whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What was to be written: `pods`, `replicasets.apps/status`.
    pub writes: String,
    /// Whether it was to be created.
    pub create: bool,
    /// The server's word for machines: `Forbidden`.
    pub reason: String,
    /// The server's words for people.
    pub message: String,
}

impl<'s> Cache<'s> {
    /// A view of these kinds, of which `snapshot` gives the objects.
    pub fn new(kinds: &[&'static str], snapshot: impl Fn(&str) -> Shown + 's) -> Self {
        let kinds = kinds.iter().map(|kind| (*kind, OnceCell::new())).collect();
        Self {
            kinds,
            snapshot: Box::new(snapshot),
            refusal: None,
            configs: Configs::default(),
            answers: Answers::default(),
            memory: None,
        }
    }

    /// The same view, with how the last plan was refused.
    #[must_use]
    pub fn refused(self, refusal: Option<Refusal>) -> Self {
        Self { refusal, ..self }
    }

    /// The same view, with what controllers were told at start.
    #[must_use]
    pub fn configured(self, configs: Configs) -> Self {
        Self { configs, ..self }
    }

    /// The same view, with what the server said to [`crate::Controller::asks`].
    #[must_use]
    pub fn answered(self, answers: Answers) -> Self {
        Self { answers, ..self }
    }

    /// What the server said when it was asked; `None` if it was not asked yet.
    pub fn answer(&self, ask: &Ask) -> Option<&Answer> {
        self.answers.of(ask)
    }

    /// The same view, with what the last plan for the key wanted to be reminded of.
    #[must_use]
    pub fn reminded(self, memory: Option<Value>) -> Self {
        Self { memory, ..self }
    }

    /// What the last plan for the key wanted to be reminded of. Lost with the process.
    pub const fn memory(&self) -> Option<&Value> {
        self.memory.as_ref()
    }

    /// What the controller was told at start, if anything.
    pub fn config<T: Any>(&self) -> Option<&T> {
        self.configs.of()
    }

    /// How the server refused an action of the last plan for the key that is observed.
    pub const fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    /// All objects of a kind.
    ///
    /// # Panics
    /// If the controller does not declare that it reads the kind.
    pub fn of(&self, kind: &str) -> &Objects {
        &self.shown(kind).objects
    }

    /// Whether a kind is shown as it was when this version of `object` was written, or later: then nothing is missing that was written
    /// before it or together with it. Each kind has a watch of its own, and any of them may be late. True if versions do not compare.
    ///
    /// # Panics
    /// If the controller does not declare that it reads the kind.
    pub fn has_reached(&self, kind: &str, object: &Value) -> bool {
        let revision = self.shown(kind).revision;
        revision == 0 || revision >= version(object)
    }

    fn shown(&self, kind: &str) -> &Shown {
        let Some((_, cell)) = self.kinds.iter().find(|(have, _)| *have == kind) else {
            panic!("{kind} is read but not declared")
        };
        cell.get_or_init(|| (self.snapshot)(kind))
    }

    /// One object.
    pub fn get(&self, kind: &str, key: &Key) -> Option<&Value> {
        self.of(kind).get(key)
    }

    /// The objects of a kind in a namespace, in the order of their names.
    pub fn in_namespace<'a>(&'a self, kind: &str, namespace: &str) -> impl Iterator<Item = &'a Value> + use<'a, 's> {
        self.of(kind).in_namespace(namespace).map(|entry| &entry.value)
    }

    /// The objects of a kind that the object with this identifier controls.
    pub fn controlled_by<'a>(&'a self, kind: &str, uid: &str) -> impl Iterator<Item = &'a Value> + use<'a, 's> {
        self.of(kind).by("controller", uid).map(|entry| &entry.value)
    }

    /// The objects of a kind in a namespace that nothing controls.
    pub fn orphans<'a>(&'a self, kind: &str, namespace: &str) -> impl Iterator<Item = &'a Value> + use<'a, 's> {
        self.of(kind).by("controller", &orphans_of(namespace)).map(|entry| &entry.value)
    }

    /// The objects of a kind that the object with this identifier is an owner of.
    pub fn owned_by<'a>(&'a self, kind: &str, uid: &str) -> impl Iterator<Item = &'a Value> + use<'a, 's> {
        self.of(kind).by("owner", uid).map(|entry| &entry.value)
    }

    /// The objects of a kind, usually pods, that are on a node.
    pub fn on_node<'a>(&'a self, kind: &str, node: &str) -> impl Iterator<Item = &'a Value> + use<'a, 's> {
        self.of(kind).by("node", node).map(|entry| &entry.value)
    }
}

/// The indexes that every kind has.
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

/// The version of an object; 0 if it is not a number.
fn version(object: &Value) -> u64 {
    Meta::of(object).resource_version().parse().unwrap_or(0)
}

/// Under what the `controller` index has the objects of a namespace that nothing controls. No identifier has a slash.
pub fn orphans_of(namespace: &str) -> Str {
    format!("/{namespace}").into()
}

#[cfg(test)]
mod tests {
    use machinery::collection::Entry;
    use machinery::value;

    use super::*;

    fn pods() -> Shown {
        let mut pods = Objects::new(index_by());
        let owner = value!([{"uid": "u", "controller": true}, {"uid": "v"}]);
        for (name, owners, node) in [("x", owner, "n1"), ("y", value!([]), "n1"), ("z", value!([{"uid": "v"}]), "")] {
            let value = value!({"metadata": {"namespace": "a", "name": name, "ownerReferences": owners},
                "spec": {"nodeName": node}});
            pods.insert(Entry { key: Key::of(&value), revision: 1, value });
        }
        Shown { objects: pods, revision: 10 }
    }

    fn names<'a>(found: impl IntoIterator<Item = &'a Value>) -> Vec<&'a str> {
        found.into_iter().map(|object| Meta::of(object).name()).collect()
    }

    #[test]
    fn objects_are_found_by_controller_owner_node_and_by_having_none() {
        let cache = Cache::new(&["pods"], |_| pods());
        assert_eq!(names(cache.controlled_by("pods", "u")), ["x"]);
        assert_eq!(names(cache.orphans("pods", "a")), ["y", "z"]);
        assert_eq!(names(cache.owned_by("pods", "v")), ["x", "z"]);
        assert_eq!(names(cache.on_node("pods", "n1")), ["x", "y"]);
        assert_eq!(names(cache.in_namespace("pods", "b")), [""; 0]);
    }

    #[test]
    fn a_kind_is_held_against_the_version_of_an_object_if_they_compare() {
        let check = |revision: u64, version: &str, expect: bool| {
            let cache = Cache::new(&["pods"], |_| Shown { revision, ..pods() });
            let object = value!({"metadata": {"resourceVersion": version}});
            assert_eq!(cache.has_reached("pods", &object), expect, "{revision} and {version}");
        };
        check(9, "10", false);
        check(10, "10", true);
        check(11, "9", true);
        check(0, "10", true);
        check(10, "x", true);
    }

    #[test]
    #[should_panic(expected = "secrets is read but not declared")]
    fn what_is_not_declared_cannot_be_read() {
        Cache::new(&["pods"], |_| pods()).of("secrets");
    }
}
