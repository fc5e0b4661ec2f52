//! A kind as a row of a table: everything that the generic path asks about it.
//!
//! A built-in kind is one file that makes one [`Kind`]; a CustomResourceDefinition makes the same row at run time. What
//! is the same for all kinds is not here: a row holds names and switches, and [`Rules`] what only this kind knows.

mod rules;
mod subresource;

use std::sync::Arc;

use machinery::meta::{NameRule, Scope, name_is_dns_subdomain};
use machinery::schema::{Schema, TypeId, Types};
use machinery::table::{self, Cell, Column};
use machinery::{GroupVersion, GroupVersionKind, Str, Value};

use crate::catalogue;
use crate::core::service::allocation::{Chance, Claim, Config, Plan, Refusal, Taken};

pub use rules::{Context, NoRules, Requester, Rules};
pub use subresource::{Connect, Does, ReplicaPaths, Subresource};

/// One kind of objects.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The API group, empty for core.
    pub group: Str,
    /// `Pod`.
    pub kind: Str,
    /// `PodList`.
    pub list_kind: Str,
    /// `pods`, as it stands in URLs.
    pub plural: Str,
    /// `pod`.
    pub singular: Str,
    /// `po`.
    pub short_names: Vec<Str>,
    /// `all`.
    pub categories: Vec<Str>,
    /// Whether its objects live in namespaces.
    pub scope: Scope,
    /// The versions, in the order of preference.
    pub versions: Vec<Version>,
    /// Where its objects are.
    pub keeping: Keeping,
    /// What a client may do with its objects.
    pub verbs: &'static [Verb],
    /// The parts that are read and written by themselves, in all versions; a custom kind has none of these but
    /// [`Version::subresources`].
    pub subresources: Vec<Subresource>,
    /// What a name must look like.
    pub name_rule: NameRule,
    /// Whether a PUT of a name that does not exist creates it.
    pub create_on_update: bool,
    /// Whether a PUT may leave out the resourceVersion.
    pub unconditional_update: bool,
    /// What becomes of an object's dependents when a delete does not say.
    pub dependents: Dependents,
    /// Whether a delete answers with the object rather than with a Status.
    pub returns_deleted: bool,
    /// Fields that a field selector may name, besides `metadata.name` and (in namespaces) `metadata.namespace`. Of a custom
    /// kind those of the stored version: [`Kind::selectable_in`] has those of another.
    pub selectable: Vec<Selectable>,
    /// Whether finalizers must have a domain, as most kinds ask.
    pub qualified_finalizers: bool,
    /// How often its validation of an update looks at the metadata again.
    pub update_checks: UpdateChecks,
    /// Whether the rules themselves judge the metadata of a new object, as far as it is judged at all: the generic path
    /// looks at it only when they find nothing wrong.
    pub judges_metadata: bool,
    /// Whether a name that is to be made up gets an ending; where names are addresses, it does not.
    pub ends_names: bool,
    /// Whether objects are taken apart before they go, and so have a delete of their own, which words its preconditions
    /// in its own way.
    pub is_dismantled: bool,
    /// Annotations that stand for fields which this version lacks: who asks for metadata only does not see them.
    pub field_annotations: &'static [&'static str],
    /// What its objects take that no other may have.
    pub allocates: Option<Allocates>,
    /// The webhook that converts its objects between versions: the `webhook` of a definition's `conversion`.
    pub converter: Option<Arc<Value>>,
    /// Tells the row that a definition makes from those that it made before it changed; 0 for a built-in kind.
    pub edition: u64,
    /// What only this kind knows.
    pub rules: Arc<dyn Rules>,
}

/// Gives an object what it is to have: from the object, what it was, what the cluster has, what is taken, and what draws
/// are made from.
pub type PlanClaims = fn(&mut Value, Option<&Value>, &Config, &dyn Taken, Chance) -> Result<Plan, Refusal>;

/// How objects of a kind get what only one may have. The claims are part of the object's own transaction.
#[derive(Clone, Copy, Debug)]
pub struct Allocates {
    /// Gives the object what it is to have, and says what to take and to give back.
    pub plan: PlanClaims,
    /// All that an object has, to be given back when it goes.
    pub held: fn(&Value) -> Vec<Claim>,
}

/// How often a kind's validation of an update looks at metadata that the generic path has looked at. Each look finds
/// the same again, and clients see every finding among the causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateChecks {
    /// At the metadata by itself.
    pub whole: u8,
    /// At how it changed.
    pub change: u8,
}

/// One version of a kind.
#[derive(Clone, Debug)]
pub struct Version {
    /// `v1`.
    pub name: Str,
    /// Whether it is served unless `--runtime-config` says otherwise.
    pub served: bool,
    /// What its objects look like.
    pub shape: Shape,
    /// What is said to clients that use it, if it is going away.
    pub deprecation: Option<Str>,
    /// What `kubectl get` prints.
    pub columns: Vec<Column>,
    /// How its objects become the stored version and come back; `None` if they differ in nothing but the version.
    pub convert: Option<Convert>,
    /// Fields that a field selector may name, if this is the version of a custom kind: each has its own.
    pub selectable: Vec<Selectable>,
    /// The parts that are read and written by themselves, if this is the version of a custom kind: each has its own.
    pub subresources: Vec<Subresource>,
}

/// How objects of a version become those of the stored one, and back. Both are total: what has no counterpart is
/// kept in annotations, as Kubernetes does.
#[derive(Clone, Copy, Debug)]
pub struct Convert {
    /// From this version to the stored one. Does not touch `apiVersion` and `kind`.
    pub to_stored: fn(&mut Value),
    /// From the stored version to this one.
    pub from_stored: fn(&mut Value),
}

/// What objects of a version look like.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A type of the catalogue: what it does not name does not exist.
    BuiltIn(Schema<'static>),
    /// The structural schema of a CustomResourceDefinition.
    Custom(Arc<Types>, TypeId),
}

/// Where the objects of a kind are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// In the store.
    Stored {
        /// The key's part after `/registry/`: `pods`, `services/specs`, `apps.example.com/widgets`.
        prefix: Str,
        /// The version they are stored in, with its group: Events of `events.k8s.io` are stored as `v1`.
        version: GroupVersion,
        /// Whether they expire (`--event-ttl`).
        expires: bool,
    },
    /// Nowhere: a question that is answered.
    Answered(Question),
}

/// The kinds that are questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whose token is this?
    TokenReview,
    /// Who am I?
    SelfSubjectReview,
    /// May this subject do that?
    SubjectAccessReview,
    /// The same, in one namespace.
    LocalSubjectAccessReview,
    /// May I do that?
    SelfSubjectAccessReview,
    /// What may I do?
    SelfSubjectRulesReview,
    /// A pod's binding, addressed without the pod.
    Binding,
    /// Are the parts of the control plane well?
    ComponentStatus,
}

/// What a client may do with objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

/// What becomes of an object's dependents when a delete does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependents {
    /// They are deleted afterwards.
    Delete,
    /// They are left, without their owner.
    Orphan,
    /// The kind never has any.
    None,
}

/// A field that a field selector may name.
#[derive(Clone, Debug)]
pub struct Selectable {
    /// `status.phase`.
    pub name: Str,
    /// Its value, empty if the object has none.
    pub value: Selected,
}

/// How the value of a selectable field is found.
#[derive(Clone, Debug)]
pub enum Selected {
    /// By a function, for a built-in kind: it knows what an absent field means.
    Function(fn(&Value) -> Str),
    /// By a path that a CRD names.
    Path(machinery::jsonpath::JsonPath),
}

/// Everything a stored kind allows.
pub const ALL_VERBS: &[Verb] = &[
    Verb::Create,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Update,
    Verb::Watch,
];

impl Kind {
    /// A stored kind in namespaces with one version, all verbs, no subresource, and no rules but those of all objects.
    pub fn stored(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        let stored = GroupVersion { group: group.into(), version: version.into() };
        Self {
            group: group.into(),
            kind: kind.into(),
            list_kind: format!("{kind}List").into(),
            plural: plural.into(),
            singular: kind.to_lowercase().into(),
            short_names: Vec::new(),
            categories: Vec::new(),
            scope: Scope::Namespaced,
            versions: vec![Version::built_in(group, version, kind)],
            keeping: Keeping::Stored { prefix: plural.into(), version: stored, expires: false },
            verbs: ALL_VERBS,
            subresources: Vec::new(),
            name_rule: name_is_dns_subdomain,
            create_on_update: false,
            unconditional_update: true,
            dependents: Dependents::Delete,
            returns_deleted: false,
            selectable: Vec::new(),
            qualified_finalizers: true,
            update_checks: UpdateChecks { whole: 0, change: 1 },
            judges_metadata: false,
            ends_names: true,
            is_dismantled: false,
            field_annotations: &[],
            allocates: None,
            converter: None,
            edition: 0,
            rules: Arc::new(NoRules),
        }
    }

    /// A kind that is a question: it can only be created, and the answer is in what comes back.
    pub fn question(group: &str, version: &str, kind: &str, plural: &str, question: Question) -> Self {
        Self {
            scope: Scope::Cluster,
            keeping: Keeping::Answered(question),
            verbs: &[Verb::Create],
            ..Self::stored(group, version, kind, plural)
        }
    }

    /// The row with a version that is not served by default and differs from the stored one in nothing but its name.
    #[must_use]
    pub fn with_beta(mut self, version: &str) -> Self {
        let served = false;
        let columns = self.versions[0].columns.clone();
        self.versions.push(Version { served, columns, ..Version::built_in(&self.group, version, &self.kind) });
        self
    }

    /// The row with these columns in all versions.
    #[must_use]
    pub fn with_columns(mut self, columns: &[Column]) -> Self {
        for version in &mut self.versions {
            version.columns = columns.to_vec();
        }
        self
    }

    /// The version of that name.
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The kind's name in a version.
    pub fn gvk(&self, version: &str) -> GroupVersionKind {
        GroupVersionKind { group: self.group.clone(), version: version.into(), kind: self.kind.clone() }
    }

    /// Whether its objects live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// Whether a definition made it, rather than a file of this program.
    pub fn is_custom(&self) -> bool {
        self.versions.iter().any(|version| matches!(version.shape, Shape::Custom(..)))
    }

    /// Fields that a field selector may name in a version, besides `metadata.name` and `metadata.namespace`.
    pub fn selectable_in<'k>(&'k self, version: &'k Version) -> &'k [Selectable] {
        if self.is_custom() { &version.selectable } else { &self.selectable }
    }

    /// The subresources of a version.
    pub fn subresources_in(&self, version: &str) -> &[Subresource] {
        match self.version(version).filter(|_| self.is_custom()) {
            Some(version) => &version.subresources,
            None => &self.subresources,
        }
    }

    /// The subresource of that name in a version.
    pub fn subresource(&self, version: &str, name: &str) -> Option<&Subresource> {
        self.subresources_in(version).iter().find(|subresource| subresource.name == name)
    }

    /// The group and resource as messages have them: `deployments.apps`, `pods`.
    pub fn qualified_resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_string() } else { format!("{}.{}", self.plural, self.group) }
    }
}

impl Version {
    /// A served version of a built-in kind, which prints its name and age.
    ///
    /// # Panics
    /// If the catalogue lacks it: a mistake in the table, which the test of all kinds finds.
    pub fn built_in(group: &str, version: &str, kind: &str) -> Self {
        let gvk = GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() };
        let schema = catalogue::schema(&gvk).expect("every built-in kind is in the catalogue");
        Self {
            name: version.into(),
            served: true,
            shape: Shape::BuiltIn(schema),
            deprecation: None,
            columns: default_columns(),
            convert: None,
            selectable: Vec::new(),
            subresources: Vec::new(),
        }
    }

    /// What its objects look like.
    pub fn schema(&self) -> Schema<'_> {
        match &self.shape {
            Shape::BuiltIn(schema) => *schema,
            Shape::Custom(types, root) => types.schema(*root),
        }
    }
}

impl Selectable {
    /// A field whose value a function finds.
    pub fn new(name: &str, value: fn(&Value) -> Str) -> Self {
        Self { name: name.into(), value: Selected::Function(value) }
    }

    /// The field's value in `object`.
    pub fn of(&self, object: &Value) -> Str {
        match &self.value {
            Selected::Function(find) => find(object),
            Selected::Path(path) => {
                path.first(object).map_or_else(Str::default, |found| machinery::jsonpath::print(found).into())
            }
        }
    }
}

impl Verb {
    /// All verbs.
    pub const ALL: [Self; 8] = [
        Self::Create,
        Self::Delete,
        Self::DeleteCollection,
        Self::Get,
        Self::List,
        Self::Patch,
        Self::Update,
        Self::Watch,
    ];

    /// The verb of this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.name() == name)
    }

    /// `deletecollection`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
        }
    }
}

/// Name and age: what is printed of a kind that says nothing else.
pub fn default_columns() -> Vec<Column> {
    vec![name_column(), created_column()]
}

/// The column of the name.
pub fn name_column() -> Column {
    let description = "Name must be unique within a namespace, and cannot be changed.";
    Column { format: "name".to_owned(), ..Column::new("Name", "string", description, Cell::Function(table::name_cell)) }
}

/// The column of the age.
pub fn age_column() -> Column {
    let description = "Time since the object was created.";
    Column::new("Age", "string", description, Cell::Function(table::age_cell))
}

/// The column of the time of creation, which kinds without columns of their own have instead of an age.
fn created_column() -> Column {
    fn created(object: &Value, _now: machinery::time::Time) -> Value {
        object.at(&["metadata", "creationTimestamp"]).cloned().unwrap_or(Value::Null)
    }
    Column::new("Created At", "date", "When the object was created.", Cell::Function(created))
}

/// Strings as a row wants them.
pub fn names(of: &[&str]) -> Vec<Str> {
    of.iter().map(|name| Str::from(*name)).collect()
}
