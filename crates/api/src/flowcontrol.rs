//! The kinds of flowcontrol.apiserver.k8s.io.

pub mod flow_schema;
pub mod priority_level_configuration;

use std::collections::BTreeSet;

use machinery::field::Error;
use machinery::{At, Errors};

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[flow_schema::kind, priority_level_configuration::kind];

/// What is wrong with the conditions of a status.
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
