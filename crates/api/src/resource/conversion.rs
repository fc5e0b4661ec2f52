//! Conversion between resource.k8s.io/v1beta1, which nests requests and devices differently, and v1.

use apimachinery::Value;

use crate::field_rules::items_mut;
use crate::kind::{Convert, Kind};

/// Fields that are in a v1beta1 request itself and in `exactly` in later versions.
const EXACT: [&str; 7] =
    ["deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity"];

/// Sets the conversion of the v1beta1 version of a kind.
pub(super) fn with_v1beta1(mut kind: Kind, convert: Convert) -> Kind {
    for version in kind.versions.iter_mut().filter(|version| version.name == "v1beta1") {
        version.convert = Some(convert);
    }
    kind
}

pub(super) const CLAIM: Convert = Convert {
    to_stored: |object| object.get_mut("spec").into_iter().for_each(nest_requests),
    from_stored: |object| object.get_mut("spec").into_iter().for_each(flatten_requests),
};

pub(super) const TEMPLATE: Convert = Convert {
    to_stored: |object| {
        object.get_mut("spec").and_then(|spec| spec.get_mut("spec")).into_iter().for_each(nest_requests);
    },
    from_stored: |object| {
        object.get_mut("spec").and_then(|spec| spec.get_mut("spec")).into_iter().for_each(flatten_requests);
    },
};

pub(super) const SLICE: Convert = Convert {
    to_stored: |object| {
        let Some(spec) = object.get_mut("spec") else { return };
        drop_zeros(spec);
        for device in items_mut(spec, "devices").filter_map(Value::as_object_mut) {
            if let Some(Value::Object(basic)) = device.remove("basic") {
                basic.into_iter().for_each(|(field, value)| drop(device.insert(field, value)));
            }
        }
    },
    from_stored: |object| {
        let Some(spec) = object.get_mut("spec") else { return };
        for device in items_mut(spec, "devices").filter_map(Value::as_object_mut) {
            let name = device.remove("name");
            let basic = std::mem::take(device);
            device.insert("basic", basic);
            name.into_iter().for_each(|name| drop(device.insert("name", name)));
        }
    },
};

/// Drops empty names and false flags, which mean absent in v1beta1.
fn drop_zeros(spec: &mut Value) {
    let Some(spec) = spec.as_object_mut() else { return };
    if spec.get("nodeName").and_then(Value::as_str) == Some("") {
        spec.remove("nodeName");
    }
    if spec.get("allNodes").and_then(Value::as_bool) == Some(false) {
        spec.remove("allNodes");
    }
}

fn nest_requests(spec: &mut Value) {
    let Some(devices) = spec.get_mut("devices") else { return };
    for request in items_mut(devices, "requests").filter_map(Value::as_object_mut) {
        let exactly: apimachinery::Object =
            EXACT.iter().filter_map(|field| request.remove(field).map(|value| (*field, value))).collect();
        if exactly.values().any(|value| !value.is_null() && value.as_str() != Some("")) {
            request.insert("exactly", exactly);
        }
    }
}

fn flatten_requests(spec: &mut Value) {
    let Some(devices) = spec.get_mut("devices") else { return };
    for request in items_mut(devices, "requests").filter_map(Value::as_object_mut) {
        if let Some(Value::Object(exactly)) = request.remove("exactly") {
            exactly.into_iter().for_each(|(field, value)| drop(request.insert(field, value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn check(convert: Convert, beta: &Value, stored: &Value) {
        let mut object = beta.clone();
        (convert.to_stored)(&mut object);
        assert_eq!(&object, stored);
        (convert.from_stored)(&mut object);
        assert_eq!(&object, beta);
    }

    #[test]
    fn requests_are_converted_to_exactly_and_back() {
        check(
            CLAIM,
            &value!({"spec": {"devices": {"requests": [{"name": "a", "deviceClassName": "gpu", "count": 2},
                {"name": "b", "firstAvailable": [{"name": "c"}]}]}}}),
            &value!({"spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu", "count": 2}},
                {"name": "b", "firstAvailable": [{"name": "c"}]}]}}}),
        );
    }

    #[test]
    fn device_basic_struct_is_flattened_and_restored() {
        check(
            SLICE,
            &value!({"spec": {"devices": [{"name": "d", "basic": {"attributes": {"a": {"int": 1}}}}]}}),
            &value!({"spec": {"devices": [{"name": "d", "attributes": {"a": {"int": 1}}}]}}),
        );
    }
}
