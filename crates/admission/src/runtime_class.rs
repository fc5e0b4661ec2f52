//! RuntimeClass: sets the overhead, node selector and tolerations of a pod's RuntimeClass.

use api::amounts;
use api::resources::{PODS, RUNTIME_CLASSES};
use apimachinery::status::Status;
use apimachinery::{Object, Value};

use super::pods::{list_mut, spec, spec_mut};
use super::{Attributes, CachedObject, Notes, Plugin, View};

pub(crate) struct RuntimeClass;

impl Plugin for RuntimeClass {
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
        let Some(class) = class_of(attributes, pod, view)? else { return Ok(()) };
        set_overhead(attributes, pod, &class)?;
        set_scheduling(attributes, pod, &class)
    }

    fn validate(&self, attributes: &Attributes<'_>, pod: &Value, view: &dyn View, _: &mut Notes) -> Result<(), Status> {
        if !attributes.creates(PODS) {
            return Ok(());
        }
        let class = class_of(attributes, pod, view)?;
        match (class.as_deref().and_then(overhead), spec(pod).get("overhead")) {
            (None, Some(Value::Object(given))) if !given.is_empty() => {
                let message = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
                Err(attributes.forbidden(pod, message))
            }
            (Some(needed), given) if amounts::read(given) != amounts::read(Some(needed)) => {
                Err(attributes.forbidden(pod, MISMATCH))
            }
            _ => Ok(()),
        }
    }
}

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

fn class_of(attributes: &Attributes<'_>, pod: &Value, view: &dyn View) -> Result<Option<CachedObject>, Status> {
    let Some(name) = spec(pod).get("runtimeClassName").and_then(Value::as_str) else { return Ok(None) };
    let found = view.object(RUNTIME_CLASSES, "", name);
    let missing = || attributes.forbidden(pod, format!("pod rejected: RuntimeClass {name:?} not found"));
    found.ok_or_else(missing).map(Some)
}

fn overhead(class: &Value) -> Option<&Value> {
    class.at(&["overhead", "podFixed"])
}

fn set_overhead(attributes: &Attributes<'_>, pod: &mut Value, class: &Value) -> Result<(), Status> {
    let Some(needed) = overhead(class) else { return Ok(()) };
    if let Some(given) = spec(pod).get("overhead")
        && amounts::read(Some(given)) != amounts::read(Some(needed))
    {
        return Err(attributes.forbidden(pod, MISMATCH));
    }
    if let Some(fields) = spec_mut(pod) {
        fields.insert("overhead", needed.clone());
    }
    Ok(())
}

fn set_scheduling(attributes: &Attributes<'_>, pod: &mut Value, class: &Value) -> Result<(), Status> {
    let Some(scheduling) = class.get("scheduling") else { return Ok(()) };
    let node_selector = scheduling.get("nodeSelector").and_then(Value::as_object).cloned().unwrap_or_default();
    let has = spec(pod).get("nodeSelector").and_then(Value::as_object);
    for (key, value) in node_selector.iter() {
        let differs = has.and_then(|has| has.get(key)).filter(|have| *have != value);
        if let Some(have) = differs {
            let (value, have) = (value.as_str().unwrap_or_default(), have.as_str().unwrap_or_default());
            let message = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {have}"
            );
            return Err(attributes.forbidden(pod, message));
        }
    }
    let Some(fields) = spec_mut(pod) else { return Ok(()) };
    if !node_selector.is_empty() {
        merge(fields, node_selector);
    }
    for toleration in scheduling.list_at(&["tolerations"]) {
        let list = list_mut(fields, "tolerations");
        if !list.iter().any(|have| covers(have, toleration)) {
            list.push(toleration.clone());
        }
    }
    Ok(())
}

fn merge(fields: &mut Object, node_selector: Object) {
    if let Value::Object(selector) = fields.get_or_insert_with("nodeSelector", Value::object) {
        for (key, value) in node_selector {
            selector.insert(key, value);
        }
    }
}

/// Whether a toleration includes another one, for at least the same time.
pub(crate) fn covers(wide: &Value, narrow: &Value) -> bool {
    let same = |field: &str| wide.text_at(&[field]) == narrow.text_at(&[field]);
    let key = wide.text_at(&["key"]).is_empty() || same("key");
    let effect = wide.text_at(&["effect"]).is_empty() || same("effect");
    let seconds = |of: &Value| of.get("tolerationSeconds").and_then(Value::as_int);
    let lasts = match (seconds(wide), seconds(narrow)) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => wide >= narrow,
    };
    let value = match wide.text_at(&["operator"]) {
        "Exists" => true,
        "" | "Equal" => matches!(narrow.text_at(&["operator"]), "" | "Equal") && same("value"),
        _ => same("operator") && same("value"),
    };
    key && effect && value && lasts
}

#[cfg(test)]
mod tests {
    use apimachinery::json;

    use super::*;
    use crate::Operation;
    use crate::testing::{Cluster, attributes};

    #[test]
    fn pod_gets_the_overhead_and_scheduling_of_its_runtime_class() {
        let class =
            r#"{"metadata":{"name":"k"},"overhead":{"podFixed":{"cpu":"1"}},"scheduling":{"nodeSelector":{"a":"b"}}}"#;
        let cluster = Cluster::default().with("node.k8s.io", "runtimeclasses", class);
        let (kind, user) = (api::core::pod::kind(), auth::User::default());
        let check = |spec: &str, expect: Result<&str, &str>| {
            let mut pod = json::parse(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap();
            let attributes = attributes(&kind, &user, Operation::Create);
            let mut notes = Notes::default();
            let verdict = RuntimeClass
                .admit(&attributes, &mut pod, &cluster, &mut notes)
                .and_then(|()| RuntimeClass.validate(&attributes, &pod, &cluster, &mut notes));
            match expect {
                Ok(selector) => {
                    assert_eq!(verdict, Ok(()));
                    assert_eq!(json::to_string(&pod["spec"]["nodeSelector"]), selector);
                }
                Err(message) => assert_eq!(verdict.unwrap_err().message, format!("pods \"x\" is forbidden: {message}")),
            }
        };
        check(r#"{"runtimeClassName":"k"}"#, Ok(r#"{"a":"b"}"#));
        check(r#"{}"#, Ok("null"));
        check(r#"{"runtimeClassName":"x"}"#, Err(r#"pod rejected: RuntimeClass "x" not found"#));
        check(r#"{"runtimeClassName":"k","overhead":{"cpu":"2"}}"#, Err(MISMATCH));
        check(
            r#"{"overhead":{"cpu":"2"}}"#,
            Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"),
        );
        check(
            r#"{"runtimeClassName":"k","nodeSelector":{"a":"c"}}"#,
            Err("conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c"),
        );
    }
}
