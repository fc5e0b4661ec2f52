//! RBAC authorizer: roles and bindings, and the evaluation of requests.

pub mod bootstrap;
mod escalation;
mod rule;

use std::collections::BTreeMap;

use apimachinery::{Str, Value};

pub use escalation::{UncoveredRules, uncovered};
pub use rule::Rule;

use crate::{Attributes, Authorizer, Decision, Target, User, service_account};

/// All roles and bindings of a cluster, indexed by subject.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// By namespace (empty: ClusterRoles) and name.
    roles: BTreeMap<(Str, Str), Vec<Rule>>,
    /// By namespace (empty: ClusterRoleBindings) and name.
    bindings: BTreeMap<(Str, Str), Binding>,
    /// The names of bindings by namespace and subject, for the lookup of a request.
    by_subject: BTreeMap<(Str, Subject), Vec<Str>>,
}

/// A RoleBinding or ClusterRoleBinding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Whether the role is a ClusterRole, which a RoleBinding may also refer to.
    pub cluster_role: bool,
    pub role: Str,
    pub subjects: Vec<Subject>,
}

/// A subject of a binding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    User(Str),
    Group(Str),
    /// A service account by namespace and name.
    ServiceAccount(Str, Str),
}

/// A role granted to the user by a binding. The role may not exist.
struct Grant<'a> {
    namespace: &'a str,
    name: &'a str,
    binding: &'a Binding,
    subject: &'a Subject,
}

impl Policy {
    /// Sets the rules of a Role; an empty namespace means a ClusterRole.
    pub fn set_role(&mut self, namespace: &str, name: &str, rules: Vec<Rule>) {
        self.roles.insert((namespace.into(), name.into()), rules);
    }

    pub fn remove_role(&mut self, namespace: &str, name: &str) {
        self.roles.remove(&(namespace.into(), name.into()));
    }

    /// Sets a binding; an empty namespace means a ClusterRoleBinding.
    pub fn set_binding(&mut self, namespace: &str, name: &str, binding: Binding) {
        self.remove_binding(namespace, name);
        for subject in &binding.subjects {
            let names = self.by_subject.entry((namespace.into(), subject.clone())).or_default();
            if let Err(at) = names.binary_search_by(|have| have.as_str().cmp(name)) {
                names.insert(at, name.into());
            }
        }
        self.bindings.insert((namespace.into(), name.into()), binding);
    }

    pub fn remove_binding(&mut self, namespace: &str, name: &str) {
        let Some(binding) = self.bindings.remove(&(namespace.into(), name.into())) else { return };
        for subject in binding.subjects {
            let key = (namespace.into(), subject);
            if let Some(names) = self.by_subject.get_mut(&key) {
                names.retain(|have| have != name);
                if names.is_empty() {
                    self.by_subject.remove(&key);
                }
            }
        }
    }

    /// Returns the rules of `user` in `namespace` (empty: only cluster-wide rules), and errors about missing roles.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<&Rule>, Vec<String>) {
        let (mut rules, mut missing) = (Vec::new(), Vec::new());
        for grant in self.grants(user, namespace) {
            match self.rules_of(&grant) {
                Some(granted) => rules.extend(granted),
                None => missing.push(grant.missing_role()),
            }
        }
        (rules, missing)
    }

    fn grants<'a>(&'a self, user: &User, namespace: &'a str) -> impl Iterator<Item = Grant<'a>> {
        let subjects: Vec<Subject> = subjects_of(user).collect();
        let places = if namespace.is_empty() { vec![""] } else { vec!["", namespace] };
        places.into_iter().flat_map(move |scope| {
            let found: Vec<_> = subjects
                .iter()
                .filter_map(|subject| self.by_subject.get_key_value(&(scope.into(), subject.clone())))
                .collect();
            found.into_iter().flat_map(move |((_, subject), names)| {
                names.iter().map(move |name| {
                    let binding = self.bindings.get(&(scope.into(), name.clone()));
                    let binding = binding.expect("the index refers only to existing bindings");
                    Grant { namespace: scope, name, binding, subject }
                })
            })
        })
    }

    fn rules_of(&self, grant: &Grant<'_>) -> Option<&Vec<Rule>> {
        let namespace = if grant.binding.cluster_role { "" } else { grant.namespace };
        self.roles.get(&(namespace.into(), grant.binding.role.clone()))
    }
}

impl Authorizer for Policy {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let namespace = match attributes.target {
            Target::Resource(resource) => resource.namespace,
            Target::Path(_) => "",
        };
        let mut missing = Vec::new();
        for grant in self.grants(attributes.user, namespace) {
            match self.rules_of(&grant) {
                Some(rules) if rules.iter().any(|rule| rule.permits(attributes)) => {
                    return Decision::Allow(format!("RBAC: allowed by {}", grant.describe()));
                }
                Some(_) => {}
                None => missing.push(grant.missing_role()),
            }
        }
        Decision::NoOpinion(match missing.as_slice() {
            [] => String::new(),
            [one] => format!("RBAC: {one}"),
            many => format!("RBAC: [{}]", many.join(", ")),
        })
    }
}

impl Binding {
    /// Parses a RoleBinding or ClusterRoleBinding. A ServiceAccount subject without a namespace is in the namespace of
    /// its RoleBinding. In a ClusterRoleBinding it matches no account.
    pub fn from_object(object: &Value) -> Self {
        let own_namespace = object.text_at(&["metadata", "namespace"]);
        let subjects = object.list_at(&["subjects"]);
        Self {
            cluster_role: object.str_at(&["roleRef", "kind"]) == Some("ClusterRole"),
            role: object.text_at(&["roleRef", "name"]).into(),
            subjects: subjects.iter().filter_map(|subject| Subject::from_object(subject, own_namespace)).collect(),
        }
    }
}

impl Subject {
    fn from_object(subject: &Value, binding_namespace: &str) -> Option<Self> {
        let name = subject.str_at(&["name"])?;
        match subject.str_at(&["kind"])? {
            "User" => Some(Self::User(name.into())),
            "Group" => Some(Self::Group(name.into())),
            "ServiceAccount" => {
                let stated = subject.str_at(&["namespace"]).filter(|namespace| !namespace.is_empty());
                let namespace = stated.unwrap_or(binding_namespace);
                (!namespace.is_empty()).then(|| Self::ServiceAccount(namespace.into(), name.into()))
            }
            _ => None,
        }
    }
}

impl Grant<'_> {
    fn describe(&self) -> String {
        let (kind, name) = match self.namespace {
            "" => ("ClusterRoleBinding", self.name.to_owned()),
            namespace => ("RoleBinding", format!("{}/{namespace}", self.name)),
        };
        let subject = match self.subject {
            Subject::User(name) => format!("User {name:?}"),
            Subject::Group(name) => format!("Group {name:?}"),
            Subject::ServiceAccount(namespace, name) => format!("ServiceAccount {:?}", format!("{name}/{namespace}")),
        };
        format!("{kind} {name:?} of {} {:?} to {subject}", self.role_kind(), self.binding.role)
    }

    fn missing_role(&self) -> String {
        format!("{}.rbac.authorization.k8s.io {:?} not found", self.role_kind().to_lowercase(), self.binding.role)
    }

    fn role_kind(&self) -> &'static str {
        if self.binding.cluster_role { "ClusterRole" } else { "Role" }
    }
}

fn subjects_of(user: &User) -> impl Iterator<Item = Subject> {
    let account = service_account::parse(&user.name)
        .map(|(namespace, name)| Subject::ServiceAccount(namespace.into(), name.into()));
    let groups = user.groups.iter().map(|group| Subject::Group(group.clone()));
    [Subject::User(user.name.clone())].into_iter().chain(account).chain(groups)
}

#[cfg(test)]
mod tests;
