//! API kinds of the flowcontrol.apiserver.k8s.io group.

pub mod flow_schema;
pub mod priority_level_configuration;

use std::collections::BTreeSet;

use apimachinery::field::Error;
use apimachinery::{At, Errors};

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[flow_schema::kind, priority_level_configuration::kind];

fn conditions(status: &At<'_>, errors: &mut Errors) {
    let conditions = status.get("conditions");
    let mut seen = BTreeSet::new();
    for condition in conditions.items() {
        let ty = condition.get("type");
        if !seen.insert(ty.str().to_owned()) {
            errors.push(Error::duplicate(ty.path(), ty.str()));
        }
        if ty.is_empty() {
            errors.push(ty.required("must not be empty"));
        }
    }
}
