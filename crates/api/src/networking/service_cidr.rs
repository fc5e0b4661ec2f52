//! ServiceCIDR: address ranges for cluster IPs.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::Scope;
use apimachinery::names::parse_cidr;
use apimachinery::time::Time;
use apimachinery::{At, Errors, Value};

use crate::core::object_meta;
use crate::field_rules::{IMMUTABLE, column, looks};
use crate::formats::wrong_canonical_cidr;
use crate::kind::{Context, Kind, Rules, Subresource, age_column, name_column};
use crate::{status, workload};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        rules: Arc::new(ServiceCidr),
        ..Kind::stored("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs").with_beta("v1beta1")
    }
    .with_columns(&[name_column(), column("CIDRs", "string", "Address ranges.", ranges), age_column()])
}

#[derive(Debug)]
struct ServiceCidr;

impl Rules for ServiceCidr {
    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        status::reset(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        status::separate(object, old, context);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        validate_spec(&At::root(object).get("spec"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        if !context.subresource.is_empty() {
            return;
        }
        let (root, before) = (At::root(object), At::root(old));
        let (spec, before) = (root.get("spec"), before.get("spec"));
        let (ranges, before) = (spec.get("cidrs"), before.get("cidrs"));
        let changed = |at: &At<'_>| Error::invalid(at.path(), at.str(), IMMUTABLE);
        match (before.len(), ranges.len()) {
            (had, has) if had == has => {
                let pairs = ranges.items().zip(before.items());
                errors.extend(pairs.filter(|(new, old)| new.str() != old.str()).map(|(new, _)| changed(&new)));
            }
            // A second family can be added.
            (1, 2) => {
                let first = ranges.items().next().zip(before.items().next());
                errors.extend(first.filter(|(new, old)| new.str() != old.str()).map(|(new, _)| changed(&new)));
                validate_spec(&spec, errors);
            }
            _ => {
                let bad_value = Value::Array(ranges.list().to_vec());
                errors.push(Error::invalid(ranges.path(), bad_value, IMMUTABLE));
            }
        }
    }
}

fn validate_spec(spec: &At<'_>, errors: &mut Errors) {
    let ranges = spec.get("cidrs");
    if ranges.is_empty() {
        errors.push(ranges.required("at least one CIDR required"));
        return;
    }
    if ranges.len() > 2 {
        let bad_value = workload::bad_value(spec, ("networking.k8s.io", "v1", "ServiceCIDR"), &["spec"]);
        errors.push(Error::invalid(ranges.path(), bad_value, "may only hold up to 2 values"));
        return;
    }
    ranges.items().for_each(|range| looks(&range, wrong_canonical_cidr, errors));
    let families: Vec<_> = ranges.items().filter_map(|range| Some(parse_cidr(range.str())?.0.is_ipv4())).collect();
    if let [a, b] = families[..]
        && a == b
    {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.push(ranges.invalid(detail));
    }
}

fn ranges(object: &Value, _now: Time) -> Value {
    let ranges = object.list_at(&["spec", "cidrs"]);
    ranges.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",").into()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn at_most_one_cidr_per_family() {
        let check = |ranges: Value, expect: usize| {
            let spec = value!({"cidrs": (ranges)});
            let mut errors = Errors::new();
            validate_spec(&At::root(&spec), &mut errors);
            assert_eq!(errors.len(), expect, "{spec:?}");
        };
        check(value!(["10.0.0.0/24", "fd00::/64"]), 0);
        check(value!(["10.0.0.0/24", "10.1.0.0/24"]), 1);
        check(value!(["10.0.0.1/24"]), 1);
        check(value!([]), 1);
    }
}
