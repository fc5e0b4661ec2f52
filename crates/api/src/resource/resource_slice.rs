//! ResourceSlice: devices published by a DRA driver.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::Scope;
use apimachinery::{At, Errors, Value, names};

use super::{common, conversion, device};
use crate::core::node_selector;
use crate::field_rules::{IMMUTABLE, column, driver_name, items_mut, looks, raise_generation, same, start_generation};
use crate::kind::{Context, Kind, Rules, Selectable, age_column, name_column};

const DEVICES_MAX: usize = 128;
/// Maximum number of devices in a slice if devices use taints, counters or lists, because each is larger.
const HEAVY_DEVICES_MAX: usize = 64;
const COUNTER_SETS_MAX: usize = 8;
const WHERE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";

pub fn kind() -> Kind {
    let row = Kind {
        scope: Scope::Cluster,
        returns_deleted: true,
        selectable: vec![
            Selectable::new("spec.driver", |object| object.text_at(&["spec", "driver"]).into()),
            Selectable::new("spec.nodeName", |object| object.text_at(&["spec", "nodeName"]).into()),
        ],
        rules: Arc::new(ResourceSlice),
        ..Kind::stored("resource.k8s.io", "v1", "ResourceSlice", "resourceslices")
            .with_beta("v1beta2")
            .with_beta("v1beta1")
    };
    conversion::with_v1beta1(row, conversion::SLICE).with_columns(&[
        name_column(),
        column("Node", "string", "Node of the devices.", |object, _| object.text_at(&["spec", "nodeName"]).into()),
        column("Driver", "string", "Driver of the devices.", |object, _| object.text_at(&["spec", "driver"]).into()),
        column("Pool", "string", "Pool of the devices.", |object, _| object.text_at(&["spec", "pool", "name"]).into()),
        age_column(),
    ])
}

#[derive(Debug)]
struct ResourceSlice;

impl Rules for ResourceSlice {
    fn field_selector_error(&self, version: &str, field: &str) -> Option<String> {
        Some(format!("field label not supported for resource.k8s.io/{version}, Kind=ResourceSlice: {field}"))
    }

    fn prepare_create(&self, object: &mut Value, context: &Context<'_>) {
        set_taint_times(object, context);
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        set_taint_times(object, context);
        raise_generation(object, old, &["spec"]);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        validate_origin(&spec, errors);
        validate_spec(&spec, None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let (root, before) = (At::root(object), At::root(old));
        let (spec, had) = (root.get("spec"), before.get("spec"));
        validate_origin(&spec, errors);
        let (pool, pool_before) = (spec.get("pool"), had.get("pool"));
        for (at, was) in [(pool.get("name"), pool_before.get("name")), (spec.get("driver"), had.get("driver"))] {
            if at.str() != was.str() {
                errors.push(Error::invalid(at.path(), at.str(), IMMUTABLE));
            }
        }
        let (node, was) = (spec.get("nodeName"), had.get("nodeName"));
        if !same(node.value(), was.value()) {
            errors.push(node.invalid(IMMUTABLE));
        }
        validate_spec(&spec, Some(had.value()), errors);
    }
}

/// Sets missing `timeAdded` of device taints to now.
fn set_taint_times(object: &mut Value, context: &Context<'_>) {
    let Some(spec) = object.get_mut("spec") else { return };
    for device in items_mut(spec, "devices") {
        for taint in items_mut(device, "taints") {
            crate::field_rules::default_to(taint, "timeAdded", context.now.to_seconds().to_string());
        }
    }
}

fn validate_origin(spec: &At<'_>, errors: &mut Errors) {
    driver_name(&spec.get("driver"), errors);
    let pool = spec.get("pool");
    common::pool_name(&pool.get("name"), errors);
    let (slices, generation) = (pool.get("resourceSliceCount"), pool.get("generation"));
    if slices.int() <= 0 {
        errors.push(Error::invalid(slices.path(), slices.int(), "must be greater than zero"));
    }
    if generation.int() < 0 {
        errors.push(generation.invalid("must be greater than or equal to zero"));
    }
}

fn validate_spec(spec: &At<'_>, old: Option<&Value>, errors: &mut Errors) {
    validate_nodes(spec, errors);
    let (devices, counters) = (spec.get("devices"), spec.get("sharedCounters"));
    if devices.is_present() && counters.is_present() {
        errors.push(Error::invalid(spec.path(), "", "only one of `sharedCounters` or `devices` is allowed"));
    }
    let max = if devices.list().iter().any(device::is_heavy) { HEAVY_DEVICES_MAX } else { DEVICES_MAX };
    let olds = old.and_then(|old| old.get("devices")).and_then(Value::as_array).unwrap_or_default();
    let own_nodes = spec.get("perDeviceNodeSelection").bool();
    let name = |at: &At<'_>| at.get("name").str().to_owned();
    common::set(&devices, max, name, errors, |one, errors| {
        let before = olds.iter().find(|old| old.str_at(&["name"]) == one.get("name").value().as_str());
        device::validate(one, before, own_nodes, errors);
    });
    common::set(&counters, COUNTER_SETS_MAX, name, errors, |set, errors| device::counter_set(set, "name", errors));
}

fn validate_nodes(spec: &At<'_>, errors: &mut Errors) {
    let mut set = Vec::new();
    let node = spec.get("nodeName");
    if node.is_present() {
        if node.is_empty() {
            errors.push(node.invalid("must be either unset or set to a non-empty string"));
        } else {
            set.push("`nodeName`");
            looks(&node, names::dns1123_subdomain, errors);
        }
    }
    let selector = spec.get("nodeSelector");
    if selector.is_present() {
        set.push("`nodeSelector`");
        node_selector::validate(&selector, errors);
        if selector.get("nodeSelectorTerms").len() != 1 {
            errors.push(selector.get("nodeSelectorTerms").invalid("must have exactly one node selector term"));
        }
    }
    for (field, quoted) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        let flag = spec.get(field);
        if flag.bool() {
            set.push(quoted);
        } else if flag.is_present() {
            errors.push(flag.invalid("must be either unset or set to true"));
        }
    }
    match set.len() {
        0 => errors.push(spec.required(WHERE)),
        1 => {}
        _ => {
            let detail = format!("{WHERE}, but multiple fields are set");
            errors.push(Error::invalid(spec.path(), format!("{{{}}}", set.join(", ")), detail));
        }
    }
}
