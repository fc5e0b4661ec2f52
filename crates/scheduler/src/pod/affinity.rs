//! Rules of a pod about other pods: together with them or apart, in one topology domain.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use machinery::labels::{self, Selector};
use machinery::{Str, Value};

use super::{Class, Error, clamp, items};

/// What a rule demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TermKind {
    /// There must be such a pod in the domain.
    Affinity,
    /// There must be no such pod in the domain.
    AntiAffinity,
    /// Such a pod in the domain counts for it by this weight, against it if negative.
    Preferred(i32),
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// What it demands.
    pub kind: TermKind,
    /// The label of nodes whose values are the domains.
    pub topology_key: Str,
    /// The namespaces of the pods that it is about.
    pub namespaces: Vec<Str>,
    /// More namespaces, by their labels.
    pub namespace_selector: Selector,
    /// The pods that it is about.
    pub selector: Selector,
}

impl Term {
    /// Whether it is about pods of `class`, whose namespace has these labels.
    pub fn matches(&self, class: &Class, namespace_labels: &[(Str, Str)]) -> bool {
        let in_namespace = self.namespaces.contains(&class.namespace)
            || self.namespace_selector.matches(|key| super::label(namespace_labels, key));
        in_namespace && class.matches(&self.selector)
    }
}

impl Hash for Term {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.kind, &self.topology_key, &self.namespaces).hash(state);
        for selector in [&self.namespace_selector, &self.selector] {
            for requirement in selector.requirements().unwrap_or_default() {
                (requirement.key(), requirement.values()).hash(state);
            }
        }
    }
}

/// The rules of a pod's specification, those that must hold first.
pub fn terms(spec: &Value, namespace: &str) -> Result<Box<[Arc<Term>]>, Error> {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let affinity = &spec["affinity"];
    let mut terms = Vec::new();
    for (field, kind) in [("podAffinity", TermKind::Affinity), ("podAntiAffinity", TermKind::AntiAffinity)] {
        for term in items(&affinity[field], REQUIRED) {
            terms.push(Arc::new(term_of(term, kind, namespace)?));
        }
    }
    for (field, sign) in [("podAffinity", 1), ("podAntiAffinity", -1)] {
        for weighted in items(&affinity[field], PREFERRED) {
            let weight = clamp(weighted.get("weight").and_then(Value::as_int).unwrap_or_default()).saturating_mul(sign);
            terms.push(Arc::new(term_of(&weighted["podAffinityTerm"], TermKind::Preferred(weight), namespace)?));
        }
    }
    Ok(terms.into())
}

fn term_of(term: &Value, kind: TermKind, namespace: &str) -> Result<Term, Error> {
    let selector =
        |field: &'static str| labels::from_object(term.get(field)).map_err(|reason| Error::Selector { field, reason });
    let mut namespaces: Vec<Str> = items(term, "namespaces").iter().filter_map(Value::as_str).map(Str::from).collect();
    if namespaces.is_empty() && term.get("namespaceSelector").is_none_or(Value::is_null) {
        namespaces.push(namespace.into());
    }
    namespaces.sort_unstable();
    Ok(Term {
        kind,
        topology_key: term.str_at(&["topologyKey"]).unwrap_or_default().into(),
        namespaces,
        namespace_selector: selector("namespaceSelector")?,
        selector: selector("labelSelector")?,
    })
}
