//! CSINode: CSI drivers installed on a node.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::Scope;
use apimachinery::{At, Errors, Value, names};

use crate::field_rules::{IMMUTABLE, column, count_cell, driver_name, non_negative, same};
use crate::go_form;
use crate::kind::{Context, Kind, Rules, UpdateChecks, age_column, name_column};

const NODE_ID_MAX: usize = 256;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        update_checks: UpdateChecks { whole: 1, change: 0 },
        unconditional_update: false,
        rules: Arc::new(CsiNode),
        ..Kind::stored("storage.k8s.io", "v1", "CSINode", "csinodes")
    }
    .with_columns(&[
        name_column(),
        column("Drivers", "integer", "Number of drivers.", |object, _| {
            count_cell(&At::root(object).get("spec").get("drivers"))
        }),
        age_column(),
    ])
}

#[derive(Debug)]
struct CsiNode;

impl Rules for CsiNode {
    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        let drivers = spec.get("drivers");
        let mut seen = BTreeSet::new();
        for driver in drivers.items() {
            driver_name(&driver.get("name"), errors);
            let id = driver.get("nodeID");
            if id.is_empty() {
                errors.push(id.required(""));
            }
            if id.len() > NODE_ID_MAX {
                errors.push(id.invalid(format!("must be {NODE_ID_MAX} characters or less")));
            }
            let allocatable = driver.get("allocatable");
            non_negative(&allocatable.get("count"), errors);
            if !seen.insert(driver.get("name").str().to_owned()) {
                errors.push(driver.get("name").duplicate());
            }
            validate_topology_keys(&driver, errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        self.validate(object, context, errors);
        let (root, before) = (At::root(object), At::root(old));
        let (spec, had) = (root.get("spec"), before.get("spec"));
        let (drivers, olds) = (spec.get("drivers"), had.get("drivers"));
        for old_driver in olds.items() {
            let again = drivers.items().find(|driver| driver.get("name").str() == old_driver.get("name").str());
            let Some(driver) = again else { continue };
            let fixed = ["nodeID", "topologyKeys"];
            if fixed.iter().any(|field| !same(driver.get(field).value(), old_driver.get(field).value())) {
                let path = ["spec", "drivers", "[]"];
                let restored = go_form::restored(driver.value(), old_driver.value(), context.version.schema(), &path);
                let driver = At::new(&restored, *driver.path());
                let bad_value = go_form::bad_value_at(&driver, context.version.schema(), &path);
                errors.push(Error::invalid(drivers.path(), bad_value, IMMUTABLE));
            }
        }
    }
}

/// Validates topology keys. Upstream reports the path of the driver, not of the key.
fn validate_topology_keys(driver: &At<'_>, errors: &mut Errors) {
    let keys = driver.get("topologyKeys");
    let mut seen = BTreeSet::new();
    for key in keys.items() {
        if key.is_empty() {
            errors.push(driver.required(""));
        }
        if !seen.insert(key.str()) {
            errors.push(Error::duplicate(driver.path(), key.str()));
        }
        let wrong = names::qualified_name(key.str());
        errors.extend(wrong.into_iter().map(|wrong| Error::invalid(driver.path(), key.str(), wrong)));
    }
}
