//! Priority: a pod gets the number that its PriorityClass stands for, and one class at most is the default.

use machinery::Value;
use machinery::status::Status;

use super::pods::{spec, spec_mut, text};
use super::{Attributes, Notes, Operation, Plugin, View};

const GROUP: &str = "scheduling.k8s.io";

/// See the module.
pub struct Priority;

impl Plugin for Priority {
    fn admit(
        &self,
        attributes: &Attributes<'_>,
        pod: &mut Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        if !attributes.writes("", "pods") {
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
        if !attributes.writes(GROUP, "priorityclasses") || class["globalDefault"] != Value::Bool(true) {
            return Ok(());
        }
        let Some(default) = default_class(view) else { return Ok(()) };
        let name = default.str_at(&["metadata", "name"]).unwrap_or_default();
        if attributes.operation == Operation::Update && name == attributes.name {
            return Ok(());
        }
        let why = format!("PriorityClass {name} is already marked as default. Only one default can exist");
        Err(attributes.forbidden(class, why))
    }
}

/// What a client left out of an update stays as it was set on create.
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
    let wanted = text(spec(pod), "priorityClassName").to_owned();
    let class = if wanted.is_empty() {
        default_class(view)
    } else {
        let found = view.object(GROUP, "priorityclasses", "", &wanted);
        let missing = || attributes.forbidden(pod, format!("no PriorityClass with name {wanted} was found"));
        Some(found.ok_or_else(missing)?)
    };
    let priority = class.as_ref().and_then(|class| class.get("value")?.as_int()).unwrap_or(0);
    let preemption = class.as_ref().and_then(|class| class.str_at(&["preemptionPolicy"]));
    let preemption = preemption.unwrap_or("PreemptLowerPriority");
    if let Some(given) = spec(pod).get("priority").and_then(Value::as_int)
        && given != priority
    {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        );
        return Err(attributes.forbidden(pod, why));
    }
    let given = text(spec(pod), "preemptionPolicy");
    if !given.is_empty() && given != preemption {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {preemption} from the given PriorityClass name"
        );
        return Err(attributes.forbidden(pod, why));
    }
    let Some(fields) = spec_mut(pod) else { return Ok(()) };
    if let Some(name) = class.as_ref().and_then(|class| class.str_at(&["metadata", "name"])) {
        fields.insert("priorityClassName", name);
    }
    fields.insert("priority", priority);
    fields.insert("preemptionPolicy", preemption);
    Ok(())
}

/// The class of pods that name none. Of several (which only a race makes) the lowest is the safest.
fn default_class(view: &dyn View) -> Option<Value> {
    let classes = view.objects(GROUP, "priorityclasses", "");
    let defaults = classes.into_iter().filter(|class| class["globalDefault"] == Value::Bool(true));
    defaults.min_by_key(|class| class["value"].as_int().unwrap_or(0))
}
