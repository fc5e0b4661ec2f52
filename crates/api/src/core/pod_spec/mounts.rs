//! Volume mounts and volume devices of containers.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value};

use super::paths;
use super::report::{invalid_text, required};

type Volumes<'a> = BTreeMap<&'a str, &'a Value>;

pub(crate) fn mounts(container: &At<'_>, volumes: &Volumes<'_>, errors: &mut Errors) {
    let devices = by_name(&container.get("volumeDevices"), "devicePath");
    let device_paths: BTreeSet<_> = devices.values().map(String::as_str).collect();
    let mut taken = BTreeSet::new();
    let mounts = container.get("volumeMounts");
    for mount in mounts.items() {
        let (name, path) = (mount.get("name"), mount.get("mountPath"));
        required(&name, errors);
        if !volumes.contains_key(name.str()) {
            errors.push(Error::not_found(name.path(), name.str()));
        }
        required(&path, errors);
        if !taken.insert(path.str().to_owned()) {
            errors.push(invalid_text(&path, "must be unique"));
        }
        if devices.contains_key(name.str()) {
            errors.push(invalid_text(&name, "must not already exist in volumeDevices"));
        }
        if device_paths.contains(path.str()) {
            errors.push(invalid_text(&path, "must not already exist as a path in volumeDevices"));
        }
        sub_paths(&mount, &mounts, errors);
        propagation(&mount, &mounts, container, errors);
    }
}

pub(crate) fn devices(container: &At<'_>, volumes: &Volumes<'_>, errors: &mut Errors) {
    let mounts = by_name(&container.get("volumeMounts"), "mountPath");
    let mount_paths: BTreeSet<_> = mounts.values().map(String::as_str).collect();
    let (mut names, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for device in container.get("volumeDevices").items() {
        let (name, path) = (device.get("name"), device.get("devicePath"));
        required(&name, errors);
        if names.contains(name.str()) {
            errors.push(invalid_text(&name, "must be unique"));
        }
        match volumes.get(name.str()) {
            None => errors.push(Error::not_found(name.path(), name.str())),
            Some(volume) if is_claim(volume) => {}
            Some(_) => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(invalid_text(&name, detail));
            }
        }
        required(&path, errors);
        if taken.contains(path.str()) {
            errors.push(invalid_text(&path, "must be unique"));
        }
        if paths::has_backsteps(path.str()) {
            errors.push(invalid_text(&path, "can not contain backsteps ('..')"));
        } else {
            taken.insert(path.str().to_owned());
        }
        if mounts.contains_key(name.str()) {
            errors.push(invalid_text(&name, "must not already exist in volumeMounts"));
        }
        if mount_paths.contains(path.str()) {
            errors.push(invalid_text(&path, "must not already exist as a path in volumeMounts"));
        }
        if !name.is_empty() {
            names.insert(name.str().to_owned());
        }
    }
}

fn is_claim(volume: &Value) -> bool {
    ["persistentVolumeClaim", "ephemeral"].iter().any(|source| volume.get(source).is_some_and(|it| !it.is_null()))
}

/// Validates `subPath` and `subPathExpr`. Upstream reports errors at the list, not at the mount.
fn sub_paths(mount: &At<'_>, mounts: &At<'_>, errors: &mut Errors) {
    let (path, expression) = (mount.get("subPath"), mount.get("subPathExpr"));
    paths::descending(path.str(), &mounts.path().field("subPath"), errors);
    if !expression.is_empty() {
        if !path.is_empty() {
            errors.push(expression.invalid("subPathExpr and subPath are mutually exclusive"));
        }
        paths::descending(expression.str(), &mounts.path().field("subPathExpr"), errors);
    }
}

fn propagation(mount: &At<'_>, mounts: &At<'_>, container: &At<'_>, errors: &mut Errors) {
    const MODES: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
    let mode = mount.get("mountPropagation");
    if mode.is_present() {
        let path = mounts.path().field("mountPropagation");
        if !MODES.contains(&mode.str()) {
            errors.push(Error::not_supported(&path, mode.str(), &MODES));
        }
        let privileged = container.get("securityContext").get("privileged").bool();
        if mode.str() == "Bidirectional" && !privileged {
            let detail = "Bidirectional mount propagation is available only to privileged containers";
            errors.push(Error::forbidden(&path, detail));
        }
    }
    let recursive = mount.get("recursiveReadOnly");
    let path = mounts.path().field("recursiveReadOnly");
    match recursive.str() {
        _ if recursive.is_absent() => {}
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.get("readOnly").bool() {
                errors.push(Error::forbidden(&path, "may only be specified when readOnly is true"));
            }
            if mode.is_present() && mode.str() != "None" {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.push(Error::forbidden(&path, detail));
            }
        }
        other => errors.push(Error::not_supported(&path, other, &["Disabled", "Enabled", "IfPossible"])),
    }
}

fn by_name(list: &At<'_>, path: &str) -> BTreeMap<String, String> {
    let text = |item: &Value, field: &str| item.text_at(&[field]).to_owned();
    list.list().iter().map(|item| (text(item, "name"), text(item, path))).collect()
}
