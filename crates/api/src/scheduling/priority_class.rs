//! PriorityClass: a named pod priority.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Meta, Scope};
use apimachinery::{At, Errors, Value};

use crate::field_rules::{column, default_to, one_of, raise_generation, start_generation};
use crate::kind::{Context, Kind, Rules, age_column, name_column, names};

/// Maximum priority of user-defined classes.
const USER_MAX: i64 = 1_000_000_000;

/// Predefined classes with their priorities.
const SYSTEM: [(&str, i64); 2] =
    [("system-node-critical", 2 * USER_MAX + 1000), ("system-cluster-critical", 2 * USER_MAX)];

pub fn kind() -> Kind {
    Kind {
        short_names: names(&["pc"]),
        scope: Scope::Cluster,
        rules: Arc::new(PriorityClass),
        ..Kind::stored("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses")
    }
    .with_columns(&[
        name_column(),
        column("Value", "integer", "Value of the priority.", |object, _| At::root(object).get("value").int().into()),
        column("Global-Default", "boolean", "Whether pods without a priority class get this class.", |object, _| {
            At::root(object).get("globalDefault").bool().into()
        }),
        age_column(),
        column(
            "PreemptionPolicy",
            "string",
            "Whether pods of this class preempt pods of lower priority.",
            |object, _| object.text_at(&["preemptionPolicy"]).into(),
        ),
    ])
}

#[derive(Debug)]
struct PriorityClass;

impl Rules for PriorityClass {
    fn default(&self, object: &mut Value, _version: &str) {
        default_to(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, _context: &Context<'_>) {
        raise_generation(object, old, &["value", "globalDefault", "description", "preemptionPolicy"]);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let name = Meta::of(object).name();
        let value = root.get("value");
        if name.starts_with("system-") {
            if !SYSTEM.contains(&(name, value.int())) {
                let metadata = root.get("metadata");
                let detail = match SYSTEM.iter().find(|(have, _)| *have == name) {
                    Some((_, priority)) => format!("value of {name} PriorityClass must be {priority}"),
                    None => "only 'system-cluster-critical' and 'system-node-critical' are allowed".to_owned(),
                };
                let detail = format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {detail}"
                );
                errors.push(metadata.get("name").forbidden(detail));
            }
        } else if value.int() > USER_MAX {
            let detail = format!("maximum allowed value of a user defined priority is {USER_MAX}");
            errors.push(value.forbidden(detail));
        }
        let policy = root.get("preemptionPolicy");
        if policy.is_empty() {
            errors.push(policy.required(""));
        } else {
            one_of(&policy, &["Never", "PreemptLowerPriority"], errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let (root, before) = (At::root(object), At::root(old));
        if root.get("value").int() != before.get("value").int() {
            errors.push(root.get("value").forbidden("may not be changed in an update."));
        }
        let policy = root.get("preemptionPolicy");
        if policy.str() != before.get("preemptionPolicy").str() {
            errors.push(Error::invalid(policy.path(), policy.str(), "field is immutable"));
        }
    }
}
