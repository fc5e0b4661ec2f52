//! Checkpoint of device allocations: a restarted kubelet must not allocate the devices again.

use std::fs;
use std::io;
use std::path::Path;

use apimachinery::{Value, json, value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;

use super::allocator::DeviceAllocation;
use crate::checkpoint;

const FILE: &str = "kubelet_internal_checkpoint";

/// Reads the checkpoint; an unreadable checkpoint contains no allocations.
pub(super) fn read(dir: &Path) -> Vec<DeviceAllocation> {
    let Ok(text) = fs::read(dir.join(FILE)) else { return Vec::new() };
    match json::parse(&text) {
        Ok(list) => list.as_array().unwrap_or_default().iter().filter_map(entry).collect(),
        Err(error) => {
            tracing::error!(%error, "failed to read the device checkpoint");
            Vec::new()
        }
    }
}

/// Replaces the checkpoint atomically.
pub(super) fn write(dir: &Path, given: &[DeviceAllocation]) -> io::Result<()> {
    checkpoint::write(dir, FILE, &Value::Array(given.iter().map(to_value).collect()))
}

fn to_value(given: &DeviceAllocation) -> Value {
    let ids: Vec<Value> = given.ids.iter().map(|id| Value::from(id.as_str())).collect();
    let response = given.response.as_ref().map(|response| STANDARD.encode(response.encode_to_vec()));
    value!({"podUID": (given.uid.as_str()), "containerName": (given.container.as_str()),
        "resourceName": (given.resource.as_str()), "deviceIDs": ids, "allocResp": (response.unwrap_or_default())})
}

fn entry(value: &Value) -> Option<DeviceAllocation> {
    let text = |field: &str| value.str_at(&[field]).map(str::to_owned);
    let ids = value["deviceIDs"].as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let response = text("allocResp").filter(|text| !text.is_empty()).and_then(|text| STANDARD.decode(text).ok());
    Some(DeviceAllocation {
        uid: text("podUID")?,
        container: text("containerName")?,
        resource: text("resourceName")?,
        ids,
        response: response.and_then(|bytes| Message::decode(bytes.as_slice()).ok()),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn checkpoint_round_trips_and_a_corrupt_one_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), []);
        let response = node_api::devices::ContainerAllocateResponse {
            envs: [("A".to_owned(), "b".to_owned())].into(),
            ..Default::default()
        };
        let given = |response| DeviceAllocation {
            uid: "u".into(),
            container: "c".into(),
            resource: "example.com/d".into(),
            ids: BTreeSet::from(["a".to_owned(), "b".to_owned()]),
            response,
        };
        let all = [given(Some(response)), given(None)];
        write(dir.path(), &all).unwrap();
        assert_eq!(read(dir.path()), all);
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert_eq!(read(dir.path()), []);
    }
}
