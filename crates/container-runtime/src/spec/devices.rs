//! Host devices in containers.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use node_api::cri::v1;
use rustix::fs::FileType;
use serde_json::{Value, json};

use crate::rootfs::Node;

/// Entries of `/dev` that are never copied from the host, because every container has its own.
const OWN: &[&str] = &[
    "pts",
    "shm",
    "mqueue",
    "fd",
    ".lxc",
    ".lxd-mounts",
    ".udev",
    "console",
    "ptmx",
    "null",
    "zero",
    "full",
    "random",
    "urandom",
    "tty",
];
/// Maximum depth of a directory of devices.
const DEPTH_MAX: usize = 8;

/// A device could not be added.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The path does not exist or is not a device.
    #[error("device {path} cannot be used")]
    Unusable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Returns the devices to create and the cgroup rules that allow their use.
pub(super) fn all(given: &[v1::Device], privileged: bool) -> Result<(Vec<Value>, Vec<Value>), DeviceError> {
    let (mut devices, mut rules) = (Vec::new(), Vec::new());
    if privileged {
        collect(Path::new("/dev"), Path::new("/dev"), "rwm", 0, &mut devices, &mut rules);
    }
    for device in given {
        let host = Path::new(&device.host_path);
        let container_path = if device.container_path.is_empty() { host } else { Path::new(&device.container_path) };
        let access = if device.permissions.is_empty() { "rwm" } else { &device.permissions };
        let failed = |source| DeviceError::Unusable { path: host.to_owned(), source };
        let metadata = fs::metadata(host).map_err(failed)?;
        if metadata.is_dir() {
            collect(host, container_path, access, 0, &mut devices, &mut rules);
        } else {
            let (device, rule) = describe(&metadata, container_path, access)
                .ok_or_else(|| failed(io::Error::other("it is neither a character nor a block device")))?;
            devices.push(device);
            rules.push(rule);
        }
    }
    Ok((devices, rules))
}

/// Removes the devices that a specification places outside of `/dev`, and returns their paths and nodes. They must be
/// mounted separately, because the container's root is mounted with `nodev`.
pub(crate) fn take_outside(spec: &mut Value) -> Vec<(PathBuf, Node)> {
    let Some(devices) = spec["linux"]["devices"].as_array_mut() else { return Vec::new() };
    let is_in_dev = |device: &Value| device["path"].as_str().is_none_or(|path| Path::new(path).starts_with("/dev"));
    let (in_dev, outside) = std::mem::take(devices).into_iter().partition(is_in_dev);
    *devices = in_dev;
    let outside: Vec<Value> = outside;
    outside.iter().map(|device| (PathBuf::from(device["path"].as_str().unwrap_or_default()), node(device))).collect()
}

fn node(device: &Value) -> Node {
    let number = |name: &str, default: u32| {
        device[name].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
    };
    Node {
        kind: if device["type"] == "b" { FileType::BlockDevice } else { FileType::CharacterDevice },
        device: rustix::fs::makedev(number("major", 0), number("minor", 0)),
        mode: number("fileMode", 0o666),
        uid: number("uid", 0),
        gid: number("gid", 0),
    }
}

fn collect(
    host: &Path,
    container_path: &Path,
    access: &str,
    depth: usize,
    devices: &mut Vec<Value>,
    rules: &mut Vec<Value>,
) {
    let Ok(entries) = fs::read_dir(host) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_own = depth == 0 && host == Path::new("/dev") && OWN.iter().any(|own| name == *own);
        let (path, container_path) = (entry.path(), container_path.join(&name));
        // Symlinks are not followed: their targets are listed themselves.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if is_own {
            continue;
        }
        if metadata.is_dir() && depth < DEPTH_MAX {
            collect(&path, &container_path, access, depth + 1, devices, rules);
        } else if let Some((device, rule)) = describe(&metadata, &container_path, access) {
            devices.push(device);
            rules.push(rule);
        }
    }
}

fn describe(metadata: &fs::Metadata, container_path: &Path, access: &str) -> Option<(Value, Value)> {
    let kind = match metadata.file_type() {
        kind if kind.is_char_device() => "c",
        kind if kind.is_block_device() => "b",
        _ => return None,
    };
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let device = json!({
        "path": container_path, "type": kind, "major": major, "minor": minor,
        "fileMode": metadata.mode() & 0o777, "uid": metadata.uid(), "gid": metadata.gid(),
    });
    let rule = json!({"allow": true, "type": kind, "major": major, "minor": minor, "access": access});
    Some((device, rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_described_by_number_and_files_are_rejected() {
        let device = |host: &str| v1::Device {
            host_path: host.into(),
            container_path: "/dev/x".into(),
            permissions: "r".into(),
        };
        let (devices, rules) = all(&[device("/dev/null")], false).unwrap();
        assert_eq!(
            (&devices[0]["path"], &devices[0]["major"], &devices[0]["minor"]),
            (&json!("/dev/x"), &json!(1), &json!(3))
        );
        assert_eq!(rules[0]["access"], "r");
        assert!(all(&[device("/etc/passwd")], false).is_err());
        assert!(all(&[device("/dev/no-such")], false).is_err());
    }
}
