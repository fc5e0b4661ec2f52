//! StorageClass: a class of storage and its provisioner.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::meta::{Meta, Scope};
use apimachinery::{At, Errors, Value, names};

use crate::field_rules::{column, default_to, immutable, looks, one_of_if_present};
use crate::kind::{Context, Kind, Rules, UpdateChecks, age_column, name_column, names as strings};

const IS_DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

pub fn kind() -> Kind {
    let mut name = name_column();
    name.cell = apimachinery::table::Cell::Function(|object, _| {
        let meta = Meta::of(object);
        let is_default = IS_DEFAULT.iter().any(|key| meta.annotation(key) == Some("true"));
        if is_default { format!("{} (default)", meta.name()).into() } else { meta.name().into() }
    });
    Kind {
        short_names: strings(&["sc"]),
        scope: Scope::Cluster,
        returns_deleted: true,
        update_checks: UpdateChecks { whole: 1, change: 1 },
        rules: Arc::new(StorageClass),
        ..Kind::stored("storage.k8s.io", "v1", "StorageClass", "storageclasses")
    }
    .with_columns(&[
        name,
        column("Provisioner", "string", "Provisioner of the volumes.", |object, _| text(object, "provisioner")),
        column("ReclaimPolicy", "string", "Reclaim policy of the volumes.", |object, _| text(object, "reclaimPolicy")),
        column("VolumeBindingMode", "string", "When volumes are bound and provisioned.", |object, _| {
            text(object, "volumeBindingMode")
        }),
        column("AllowVolumeExpansion", "boolean", "Whether volumes can be expanded.", |object, _| {
            At::root(object).get("allowVolumeExpansion").bool().into()
        }),
        age_column(),
    ])
}

#[derive(Debug)]
struct StorageClass;

impl Rules for StorageClass {
    fn default(&self, object: &mut Value, _version: &str) {
        default_to(object, "reclaimPolicy", "Delete");
        default_to(object, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        super::provisioner(&root.get("provisioner"), errors);
        super::parameters(&root.get("parameters"), errors);
        one_of_if_present(&root.get("reclaimPolicy"), &["Delete", "Retain"], errors);
        let mode = root.get("volumeBindingMode");
        if mode.is_absent() {
            errors.push(mode.required(""));
        } else {
            one_of_if_present(&mode, &["Immediate", "WaitForFirstConsumer"], errors);
        }
        validate_topologies(&root.get("allowedTopologies"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        self.validate(object, context, errors);
        let (root, before) = (At::root(object), At::root(old));
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            immutable(&root.get(field), &before.get(field), errors);
        }
    }
}

/// Validates allowed topologies: each term has label keys with values, and terms are unique.
fn validate_topologies(topologies: &At<'_>, errors: &mut Errors) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for term in topologies.items() {
        let expressions = term.get("matchLabelExpressions");
        let mut keys = BTreeSet::new();
        let mut normal: Vec<(String, BTreeSet<String>)> = Vec::new();
        for requirement in expressions.items() {
            let (key, values) = (requirement.get("key"), requirement.get("values"));
            let mut distinct = BTreeSet::new();
            if values.is_empty() {
                errors.push(values.required(""));
            }
            for value in values.items() {
                if !distinct.insert(value.str().to_owned()) {
                    errors.push(value.duplicate());
                }
                looks(&value, names::label_value, errors);
            }
            looks(&key, names::qualified_name, errors);
            if !keys.insert(key.str().to_owned()) {
                errors.push(apimachinery::field::Error::duplicate(key.path(), key.str()));
            }
            normal.push((key.str().to_owned(), distinct));
        }
        normal.sort();
        if !seen.insert(format!("{normal:?}")) {
            errors.push(apimachinery::field::Error::duplicate(expressions.path(), ""));
        }
    }
}

fn text(object: &Value, field: &str) -> Value {
    object.text_at(&[field]).into()
}
