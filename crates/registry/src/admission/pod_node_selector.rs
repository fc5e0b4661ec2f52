//! PodNodeSelector: pods of a namespace go to the nodes that the namespace names.

use machinery::labels::{Operator, Selector};
use machinery::meta::Meta;
use machinery::status::{GroupName, Status};
use machinery::{Object, Value};

use super::pods::{spec, spec_mut};
use super::{Attributes, Notes, Plugin, View};

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";

/// See the module.
// DEVIATION: the whitelists and the cluster's default that upstream reads from a file are not read.
pub struct PodNodeSelector;

impl Plugin for PodNodeSelector {
    fn admit(&self, attributes: &Attributes<'_>, pod: &mut Value, view: &dyn View, _: &mut Notes) -> Result<(), Status> {
        if !attributes.creates("", "pods") {
            return Ok(());
        }
        let Some(namespace) = view.object("", "namespaces", "", attributes.namespace) else {
            return Err(Status::not_found(GroupName::new("", "namespaces"), attributes.namespace));
        };
        let Some(wanted) = Meta::of(&namespace).annotation(ANNOTATION) else { return Ok(()) };
        let wanted = labels(wanted).ok_or_else(|| {
            Status::internal_error(format!("the annotation {ANNOTATION} of namespace {} cannot be read", attributes.namespace))
        })?;
        let has = spec(pod).get("nodeSelector").and_then(Value::as_object);
        if wanted.iter().any(|(key, value)| has.and_then(|has| has.get(key)).is_some_and(|have| have != value)) {
            let why = "pod node label selector conflicts with its namespace node label selector";
            return Err(attributes.forbidden(pod, why));
        }
        if let (false, Some(fields)) = (wanted.is_empty(), spec_mut(pod))
            && let Value::Object(selector) = fields.get_or_insert_with("nodeSelector", Value::object)
        {
            for (key, value) in wanted {
                selector.insert(key, value);
            }
        }
        Ok(())
    }
}

/// `a=b,c=d` as labels.
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
