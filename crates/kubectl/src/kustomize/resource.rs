//! Resources of a kustomization: objects with their earlier names, and sets of them.

use std::fmt;

use apimachinery::{Object, Value};

use super::Error;

/// The behavior of a generated object that already exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Behavior {
    #[default]
    Unspecified,
    Create,
    Replace,
    Merge,
}

/// The group, version and kind of a resource; empty fields of a selector match anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gvk {
    pub group: String,
    pub version: String,
    pub kind: String,
}

/// The identity of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Id {
    pub gvk: Gvk,
    pub name: String,
    pub namespace: String,
    /// Whether the kind is known to be cluster-scoped. Earlier identities are not looked up, as in kustomize.
    pub cluster_scoped: bool,
}

/// An object with its earlier identities and its generator options.
#[derive(Clone, Debug, Default)]
pub(super) struct Resource {
    /// The object; `null` if a patch deleted it.
    pub object: Value,
    previous: Vec<(String, String, String)>,
    pub prefixes: Vec<String>,
    pub suffixes: Vec<String>,
    /// Whether the name gets a suffix from the content.
    pub needs_hash: bool,
    pub behavior: Behavior,
}

/// Resources in the order in which they were loaded, with unique identities.
#[derive(Clone, Debug, Default)]
pub(super) struct Set {
    pub resources: Vec<Resource>,
}

const NOT_A_NAMESPACE: &str = "_non_namespaceable_";
const DEFAULT_NAMESPACE: &str = "default";

/// The kinds that kustomize knows as cluster-scoped. All others get the namespace of a kustomization.
const CLUSTER_SCOPED: &[(&str, &str)] = &[
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1beta1", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1beta1", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition"),
    ("apiregistration.k8s.io/v1", "APIService"),
    ("apiregistration.k8s.io/v1beta1", "APIService"),
    ("certificates.k8s.io/v1", "CertificateSigningRequest"),
    ("certificates.k8s.io/v1beta1", "CertificateSigningRequest"),
    ("flowcontrol.apiserver.k8s.io/v1beta1", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io/v1beta1", "PriorityLevelConfiguration"),
    ("networking.k8s.io/v1", "IngressClass"),
    ("networking.k8s.io/v1beta1", "IngressClass"),
    ("node.k8s.io/v1", "RuntimeClass"),
    ("node.k8s.io/v1beta1", "RuntimeClass"),
    ("policy/v1beta1", "PodSecurityPolicy"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1beta1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1beta1", "ClusterRoleBinding"),
    ("scheduling.k8s.io/v1", "PriorityClass"),
    ("scheduling.k8s.io/v1beta1", "PriorityClass"),
    ("storage.k8s.io/v1", "CSIDriver"),
    ("storage.k8s.io/v1", "CSINode"),
    ("storage.k8s.io/v1", "StorageClass"),
    ("storage.k8s.io/v1", "VolumeAttachment"),
    ("storage.k8s.io/v1beta1", "CSIDriver"),
    ("storage.k8s.io/v1beta1", "CSINode"),
    ("storage.k8s.io/v1beta1", "StorageClass"),
    ("storage.k8s.io/v1beta1", "VolumeAttachment"),
    ("v1", "ComponentStatus"),
    ("v1", "Namespace"),
    ("v1", "Node"),
    ("v1", "NodeProxyOptions"),
    ("v1", "PersistentVolume"),
];

impl Gvk {
    pub(super) fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether the selector's non-empty fields equal this.
    pub(super) fn is_selected(&self, group: &str, version: &str, kind: &str) -> bool {
        let same = |have: &str, expected: &str| expected.is_empty() || have == expected;
        same(&self.group, group) && same(&self.version, version) && same(&self.kind, kind)
    }

    /// Whether kustomize knows the kind as cluster-scoped.
    pub(super) fn is_cluster_scoped(&self) -> bool {
        let api_version = self.api_version();
        CLUSTER_SCOPED.contains(&(api_version.as_str(), self.kind.as_str()))
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |text: &str, none: &'static str| if text.is_empty() { none.to_owned() } else { text.to_owned() };
        let (kind, version) = (or(&self.kind, "[noKind]"), or(&self.version, "[noVer]"));
        write!(out, "{kind}.{version}.{}", or(&self.group, "[noGrp]"))
    }
}

impl Id {
    pub(super) fn effective_namespace(&self) -> &str {
        match self.namespace.as_str() {
            _ if self.cluster_scoped => NOT_A_NAMESPACE,
            "" => DEFAULT_NAMESPACE,
            namespace => namespace,
        }
    }

    /// Whether both identify the same object: kind, name and effective namespace are equal.
    pub(super) fn same(&self, other: &Self) -> bool {
        self.gvk == other.gvk && self.name == other.name && self.effective_namespace() == other.effective_namespace()
    }

    /// Formats the identity like Go's `%#v`.
    pub(super) fn go_syntax(&self) -> String {
        let Gvk { group, version, kind } = &self.gvk;
        format!(
            "resid.ResId{{Gvk:resid.Gvk{{Group:{group:?}, Version:{version:?}, Kind:{kind:?}, isClusterScoped:{}}}, \
             Name:{:?}, Namespace:{:?}}}",
            self.cluster_scoped, self.name, self.namespace
        )
    }
}

impl fmt::Display for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { "[noName]" } else { &self.name };
        let namespace = if self.namespace.is_empty() { "[noNs]" } else { &self.namespace };
        write!(out, "{}/{name}.{namespace}", self.gvk)
    }
}

impl Resource {
    pub(super) fn new(object: Value) -> Self {
        Self { object, ..Self::default() }
    }

    fn text(&self, path: &[&str]) -> &str {
        self.object.str_at(path).unwrap_or_default()
    }

    pub(super) fn kind(&self) -> &str {
        self.text(&["kind"])
    }

    pub(super) fn name(&self) -> &str {
        self.text(&["metadata", "name"])
    }

    pub(super) fn namespace(&self) -> &str {
        self.text(&["metadata", "namespace"])
    }

    pub(super) fn gvk(&self) -> Gvk {
        Gvk::new(self.text(&["apiVersion"]), self.kind())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.object.as_object().is_none_or(Object::is_empty)
    }

    pub(super) fn set_kind(&mut self, kind: &str) {
        if let Value::Object(object) = &mut self.object {
            object.insert("kind", kind);
        }
    }

    pub(super) fn set_api_version(&mut self, version: &str) {
        if let Value::Object(object) = &mut self.object {
            object.insert("apiVersion", version);
        }
    }

    pub(super) fn set_name(&mut self, name: &str) {
        self.metadata().insert("name", name);
    }

    /// Sets the namespace; an empty one removes the field.
    pub(super) fn set_namespace(&mut self, namespace: &str) {
        if namespace.is_empty() {
            self.metadata().remove("namespace");
        } else {
            self.metadata().insert("namespace", namespace);
        }
    }

    fn metadata(&mut self) -> &mut Object {
        if self.object.as_object().is_none() {
            self.object = Value::object();
        }
        let object = self.object.as_object_mut().expect("the value was made an object above");
        let metadata = object.get_or_insert_with("metadata", Value::object);
        if metadata.as_object().is_none() {
            *metadata = Value::object();
        }
        metadata.as_object_mut().expect("the value was made an object above")
    }

    pub(super) fn current_id(&self) -> Id {
        let gvk = self.gvk();
        let cluster_scoped = gvk.is_cluster_scoped();
        Id { gvk, name: self.name().into(), namespace: self.namespace().into(), cluster_scoped }
    }

    /// Returns the identities before transformations, oldest first.
    pub(super) fn previous_ids(&self) -> impl Iterator<Item = Id> {
        let gvk = self.gvk();
        self.previous.iter().map(move |(namespace, name, kind)| Id {
            gvk: Gvk { kind: kind.clone(), ..gvk.clone() },
            name: name.clone(),
            namespace: namespace.clone(),
            cluster_scoped: false,
        })
    }

    /// Returns the identity as loaded.
    pub(super) fn original_id(&self) -> Id {
        self.previous_ids().next().unwrap_or_else(|| self.current_id())
    }

    /// Returns the earlier identities and the current one.
    pub(super) fn all_ids(&self) -> impl Iterator<Item = Id> {
        self.previous_ids().chain(std::iter::once(self.current_id()))
    }

    /// Records the current identity before a change of name, namespace or kind.
    pub(super) fn store_previous_id(&mut self) {
        let id = self.current_id();
        self.previous.push((id.effective_namespace().to_owned(), id.name, id.gvk.kind));
    }

    /// Copies the labels, annotations and identity of the object that this generated one replaces. Existing labels and
    /// annotations of this object have precedence.
    pub(super) fn inherit(&mut self, old: &Self) {
        for field in ["labels", "annotations"] {
            let mut merged = string_map(&old.object, &["metadata", field]);
            for (key, value) in string_map(&self.object, &["metadata", field]) {
                merged.insert(key, value);
            }
            if merged.is_empty() {
                self.metadata().remove(field);
            } else {
                self.metadata().insert(field, merged);
            }
        }
        self.set_name(old.name());
        self.set_namespace(old.namespace());
        self.previous.clone_from(&old.previous);
        self.prefixes.clone_from(&old.prefixes);
        self.suffixes.clone_from(&old.suffixes);
        self.needs_hash = self.needs_hash && old.needs_hash;
        self.behavior = old.behavior;
    }

    /// Adds the data of `old` that this object lacks.
    pub(super) fn merge_data(&mut self, old: &Self) {
        for field in ["data", "binaryData"] {
            let mut merged = string_map(&old.object, &[field]);
            for (key, value) in string_map(&self.object, &[field]) {
                merged.insert(key, value);
            }
            if let Value::Object(object) = &mut self.object {
                if merged.is_empty() {
                    object.remove(field);
                } else {
                    object.insert(field, merged);
                }
            }
        }
    }
}

impl Set {
    /// Adds a resource; fails if its identity is taken.
    pub(super) fn append(&mut self, resource: Resource) -> Result<(), Error> {
        let id = resource.current_id();
        if self.resources.iter().any(|have| have.current_id().same(&id)) {
            return Err(Error::new(format!("may not add resource with an already registered id: {id}")));
        }
        self.resources.push(resource);
        Ok(())
    }

    pub(super) fn append_all(&mut self, other: Self) -> Result<(), Error> {
        other.resources.into_iter().try_for_each(|resource| self.append(resource))
    }

    /// Adds a generated resource, or replaces or merges the one with its identity, according to its behavior.
    pub(super) fn absorb(&mut self, mut resource: Resource) -> Result<(), Error> {
        let id = resource.current_id();
        let matches: Vec<usize> = self.positions(&id);
        let (behavior, shown) = (resource.behavior, id.go_syntax());
        match (matches.as_slice(), behavior) {
            ([], Behavior::Merge | Behavior::Replace) => {
                Err(Error::new(format!("id {shown} does not exist; cannot merge or replace")))
            }
            ([], _) => self.append(resource),
            ([at], Behavior::Replace | Behavior::Merge) => {
                let old = &self.resources[*at];
                resource.inherit(old);
                if behavior == Behavior::Merge {
                    resource.merge_data(old);
                }
                self.resources[*at] = resource;
                Ok(())
            }
            ([_], _) => {
                let behavior = if behavior == Behavior::Create { "create" } else { "unspecified" };
                Err(Error::new(format!(
                    "id {shown} exists; can not use behavior: '{behavior}', behavior must be merge or replace"
                )))
            }
            _ => Err(Error::new(format!("found multiple objects that could accept merge of {id}"))),
        }
    }

    /// Returns the only resource that has or had an identity.
    pub(super) fn find(&self, id: &Id) -> Result<usize, Error> {
        let outcome = match self.positions(id).as_slice() {
            [at] => return Ok(*at),
            [] => "no matches",
            _ => "multiple matches",
        };
        Err(Error::new(format!("{outcome} for Id {id}; failed to find unique target for patch {id}")))
    }

    fn positions(&self, id: &Id) -> Vec<usize> {
        let resources = self.resources.iter().enumerate();
        let matching = resources.filter(|(_, have)| !have.is_empty() && have.all_ids().any(|other| other.same(id)));
        matching.map(|(at, _)| at).collect()
    }
}

/// Returns the map at a path; anything else is an empty map.
pub(super) fn string_map(object: &Value, path: &[&str]) -> Object {
    object.at(path).and_then(Value::as_object).cloned().unwrap_or_default()
}
