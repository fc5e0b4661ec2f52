//! Priority: sets a pod's priority from its PriorityClass, and allows at most one global default.

use api::resources::{PODS, PRIORITY_CLASSES};
use apimachinery::Value;
use apimachinery::status::Status;

use super::pods::{spec, spec_mut};
use super::{Attributes, CachedObject, Notes, Operation, Plugin, View};

pub(crate) struct Priority;

impl Plugin for Priority {
    fn admit(
        &self,
        attributes: &Attributes<'_>,
        pod: &mut Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        if !attributes.writes(PODS) {
            return Ok(());
        }
        match (attributes.operation, attributes.old) {
            (Operation::Create, _) => set(attributes, pod, view),
            (_, Some(old)) => {
                keep(pod, old);
                Ok(())
            }
            (_, None) => Ok(()),
        }
    }

    fn validate(
        &self,
        attributes: &Attributes<'_>,
        class: &Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        if !attributes.writes(PRIORITY_CLASSES) || class["globalDefault"] != Value::Bool(true) {
            return Ok(());
        }
        let Some(default) = default_class(view) else { return Ok(()) };
        let name = default.text_at(&["metadata", "name"]);
        if attributes.operation == Operation::Update && name == attributes.name {
            return Ok(());
        }
        let message = format!("PriorityClass {name} is already marked as default. Only one default can exist");
        Err(attributes.forbidden(class, message))
    }
}

/// Keeps the values set on create for fields that an update omits.
fn keep(pod: &mut Value, old: &Value) {
    let Some(fields) = spec_mut(pod) else { return };
    for field in ["priority", "preemptionPolicy"] {
        if let Some(value) = spec(old).get(field)
            && !fields.contains_key(field)
        {
            fields.insert(field, value.clone());
        }
    }
}

fn set(attributes: &Attributes<'_>, pod: &mut Value, view: &dyn View) -> Result<(), Status> {
    let class_name = spec(pod).text_at(&["priorityClassName"]).to_owned();
    let class = if class_name.is_empty() {
        default_class(view)
    } else {
        let found = view.object(PRIORITY_CLASSES, "", &class_name);
        let missing = || attributes.forbidden(pod, format!("no PriorityClass with name {class_name} was found"));
        Some(found.ok_or_else(missing)?)
    };
    let priority = class.as_ref().and_then(|class| class.get("value")?.as_int()).unwrap_or(0);
    let preemption = class.as_ref().and_then(|class| class.str_at(&["preemptionPolicy"]));
    let preemption = preemption.unwrap_or("PreemptLowerPriority");
    if let Some(given) = spec(pod).get("priority").and_then(Value::as_int)
        && given != priority
    {
        let message = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        );
        return Err(attributes.forbidden(pod, message));
    }
    let given = spec(pod).text_at(&["preemptionPolicy"]);
    if !given.is_empty() && given != preemption {
        let message = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {preemption} from the given PriorityClass name"
        );
        return Err(attributes.forbidden(pod, message));
    }
    let Some(fields) = spec_mut(pod) else { return Ok(()) };
    if let Some(name) = class.as_ref().and_then(|class| class.str_at(&["metadata", "name"])) {
        fields.insert("priorityClassName", name);
    }
    fields.insert("priority", priority);
    fields.insert("preemptionPolicy", preemption);
    Ok(())
}

/// Returns the global default class. Of several, which only a race can create, the lowest is the safest.
fn default_class(view: &dyn View) -> Option<CachedObject> {
    let classes = view.objects(PRIORITY_CLASSES, "");
    let defaults = classes.into_iter().filter(|class| class["globalDefault"] == Value::Bool(true));
    defaults.min_by_key(|class| class["value"].as_int().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use apimachinery::json;

    use super::*;

    const GROUP: &str = "scheduling.k8s.io";
    use crate::testing::{Cluster, attributes};

    fn check(pod: &str, expect: Result<(i64, &str), &str>) {
        let class = |name: &str, value: i64, default: bool| {
            format!(
                r#"{{"metadata":{{"name":"{name}"}},"value":{value},"globalDefault":{default},"preemptionPolicy":"Never"}}"#
            )
        };
        let cluster = Cluster::default().with(GROUP, "priorityclasses", &class("low", 5, true)).with(
            GROUP,
            "priorityclasses",
            &class("high", 100, false),
        );
        let (kind, user) = (api::core::pod::kind(), auth::User::default());
        let mut pod = json::parse(format!(r#"{{"spec":{pod}}}"#).as_bytes()).unwrap();
        let verdict =
            Priority.admit(&attributes(&kind, &user, Operation::Create), &mut pod, &cluster, &mut Notes::default());
        match expect {
            Ok((priority, class)) => {
                assert_eq!(verdict, Ok(()));
                assert_eq!(pod["spec"]["priority"].as_int(), Some(priority));
                assert_eq!(pod["spec"]["priorityClassName"].as_str(), Some(class));
            }
            Err(message) => assert_eq!(verdict.unwrap_err().message, format!("pods \"x\" is forbidden: {message}")),
        }
    }

    #[test]
    fn pod_gets_the_priority_of_its_class_or_of_the_default_class() {
        check("{}", Ok((5, "low")));
        check(r#"{"priorityClassName":"high"}"#, Ok((100, "high")));
        check(r#"{"priorityClassName":"high","priority":100}"#, Ok((100, "high")));
        check(r#"{"priorityClassName":"nope"}"#, Err("no PriorityClass with name nope was found"));
        check(
            r#"{"priorityClassName":"high","priority":7}"#,
            Err(
                "the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 100 from the given PriorityClass name",
            ),
        );
    }
}
