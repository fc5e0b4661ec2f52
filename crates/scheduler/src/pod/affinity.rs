//! Pod affinity and anti-affinity terms.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use apimachinery::labels::{self, Selector};
use apimachinery::{Str, Value};

use super::{Class, Error, clamp};

/// Type of an affinity term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TermKind {
    /// Required affinity: a matching pod must exist in the domain.
    Affinity,
    /// Required anti-affinity: no matching pod may exist in the domain.
    AntiAffinity,
    /// Preferred affinity with this weight; negative for anti-affinity.
    Preferred(i32),
}

/// A `PodAffinityTerm`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub kind: TermKind,
    /// Node label whose values are the topology domains.
    pub topology_key: Str,
    /// Namespaces of matching pods.
    pub namespaces: Vec<Str>,
    /// Selects further namespaces by their labels.
    pub namespace_selector: Selector,
    pub selector: Selector,
}

impl Term {
    /// Whether the term matches pods of `class`, whose namespace has these labels.
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

/// Parses the terms of a pod spec, required ones first.
pub(super) fn terms(spec: &Value, namespace: &str) -> Result<Box<[Arc<Term>]>, Error> {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let affinity = &spec["affinity"];
    let mut terms = Vec::new();
    for (field, kind) in [("podAffinity", TermKind::Affinity), ("podAntiAffinity", TermKind::AntiAffinity)] {
        for term in affinity[field].list_at(&[REQUIRED]) {
            terms.push(Arc::new(term_of(term, kind, namespace)?));
        }
    }
    for (field, sign) in [("podAffinity", 1), ("podAntiAffinity", -1)] {
        for weighted in affinity[field].list_at(&[PREFERRED]) {
            let weight = clamp(weighted.get("weight").and_then(Value::as_int).unwrap_or_default()).saturating_mul(sign);
            terms.push(Arc::new(term_of(&weighted["podAffinityTerm"], TermKind::Preferred(weight), namespace)?));
        }
    }
    Ok(terms.into())
}

fn term_of(term: &Value, kind: TermKind, namespace: &str) -> Result<Term, Error> {
    let selector =
        |field: &'static str| labels::from_object(term.get(field)).map_err(|reason| Error::Selector { field, reason });
    let mut namespaces: Vec<Str> =
        term.list_at(&["namespaces"]).iter().filter_map(Value::as_str).map(Str::from).collect();
    if namespaces.is_empty() && term.get("namespaceSelector").is_none_or(Value::is_null) {
        namespaces.push(namespace.into());
    }
    namespaces.sort_unstable();
    Ok(Term {
        kind,
        topology_key: term.text_at(&["topologyKey"]).into(),
        namespaces,
        namespace_selector: selector("namespaceSelector")?,
        selector: selector("labelSelector")?,
    })
}
