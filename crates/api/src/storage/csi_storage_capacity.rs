//! CSIStorageCapacity: available capacity of a storage class in a topology segment.

use std::sync::Arc;

use apimachinery::{At, Errors, Value, names};

use crate::field_rules::{immutable, immutable_with_value, label_selector, looks, non_negative_quantity};
use crate::go_form;
use crate::kind::{Context, Kind, Rules, UpdateChecks};

pub fn kind() -> Kind {
    Kind {
        unconditional_update: false,
        rules: Arc::new(CsiStorageCapacity),
        update_checks: UpdateChecks { whole: 1, change: 1 },
        ..Kind::stored("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities")
    }
}

#[derive(Debug)]
struct CsiStorageCapacity;

impl Rules for CsiStorageCapacity {
    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        label_selector(&root.get("nodeTopology"), errors);
        looks(&root.get("storageClassName"), names::dns1123_subdomain, errors);
        for field in ["capacity", "maximumVolumeSize"] {
            non_negative_quantity(&root.get(field), errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        self.validate(object, context, errors);
        let (root, before) = (At::root(object), At::root(old));
        let topology = root.get("nodeTopology");
        let bad_value = || go_form::bad_value_at(&topology, context.version.schema(), &["nodeTopology"]);
        immutable_with_value(&topology, &before.get("nodeTopology"), bad_value, errors);
        immutable(&root.get("storageClassName"), &before.get("storageClassName"), errors);
    }
}
