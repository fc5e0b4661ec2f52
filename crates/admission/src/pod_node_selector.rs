//! PodNodeSelector: adds the node selector of a namespace to its pods.

use api::resources::{NAMESPACES, PODS};
use apimachinery::labels::{Operator, Selector};
use apimachinery::meta::Meta;
use apimachinery::status::{GroupName, Status};
use apimachinery::{Object, Value};

use super::pods::{spec, spec_mut};
use super::{Attributes, Notes, Plugin, View};

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";

/// The configuration entry for namespaces without an annotation.
const CLUSTER_DEFAULT: &str = "clusterDefaultNodeSelector";

pub(crate) struct PodNodeSelector {
    /// The cluster default, and the allowed selector by namespace.
    config: Object,
}

impl PodNodeSelector {
    /// Parses the plugin's configuration.
    pub(crate) fn of(config: &Value) -> Self {
        Self { config: config["podNodeSelectorPluginConfig"].as_object().cloned().unwrap_or_default() }
    }

    fn configured(&self, key: &str) -> Option<&str> {
        self.config.get(key).and_then(Value::as_str)
    }
}

impl Plugin for PodNodeSelector {
    fn admit(
        &self,
        attributes: &Attributes<'_>,
        pod: &mut Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        if !attributes.creates(PODS) {
            return Ok(());
        }
        let Some(namespace) = view.object(NAMESPACES, "", attributes.namespace) else {
            return Err(Status::not_found(GroupName::new("", "namespaces"), attributes.namespace));
        };
        let namespace_selector = Meta::of(&namespace).annotation(ANNOTATION).or(self.configured(CLUSTER_DEFAULT));
        let namespace_selector = namespace_selector.unwrap_or_default();
        let namespace_selector = labels(namespace_selector).ok_or_else(|| {
            Status::internal_error(format!(
                "the annotation {ANNOTATION} of namespace {} cannot be read",
                attributes.namespace
            ))
        })?;
        let has = spec(pod).get("nodeSelector").and_then(Value::as_object);
        if namespace_selector
            .iter()
            .any(|(key, value)| has.and_then(|has| has.get(key)).is_some_and(|have| have != value))
        {
            let message = "pod node label selector conflicts with its namespace node label selector";
            return Err(attributes.forbidden(pod, message));
        }
        if let (false, Some(fields)) = (namespace_selector.is_empty(), spec_mut(pod))
            && let Value::Object(selector) = fields.get_or_insert_with("nodeSelector", Value::object)
        {
            for (key, value) in namespace_selector {
                selector.insert(key, value);
            }
        }
        self.check_allowed(attributes, pod)
    }
}

impl PodNodeSelector {
    /// Rejects a node selector that is not within the namespace's allowed selector.
    fn check_allowed(&self, attributes: &Attributes<'_>, pod: &Value) -> Result<(), Status> {
        let Some(allowed) = self.configured(attributes.namespace).and_then(labels) else { return Ok(()) };
        let mut has = spec(pod).get("nodeSelector").and_then(Value::as_object).into_iter().flat_map(Object::iter);
        if allowed.is_empty() || has.all(|(key, value)| allowed.get(key) == Some(value)) {
            return Ok(());
        }
        Err(attributes.forbidden(pod, "pod node label selector labels conflict with its namespace whitelist"))
    }
}

/// Parses `a=b,c=d` to labels.
fn labels(text: &str) -> Option<Object> {
    let selector = Selector::parse(text).ok()?;
    let mut labels = Object::new();
    for requirement in selector.requirements()? {
        if !matches!(requirement.operator(), Operator::Equals | Operator::DoubleEquals) {
            return None;
        }
        labels.insert(requirement.key(), requirement.values().first()?.as_str());
    }
    Some(labels)
}
