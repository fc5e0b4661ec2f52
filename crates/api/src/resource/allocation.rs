//! ResourceClaim status: allocation, consumers and device status.

use std::collections::BTreeSet;

use apimachinery::field::Error;
use apimachinery::meta::{self, Meta};
use apimachinery::{At, Errors, Value, names};

use super::claim::{self, RequestNames};
use super::common::{self, Age, ITEMS_MAX};
use crate::core::node_selector;
use crate::field_rules::{driver_name, immutable_with_value, looks};
use crate::go_form;
use crate::kind::Context;

const CONSUMERS_MAX: usize = 256;
const CONDITIONS_MAX: usize = 8;
const DATA_BYTES_MAX: usize = 10 * 1024;
const ADDRESSES_MAX: usize = 16;

/// Validates a status update.
pub(super) fn validate(object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
    let (root, before) = (At::root(object), At::root(old));
    let (status, had) = (root.get("status"), before.get("status"));
    let names = claim::request_names(&root.get("spec"));
    let consumers = status.get("reservedFor");
    let uid = |at: &At<'_>| at.get("uid").str().to_owned();
    common::set(&consumers, CONSUMERS_MAX, uid, errors, |consumer, errors| {
        for field in ["resource", "name", "uid"].iter().filter(|field| consumer.get(field).is_empty()) {
            errors.push(consumer.get(field).required(""));
        }
    });
    let allocation = status.get("allocation");
    let allocated = devices(&allocation);
    common::set(
        &status.get("devices"),
        usize::MAX,
        |at| key(at).join("/"),
        errors,
        |device, errors| {
            validate_device(device, &allocated, errors);
        },
    );
    if !consumers.is_empty() {
        let added = || consumers.list().iter().any(|new| !had.get("reservedFor").list().contains(new));
        if allocation.is_absent() {
            errors.push(consumers.forbidden("may not be specified when `allocated` is not set"));
        } else if Meta::of(object).is_deleting() && added() {
            let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.push(consumers.forbidden(detail));
        }
    }
    let allocation_before = had.get("allocation");
    if allocation.is_present() && allocation_before.is_present() {
        let bad_value = || go_form::bad_value_at(&allocation, context.version.schema(), &["status", "allocation"]);
        immutable_with_value(&allocation, &allocation_before, bad_value, errors);
    } else if allocation.is_present() {
        validate_allocation(&allocation, &names, errors);
    }
}

fn validate_allocation(allocation: &At<'_>, names: &RequestNames, errors: &mut Errors) {
    let devices = allocation.get("devices");
    common::items(&devices.get("results"), ITEMS_MAX, errors, |result, errors| {
        claim::validate_reference(&result.get("request"), names, errors);
        validate_identity(result, errors);
        common::binding_conditions(result, errors);
        common::tolerations(&result.get("tolerations"), errors);
    });
    common::items(&devices.get("config"), 2 * ITEMS_MAX, errors, |config, errors| {
        let source = config.get("source");
        match source.str() {
            "" => errors.push(source.required("")),
            "FromClaim" | "FromClass" => {}
            _ => errors.push(source.not_supported(&["FromClaim", "FromClass"])),
        }
        claim::validate_references(&config.get("requests"), names, errors);
        common::configuration(config, Age::New, errors);
    });
    if allocation.get("nodeSelector").is_present() {
        node_selector::validate(&allocation.get("nodeSelector"), errors);
    }
}

fn validate_identity(device: &At<'_>, errors: &mut Errors) {
    driver_name(&device.get("driver"), errors);
    common::pool_name(&device.get("pool"), errors);
    looks(&device.get("device"), names::dns1123_label, errors);
    let share = device.get("shareID");
    if share.is_present() && !is_uuid(share.str()) {
        errors.push(share.invalid("uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"));
    }
}

fn validate_device(device: &At<'_>, allocated: &BTreeSet<Vec<String>>, errors: &mut Errors) {
    validate_identity(device, errors);
    if !allocated.contains(&key(device)) {
        let bad_value = key(device).join("/");
        errors.push(Error::invalid(device.path(), bad_value, "must be an allocated device in the claim"));
    }
    let conditions = device.get("conditions");
    if conditions.len() > CONDITIONS_MAX {
        errors.push(Error::too_many(conditions.path(), conditions.len(), CONDITIONS_MAX));
    }
    meta::validate_conditions(conditions.list(), conditions.path(), errors);
    if device.get("data").is_present() {
        common::raw(&device.get("data"), Age::New, DATA_BYTES_MAX, errors);
    }
    let network = device.get("networkData");
    for (field, max) in [("interfaceName", 256), ("hardwareAddress", 128)] {
        if network.get(field).len() > max {
            errors.push(Error::too_long(network.get(field).path(), max));
        }
    }
    let own = |at: &At<'_>| at.str().to_owned();
    common::set(&network.get("ips"), ADDRESSES_MAX, own, errors, |address, errors| {
        if names::parse_cidr(address.str()).is_none() {
            errors.push(address.invalid("must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"));
        }
    });
}

/// Returns the keys of the allocated devices.
fn devices(allocation: &At<'_>) -> BTreeSet<Vec<String>> {
    let devices = allocation.get("devices");
    let results = devices.get("results");
    results.items().map(|result| key(&result)).collect()
}

/// Returns the identity of a device: driver, pool, device and, if shared, the share ID.
fn key(device: &At<'_>) -> Vec<String> {
    let parts = ["driver", "pool", "device", "shareID"].map(|field| device.get(field).str().to_owned());
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

fn is_uuid(text: &str) -> bool {
    let lengths: Vec<_> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.bytes().all(|c| c == b'-' || c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}
