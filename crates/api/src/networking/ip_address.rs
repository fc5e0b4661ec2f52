//! IPAddress: an allocated cluster IP.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{NamePart, Scope};
use apimachinery::names::{dns1123_subdomain, path_segment};
use apimachinery::time::Time;
use apimachinery::{At, Errors, Value};

use crate::core::object_meta;
use crate::field_rules::{IMMUTABLE, column, looks, required_and_looks, same};
use crate::formats::wrong_canonical_ip;
use crate::kind::{Context, Kind, Rules, UpdateChecks, age_column, name_column, names};
use crate::workload;

pub fn kind() -> Kind {
    Kind {
        short_names: names(&["ip"]),
        scope: Scope::Cluster,
        name_rule: name_is_address,
        ends_names: false,
        update_checks: UpdateChecks { whole: 1, change: 1 },
        rules: Arc::new(IpAddress),
        ..Kind::stored("networking.k8s.io", "v1", "IPAddress", "ipaddresses").with_beta("v1beta1")
    }
    .with_columns(&[
        name_column(),
        column("ParentRef", "string", "Object that uses the address.", parent),
        age_column(),
    ])
}

#[derive(Debug)]
struct IpAddress;

impl Rules for IpAddress {
    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        let parent = spec.get("parentRef");
        if parent.is_absent() {
            errors.push(parent.required(""));
            return;
        }
        let group = parent.get("group");
        if !group.is_empty() {
            looks(&group, dns1123_subdomain, errors);
        }
        required_and_looks(&parent.get("resource"), path_segment, errors);
        required_and_looks(&parent.get("name"), path_segment, errors);
        let namespace = parent.get("namespace");
        if !namespace.is_empty() {
            looks(&namespace, path_segment, errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        self.validate(object, context, errors);
        let (root, before) = (At::root(object), At::root(old));
        let (spec, before) = (root.get("spec"), before.get("spec"));
        let parent = spec.get("parentRef");
        if !same(parent.value(), before.get("parentRef").value()) {
            let bad_value =
                workload::bad_value(&parent, ("networking.k8s.io", "v1", "IPAddress"), &["spec", "parentRef"]);
            errors.push(Error::invalid(parent.path(), bad_value, IMMUTABLE));
        }
    }
}

fn name_is_address(name: &str, _part: NamePart) -> Vec<String> {
    wrong_canonical_ip(name)
}

fn parent(object: &Value, _now: Time) -> Value {
    let Some(parent) = object.at(&["spec", "parentRef"]).filter(|parent| !parent.is_null()) else {
        return "<none>".into();
    };
    let text = |field: &str| parent.text_at(&[field]);
    let mut out = text("resource").to_lowercase();
    if !text("group").is_empty() {
        out = format!("{out}.{}", text("group").to_lowercase());
    }
    if !text("namespace").is_empty() {
        out = format!("{out}/{}", text("namespace"));
    }
    format!("{out}/{}", text("name")).into()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn table_row_contains_the_owner_of_the_address() {
        let parent_ref = value!({"resource": "services", "namespace": "a", "name": "b"});
        let object = value!({"spec": {"parentRef": (parent_ref)}});
        assert_eq!(parent(&object, Time::from_unix(0, 0)), value!("services/a/b"));
    }
}
