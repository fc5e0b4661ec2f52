//! ControllerRevision: an immutable snapshot of a workload's template, used for rollbacks.

use std::sync::Arc;

use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{At, Errors, GroupVersionKind, Value};

use crate::core::object_meta;
use crate::field_rules::{column, immutable, non_negative};
use crate::kind::{Context, Kind, Rules, UpdateChecks, age_column, name_column};
use crate::workload;

pub fn kind() -> Kind {
    Kind {
        update_checks: UpdateChecks { whole: 1, change: 1 },
        rules: Arc::new(ControllerRevision),
        ..Kind::stored("apps", "v1", "ControllerRevision", "controllerrevisions")
    }
    .with_columns(&[
        name_column(),
        column("Controller", "string", "Controller of the revision.", controller),
        column("Revision", "string", "Revision number.", |object, _| workload::int_cell(object, &["revision"])),
        age_column(),
    ])
}

#[derive(Debug)]
struct ControllerRevision;

impl Rules for ControllerRevision {
    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        non_negative(&root.get("revision"), errors);
        match root.get("data").value() {
            Value::Null => errors.push(root.get("data").required("data is mandatory")),
            Value::Object(_) => {}
            _ => errors.push(root.get("data").required("data must be a valid JSON object")),
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, _context: &Context<'_>, errors: &mut Errors) {
        // DEVIATION: `data` is compared by value. Upstream compares bytes, so a revision that was created with
        // whitespace between JSON tokens can no longer be patched.
        object_meta::created(object, errors);
        let (root, before) = (At::root(object), At::root(old));
        non_negative(&root.get("revision"), errors);
        immutable(&root.get("data"), &before.get("data"), errors);
    }
}

fn controller(object: &Value, _now: Time) -> Value {
    let Some(owner) = Meta::of(object).controller() else { return "<none>".into() };
    let Ok(kind) = GroupVersionKind::parse(owner.api_version(), owner.kind()) else { return owner.name().into() };
    let group = if kind.group.is_empty() { String::new() } else { format!(".{}", kind.group) };
    format!("{}{group}/{}", kind.kind.to_lowercase(), owner.name()).into()
}
