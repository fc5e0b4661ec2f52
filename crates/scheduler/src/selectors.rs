//! Default selector of a pod: the combined selectors of its services and its controller.

use std::collections::BTreeMap;

use apimachinery::labels::{self, Operator, Requirement, Selector};
use apimachinery::{Key, Object, Path, Str, Value};

use crate::pod::{OwnerKind, Pod};

/// Selectors of services and controllers.
#[derive(Clone, Debug, Default)]
pub struct Selectors {
    /// By namespace and name.
    services: BTreeMap<Str, BTreeMap<Str, Selector>>,
    owners: BTreeMap<(OwnerKind, Key), Selector>,
}

impl Selectors {
    /// Updates a service; `None` means that it was deleted. A service without selector matches no pod.
    pub fn set_service(&mut self, key: &Key, object: Option<&Value>) {
        let selector = object.and_then(|it| it.at(&["spec", "selector"])).and_then(Value::as_object).map(equal_to);
        match selector {
            Some(selector) => {
                self.services.entry(key.namespace.clone()).or_default().insert(key.name.clone(), selector);
            }
            None => {
                if let Some(services) = self.services.get_mut(&key.namespace) {
                    services.remove(&key.name);
                    if services.is_empty() {
                        self.services.remove(&key.namespace);
                    }
                }
            }
        }
    }

    /// Updates a controller; `None` means that it was deleted.
    pub fn set_owner(&mut self, kind: OwnerKind, key: &Key, object: Option<&Value>) {
        let selector = object.and_then(|it| it.at(&["spec", "selector"])).and_then(|selector| match kind {
            OwnerKind::ReplicationController => selector.as_object().map(equal_to),
            OwnerKind::ReplicaSet | OwnerKind::StatefulSet => labels::from_object(Some(selector)).ok(),
        });
        match selector {
            Some(selector) => drop(self.owners.insert((kind, key.clone()), selector)),
            None => drop(self.owners.remove(&(kind, key.clone()))),
        }
    }

    pub fn services(&self) -> impl Iterator<Item = Key> {
        let keys = |(namespace, services): (&Str, &BTreeMap<Str, Selector>)| -> Vec<Key> {
            services.keys().map(|name| Key::new(namespace.clone(), name.clone())).collect()
        };
        self.services.iter().flat_map(keys)
    }

    /// Returns the keys of all controllers of a kind.
    pub fn owners(&self, kind: OwnerKind) -> impl Iterator<Item = Key> {
        self.owners.keys().filter(move |(have, _)| *have == kind).map(|(_, key)| key.clone())
    }

    /// Returns the conjunction of all selectors that match the pod; `None` if no selector matches.
    pub fn of(&self, pod: &Pod) -> Option<Selector> {
        let services = self.services.get(&pod.class.namespace).into_iter().flat_map(BTreeMap::values);
        let mut requirements: Vec<Requirement> = Vec::new();
        let mut add = |selector: &Selector| {
            for requirement in selector.requirements().unwrap_or_default() {
                if !requirements.contains(requirement) {
                    requirements.push(requirement.clone());
                }
            }
        };
        services.filter(|selector| pod.class.matches(selector)).for_each(&mut add);
        if let Some(owner) = &pod.owner {
            let key = (owner.kind, Key::new(pod.class.namespace.clone(), owner.name.clone()));
            self.owners.get(&key).into_iter().for_each(&mut add);
        }
        (!requirements.is_empty()).then(|| Selector::new(requirements))
    }
}

/// Builds a selector for these exact labels. An invalid label matches no pod.
fn equal_to(labels: &Object) -> Selector {
    let requirement = |(key, value): (&str, &Value)| {
        Requirement::new(key, Operator::Equals, vec![value.as_str().unwrap_or_default().into()], &Path::ROOT)
    };
    labels.iter().map(requirement).collect::<Result<_, _>>().map_or(Selector::Nothing, Selector::new)
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn pod(owner: &str) -> Pod {
        let owner =
            value!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": "u", "controller": true});
        let labels = value!({"app": "web", "tier": "front", "hash": "x"});
        Pod::new(&value!({"metadata": {"name": "p", "namespace": "ns", "labels": labels, "ownerReferences": [owner]}}))
            .unwrap()
    }

    #[test]
    fn default_selector_combines_services_and_controller() {
        let mut selectors = Selectors::default();
        let key = |name: &str| Key::new("ns", name);
        assert_eq!(selectors.of(&pod("set")), None);
        selectors.set_service(&key("a"), Some(&value!({"spec": {"selector": {"app": "web"}}})));
        selectors.set_service(&key("b"), Some(&value!({"spec": {"selector": {"app": "other"}}})));
        selectors.set_service(&Key::new("elsewhere", "c"), Some(&value!({"spec": {"selector": {"tier": "front"}}})));
        selectors.set_service(&key("headless"), Some(&value!({"spec": {}})));
        let text = |selector: Option<Selector>| selector.map(|it| it.requirements().unwrap().len());
        assert_eq!(text(selectors.of(&pod("set"))), Some(1));
        let set = value!({"spec": {"selector": {"matchLabels": {"app": "web", "hash": "x"}}}});
        selectors.set_owner(OwnerKind::ReplicaSet, &key("set"), Some(&set));
        assert!(pod("set").class.matches(&selectors.of(&pod("set")).unwrap()));
        assert_eq!(text(selectors.of(&pod("gone"))), Some(1));
        selectors.set_owner(OwnerKind::ReplicaSet, &key("set"), None);
        selectors.set_service(&key("a"), None);
        assert_eq!(selectors.of(&pod("set")), None);
        assert_eq!(selectors.services().count(), 2);
    }
}
