//! Kind: everything that generic request handling needs to know about an API kind.
//!
//! A built-in kind is one file with one [`Kind`]; a CustomResourceDefinition creates the same structure at run time. It
//! contains names and options; [`Rules`] contains the kind-specific behaviour.

mod rules;
mod subresource;

use std::sync::Arc;

use apimachinery::meta::{NameRule, Scope, name_is_dns_subdomain};
use apimachinery::schema::{Schema, TypeId, Types};
use apimachinery::table::{self, Cell, Column};
use apimachinery::{GroupVersion, GroupVersionKind, Str, Value};

use crate::catalogue;
use crate::core::service::allocation::{Allocation, AllocationError, AllocationLookup, Config, Plan, RandomSource};

pub use rules::{Context, NoRules, Requester, Rules};
pub use subresource::{Connect, ReplicaPaths, Subresource, SubresourceAction};

/// An API kind.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The API group, empty for core.
    pub group: Str,
    /// Such as `Pod`.
    pub kind: Str,
    /// Such as `PodList`.
    pub list_kind: Str,
    /// The resource name in URLs, such as `pods`.
    pub plural: Str,
    /// Such as `pod`.
    pub singular: Str,
    /// Such as `po`.
    pub short_names: Vec<Str>,
    /// Such as `all`.
    pub categories: Vec<Str>,
    pub scope: Scope,
    /// The versions, in order of preference.
    pub versions: Vec<Version>,
    pub persistence: Persistence,
    pub verbs: &'static [Verb],
    /// The subresources, in all versions. Custom resources have [`Version::subresources`] instead.
    pub subresources: Vec<Subresource>,
    pub name_rule: NameRule,
    /// Whether a PUT of a name that does not exist creates the object.
    pub create_on_update: bool,
    /// Whether a PUT may omit the resourceVersion.
    pub unconditional_update: bool,
    /// Default propagation policy of a delete.
    pub dependents: Dependents,
    /// Whether a delete returns the object instead of a Status.
    pub returns_deleted: bool,
    /// Fields supported in field selectors, in addition to `metadata.name` and (if namespaced) `metadata.namespace`.
    /// For custom resources those of the storage version; [`Kind::selectable_in`] returns those of another.
    pub selectable: Vec<Selectable>,
    /// Whether finalizers must be qualified by a domain, as for most kinds.
    pub qualified_finalizers: bool,
    /// Number of times the update validation repeats the metadata checks.
    pub update_checks: UpdateChecks,
    /// Whether the rules validate the metadata of a new object themselves. Generic validation then runs only if the
    /// rules report no error.
    pub validates_metadata: bool,
    /// Whether `generateName` appends a random suffix. False only for IPAddress, whose names are addresses.
    pub ends_names: bool,
    /// Whether a delete first removes the content of the object, as for namespaces and CRDs. Upstream implements the
    /// delete of these kinds separately, with other messages for failed preconditions.
    pub is_dismantled: bool,
    /// Annotations that hold fields missing in an older version. They are omitted from PartialObjectMetadata.
    pub field_annotations: &'static [&'static str],
    /// Allocation of cluster-wide unique values, such as cluster IPs.
    pub allocates: Option<Allocates>,
    /// The conversion webhook: `spec.conversion.webhook` of the CRD.
    pub converter: Option<Arc<Value>>,
    /// Identifies the revision of the CRD that this kind was built from; 0 for a built-in kind.
    pub edition: u64,
    /// The kind-specific behaviour.
    pub rules: Arc<dyn Rules>,
}

/// Allocates values for an object, given its old state, the configured ranges, the allocated values and a seed.
pub type PlanClaims =
    fn(&mut Value, Option<&Value>, &Config, &dyn AllocationLookup, RandomSource) -> Result<Plan, AllocationError>;

/// Allocation of unique values for objects of a kind. The transaction that writes the object also writes its
/// allocations.
#[derive(Clone, Copy, Debug)]
pub struct Allocates {
    /// Allocates the values and returns the allocations to store and to release.
    pub plan: PlanClaims,
    /// Returns all allocations of an object, which its deletion releases.
    pub allocated_claims: fn(&Value) -> Vec<Allocation>,
}

/// Number of times a kind's update validation repeats the generic metadata checks. Each repetition reports the same
/// errors again, and clients see every error in the causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateChecks {
    /// Repetitions of the validation of the metadata alone.
    pub whole: u8,
    /// Repetitions of the comparison with the old metadata.
    pub change: u8,
}

/// A version of a kind.
#[derive(Clone, Debug)]
pub struct Version {
    /// Such as `v1`.
    pub name: Str,
    /// Whether the version is served by default (without `--runtime-config`).
    pub served: bool,
    pub shape: Shape,
    /// The warning sent to clients of a deprecated version.
    pub deprecation: Option<Str>,
    /// Table columns.
    pub columns: Vec<Column>,
    /// Conversion to and from the storage version; `None` if only the `apiVersion` differs.
    pub convert: Option<Convert>,
    /// Fields supported in field selectors; only for custom resources.
    pub selectable: Vec<Selectable>,
    /// Subresources; only for custom resources.
    pub subresources: Vec<Subresource>,
}

/// Conversion between a version and the storage version. Both directions are total: fields without a counterpart are
/// kept in annotations, as in upstream.
#[derive(Clone, Copy, Debug)]
pub struct Convert {
    /// Converts to the storage version, except for `apiVersion` and `kind`.
    pub to_stored: fn(&mut Value),
    /// Converts from the storage version.
    pub from_stored: fn(&mut Value),
}

/// The schema of a version.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A type of the catalogue; other fields are unknown.
    BuiltIn(Schema<'static>),
    /// The structural schema of a CRD.
    Custom(Arc<Types>, TypeId),
}

/// Storage of the objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// In the store.
    Stored {
        /// The key part after `/registry/`: `pods`, `services/specs`, `apps.example.com/widgets`.
        prefix: Str,
        /// The storage version with its group: Events of `events.k8s.io` are stored as `v1`.
        version: GroupVersion,
        /// Whether objects expire (`--event-ttl`).
        expires: bool,
    },
    /// Not stored: the server computes the response.
    Virtual(VirtualKind),
}

/// Kinds whose objects are not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtualKind {
    TokenReview,
    SelfSubjectReview,
    SubjectAccessReview,
    LocalSubjectAccessReview,
    SelfSubjectAccessReview,
    SelfSubjectRulesReview,
    /// A pod's binding, created without the pod in the URL.
    Binding,
    ComponentStatus,
}

/// A request verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// Default propagation policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependents {
    /// Background: dependents are deleted afterwards.
    Delete,
    /// Dependents are kept and lose their owner reference.
    Orphan,
    /// The kind never has dependents.
    None,
}

/// A field supported in field selectors.
#[derive(Clone, Debug)]
pub struct Selectable {
    /// Such as `status.phase`.
    pub name: Str,
    /// The value is empty if the object lacks the field.
    pub value: FieldExtractor,
}

/// Extraction of the value of a selectable field.
#[derive(Clone, Debug)]
pub enum FieldExtractor {
    /// For a built-in kind; the function handles absent fields.
    Function(fn(&Value) -> Str),
    /// A JSON path from a CRD.
    Path(apimachinery::jsonpath::JsonPath),
}

/// All verbs of a stored kind.
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
    /// Returns a namespaced stored kind with one version, all verbs, no subresource and no specific rules.
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
            persistence: Persistence::Stored { prefix: plural.into(), version: stored, expires: false },
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
            validates_metadata: false,
            ends_names: true,
            is_dismantled: false,
            field_annotations: &[],
            allocates: None,
            converter: None,
            edition: 0,
            rules: Arc::new(NoRules),
        }
    }

    /// Returns a kind that supports only create and whose response contains the result.
    pub fn question(group: &str, version: &str, kind: &str, plural: &str, question: VirtualKind) -> Self {
        Self {
            scope: Scope::Cluster,
            persistence: Persistence::Virtual(question),
            verbs: &[Verb::Create],
            ..Self::stored(group, version, kind, plural)
        }
    }

    /// Adds a version that is not served by default and differs from the storage version only in its name.
    #[must_use]
    pub fn with_beta(mut self, version: &str) -> Self {
        let served = false;
        let columns = self.versions[0].columns.clone();
        self.versions.push(Version { served, columns, ..Version::built_in(&self.group, version, &self.kind) });
        self
    }

    /// Sets the columns of all versions.
    #[must_use]
    pub fn with_columns(mut self, columns: &[Column]) -> Self {
        for version in &mut self.versions {
            version.columns = columns.to_vec();
        }
        self
    }

    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    pub fn gvk(&self, version: &str) -> GroupVersionKind {
        GroupVersionKind { group: self.group.clone(), version: version.into(), kind: self.kind.clone() }
    }

    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// Whether a CRD defines the kind.
    pub fn is_custom(&self) -> bool {
        self.versions.iter().any(|version| matches!(version.shape, Shape::Custom(..)))
    }

    /// Returns the fields supported in field selectors of a version, in addition to `metadata.name` and
    /// `metadata.namespace`.
    pub fn selectable_in<'k>(&'k self, version: &'k Version) -> &'k [Selectable] {
        if self.is_custom() { &version.selectable } else { &self.selectable }
    }

    pub fn subresources_in(&self, version: &str) -> &[Subresource] {
        match self.version(version).filter(|_| self.is_custom()) {
            Some(version) => &version.subresources,
            None => &self.subresources,
        }
    }

    pub fn subresource(&self, version: &str, name: &str) -> Option<&Subresource> {
        self.subresources_in(version).iter().find(|subresource| subresource.name == name)
    }

    /// Returns resource and group as in messages: `deployments.apps`, `pods`.
    pub fn qualified_resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_string() } else { format!("{}.{}", self.plural, self.group) }
    }
}

impl Version {
    /// Returns a served version of a built-in kind with the default columns.
    ///
    /// # Panics
    /// If the catalogue lacks the type: a bug that the test of all kinds detects.
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

    pub fn schema(&self) -> Schema<'_> {
        match &self.shape {
            Shape::BuiltIn(schema) => *schema,
            Shape::Custom(types, root) => types.schema(*root),
        }
    }
}

impl Selectable {
    pub fn new(name: &str, value: fn(&Value) -> Str) -> Self {
        Self { name: name.into(), value: FieldExtractor::Function(value) }
    }

    /// Returns the field's value in `object`.
    pub fn of(&self, object: &Value) -> Str {
        match &self.value {
            FieldExtractor::Function(find) => find(object),
            FieldExtractor::Path(path) => {
                path.first(object).map_or_else(Str::default, |found| apimachinery::jsonpath::print(found).into())
            }
        }
    }
}

impl Verb {
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

    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.name() == name)
    }

    /// Returns the name in lower case, such as `deletecollection`.
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

/// Returns the columns of a kind without specific columns: name and creation time.
pub fn default_columns() -> Vec<Column> {
    vec![name_column(), created_column()]
}

pub fn name_column() -> Column {
    let description = "Name must be unique within a namespace, and cannot be changed.";
    Column { format: "name".to_owned(), ..Column::new("Name", "string", description, Cell::Function(table::name_cell)) }
}

pub fn age_column() -> Column {
    let description = "Time since the object was created.";
    Column::new("Age", "string", description, Cell::Function(table::age_cell))
}

/// Returns the creation time column, used instead of the age by kinds without specific columns.
fn created_column() -> Column {
    fn created(object: &Value, _now: apimachinery::time::Time) -> Value {
        object.at(&["metadata", "creationTimestamp"]).cloned().unwrap_or(Value::Null)
    }
    Column::new("Created At", "date", "When the object was created.", Cell::Function(created))
}

/// Converts strings to the type used in [`Kind`].
pub fn names(of: &[&str]) -> Vec<Str> {
    of.iter().map(|name| Str::from(*name)).collect()
}
