//! VolumeAttributesClass: mutable attributes of volumes.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::Scope;
use apimachinery::{At, Errors, Value, names};

use crate::field_rules::{column, same};
use crate::kind::{Context, Kind, Rules, UpdateChecks, age_column, name_column, names as strings};

pub fn kind() -> Kind {
    Kind {
        short_names: strings(&["vac"]),
        scope: Scope::Cluster,
        returns_deleted: true,
        update_checks: UpdateChecks { whole: 1, change: 1 },
        rules: Arc::new(VolumeAttributesClass),
        ..Kind::stored("storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses").with_beta("v1beta1")
    }
    .with_columns(&[
        name_column(),
        column("DriverName", "string", "Driver of the devices.", |object, _| object.text_at(&["driverName"]).into()),
        age_column(),
    ])
}

#[derive(Debug)]
struct VolumeAttributesClass;

impl Rules for VolumeAttributesClass {
    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let (driver, parameters) = (root.get("driverName"), root.get("parameters"));
        if driver.is_empty() {
            errors.push(driver.required(""));
        } else {
            let lower = driver.str().to_lowercase();
            let wrong = names::qualified_name(&lower);
            errors.extend(wrong.into_iter().map(|wrong| Error::invalid(driver.path(), lower.as_str(), wrong)));
        }
        if parameters.is_empty() {
            errors.push(parameters.required("must contain at least one key/value pair"));
        } else {
            super::parameters(&parameters, errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        let (root, before) = (At::root(object), At::root(old));
        for field in ["driverName", "parameters"] {
            if !same(root.get(field).value(), before.get(field).value()) {
                errors.push(root.get(field).forbidden(format!("updates to {field} are forbidden.")));
            }
        }
        self.validate(object, context, errors);
    }
}
