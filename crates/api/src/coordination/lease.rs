//! Lease: holder identity and duration of a lock.

use std::sync::Arc;

use apimachinery::{At, Errors, Value};

use crate::field_rules::{column, drop_field};
use crate::kind::{Context, Kind, Rules, age_column, name_column};

pub fn kind() -> Kind {
    Kind {
        create_on_update: true,
        unconditional_update: false,
        rules: Arc::new(Lease),
        ..Kind::stored("coordination.k8s.io", "v1", "Lease", "leases")
    }
    .with_columns(&[
        name_column(),
        column("Holder", "string", "Holder of the lease.", |object, _| {
            object.text_at(&["spec", "holderIdentity"]).into()
        }),
        age_column(),
    ])
}

#[derive(Debug)]
struct Lease;

impl Rules for Lease {
    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        drop_coordination(object, None);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, _context: &Context<'_>) {
        drop_coordination(object, Some(old));
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        let duration = spec.get("leaseDurationSeconds");
        if duration.is_present() && duration.int() <= 0 {
            errors.push(duration.invalid("must be greater than 0"));
        }
        let transitions = spec.get("leaseTransitions");
        if transitions.int() < 0 {
            errors.push(transitions.invalid("must be greater than or equal to 0"));
        }
        if spec.get("strategy").is_present() {
            super::strategy(&spec.get("strategy"), errors);
        }
        if !spec.get("preferredHolder").is_empty() && spec.get("strategy").is_empty() {
            errors.push(spec.get("preferredHolder").forbidden("may only be specified if `strategy` is defined"));
        }
    }
}

/// Drops the fields of coordinated leader election, which is disabled by default, unless the old object has them.
fn drop_coordination(object: &mut Value, old: Option<&Value>) {
    for field in ["strategy", "preferredHolder"] {
        if old.is_none_or(|old| old.at(&["spec", field]).is_none_or(Value::is_null))
            && let Some(spec) = object.get_mut("spec")
        {
            drop_field(spec, field);
        }
    }
}
